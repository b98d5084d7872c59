"""Batches with a good checksum and nothing good behind it: our answers beside a real Kafka's.

Where the two differ is written down here, answer by answer, so that a change of either is noticed.
We refuse all that a reader could not read; Kafka skips over keys and values of packed records
without a look at the length of the record, and takes offsets as they come.
"""

import time
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from odradek.client import BlockingAdmin, NewTopic
from odradek.protocol.generated.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from odradek.records import BatchHeader, Record, parse_header
from odradek.records.batch import seal
from odradek.records.legacy import build_message_set
from odradek.testing.broker import Broker
from tests import malformed_batches
from tests.broker_connection import BrokerConnection
from tests.interop.kafka_peer import KafkaNode
from tests.interop.test_produce_record_errors_kafka import (
    NOT_YET,
    VERSION,
    WAIT_SECONDS_MAX,
    produce,
)

TOPICS: Final = {
    "plain": {},
    "compact": {"cleanup.policy": "compact"},
    "zipped": {"compression.type": "zstd"},
    "unzipped": {"compression.type": "uncompressed"},
}
CASES: Final = [
    *malformed_batches.BODY_CASES,
    *malformed_batches.STREAM_CASES,
    *malformed_batches.SOUND_CASES,
]
MAX_TIMESTAMP: Final = slice(35, 43)


class Told(NamedTuple):
    code: int
    base_offset: int
    log_start_offset: int


def is_stricter(name: str, kafka: int) -> bool:
    """Whether a batch is one that we refuse though, or otherwise than, Kafka does."""
    kind, _, codec = name.rpartition(", ")
    if kind == "varint without end" and codec == "none":
        return kafka == -1
    if kind == "empty" and codec == "zstd":
        return kafka == 87
    if kind == "record longer than its fields":
        return kafka == -1
    lengths = {
        "record of negative length",
        "record longer than the body",
        "record shorter than its fields",
    }
    return kind in lengths and kafka == 0


def told(connection: BrokerConnection, topic: str, batch: bytearray) -> Told:
    answer = produce(connection, topic, batch, VERSION)
    return Told(answer.error_code, answer.base_offset, answer.log_start_offset)


def header_at(connection: BrokerConnection, topic: str, offset: int) -> BatchHeader:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=1000,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
    answer = connection.ask(request, FetchResponse, 12)
    records = answer.responses[0].partitions[0].records
    assert records is not None
    return parse_header(records)


def codes(servers: str) -> dict[tuple[str, str], int]:
    """Return what a broker says to all of the cases, by topic and name."""
    with BlockingAdmin(bootstrap_servers=servers) as admin:
        new = [NewTopic(name, 1, configs=configs) for name, configs in TOPICS.items()]
        admin.create_topics(new).unwrap()
    found: dict[tuple[str, str], int] = {}
    now_ms = time.time_ns() // 1_000_000
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    sound = malformed_batches.batch_of(malformed_batches.THREE, 3, now_ms)
    lying = bytearray(sound)
    lying[MAX_TIMESTAMP] = (now_ms + 1000).to_bytes(8, "big")
    seal(lying, parse_header(lying))
    with BrokerConnection(int(servers.rpartition(":")[2])) as connection:
        for topic in TOPICS:
            while told(connection, topic, bytearray(sound)).code in NOT_YET:
                assert time.monotonic() < deadline, f"{topic} has no leader"
            for case in CASES:
                answer = told(connection, topic, case.batch(now_ms))
                assert answer.log_start_offset == 0
                assert (answer.base_offset == -1) == (answer.code != 0)
                found[topic, case.name] = answer.code
            old = bytearray(build_message_set([Record(0, now_ms, b"k", b"v")], magic=1))
            found[topic, "message of format v1"] = told(connection, topic, old).code
            offset = told(connection, topic, bytearray(lying)).base_offset
            assert header_at(connection, topic, offset).max_timestamp == now_ms
    return found


@pytest.mark.slow
@pytest.mark.kafka
def test_malformed_batches_are_refused_as_by_a_real_kafka(kafka_libs: Path, tmp_path: Path) -> None:
    with KafkaNode(tmp_path / "data") as node:
        expected = codes(node.bootstrap_servers)
    with Broker() as broker:
        found = codes(broker.bootstrap_servers)
    other = {each: (expected[each], found[each]) for each in found if found[each] != expected[each]}
    unknown = {each for each in other if not is_stricter(each[1], expected[each])}
    assert not unknown, [(each, other[each]) for each in unknown]
    assert all(ours in (87, -1) for _, ours in other.values())
    assert len(other) == 44  # more than that is a change of ours, or of theirs
