"""Which records are at fault (KIP-467): our answers beside a real Kafka's, field by field."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from odradek.client import BlockingAdmin, NewTopic
from odradek.core.errors import ErrorCode
from odradek.protocol.generated.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.records import BatchBuilder, CompressionType, TimestampType, parse_header
from odradek.records.batch import set_max_timestamp
from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection
from tests.interop.kafka_peer import KafkaNode

VERSION = 12  # the last one that names topics
NOT_YET = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)
WAIT_SECONDS_MAX = 60
DAY_MS = 86_400_000
TOPICS = {
    "plain": {},
    "compact": {"cleanup.policy": "compact"},
    "recent": {"message.timestamp.before.max.ms": str(DAY_MS)},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "both": {"cleanup.policy": "compact", "message.timestamp.before.max.ms": str(DAY_MS)},
    "zipped": {"cleanup.policy": "compact", "compression.type": "zstd"},
}
# Days from now, None for no timestamp at all; keys.
Row = tuple[bytes | None, int | None]
NO_KEYS: list[Row] = [(b"k", 0), (None, 0), (b"", 0), (None, 0)]
TIMES: list[Row] = [(b"k", -2), (None, 0), (b"k", None), (b"k", 2), (b"k", -400)]
BOTH: list[Row] = [(None, 0), (None, -2), (b"k", 2)]
CASES: list[tuple[str, list[Row]]] = [
    *((topic, rows) for topic in TOPICS for rows in (NO_KEYS, TIMES, BOTH)),
    ("compact", [(b"k", 0)]),
    ("recent", [(None, None)]),
]


class Told(NamedTuple):
    code: int
    record_errors: list[int]
    has_messages: bool
    base_offset: int
    log_start_offset: int
    has_message: bool


def batch_of(rows: Sequence[Row], codec: CompressionType, now_ms: int) -> bytearray:
    builder = BatchBuilder(codec=codec)
    for key, days in rows:
        builder.append(-1 if days is None else now_ms + days * DAY_MS, key, b"value")
    return builder.build()


def produce(
    connection: BrokerConnection, topic: str, batch: bytearray, version: int
) -> PartitionProduceResponse:
    data = PartitionProduceData(index=0, records=batch)
    request = ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )
    answer = connection.ask(request, ProduceResponse, version)
    return answer.responses[0].partition_responses[0]


def told(connection: BrokerConnection, topic: str, batch: bytearray, version: int) -> Told:
    answer = produce(connection, topic, batch, version)
    return Told(
        answer.error_code,
        [each.batch_index for each in answer.record_errors],
        all(each.batch_index_error_message for each in answer.record_errors),
        answer.base_offset,
        answer.log_start_offset,
        bool(answer.error_message),
    )


def wait_for_leaders(connection: BrokerConnection) -> None:
    """Wait until every topic takes records: a Kafka answers its creation before."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    for topic in TOPICS:
        batch = batch_of([(b"k", 0)], CompressionType.NONE, time.time_ns() // 1_000_000)
        while produce(connection, topic, batch, VERSION).error_code in NOT_YET:
            assert time.monotonic() < deadline, f"{topic} has no leader"


def answers(servers: str) -> list[Told]:
    """Return what a broker says to all of the cases."""
    with BlockingAdmin(bootstrap_servers=servers) as admin:
        new = [NewTopic(name, 1, configs=configs) for name, configs in TOPICS.items()]
        admin.create_topics(new).unwrap()
    now_ms = time.time_ns() // 1_000_000
    stamped = batch_of([(b"k", 0), (b"k", 0)], CompressionType.NONE, now_ms)
    set_max_timestamp(stamped, parse_header(stamped), TimestampType.LOG_APPEND_TIME, now_ms)
    with BrokerConnection(int(servers.rpartition(":")[2])) as connection:
        wait_for_leaders(connection)
        found = [
            told(connection, topic, batch_of(rows, codec, now_ms), version)
            for topic, rows in CASES
            for codec in (CompressionType.NONE, CompressionType.GZIP)
            for version in (7, 8, VERSION)
        ]
        found.append(told(connection, "stamped", stamped, VERSION))
        return found


@pytest.mark.slow
@pytest.mark.kafka
def test_the_same_records_are_at_fault_as_in_a_real_kafka(kafka_libs: Path, tmp_path: Path) -> None:
    with KafkaNode(tmp_path / "data") as node:
        expected = answers(node.bootstrap_servers)
    with Broker() as broker:
        found = answers(broker.bootstrap_servers)
    assert found == expected
    assert {each.code for each in found} == {0, 32, 87}
    assert any(each.record_errors == [1, 3] for each in found)


@pytest.mark.parametrize(("version", "expected"), [(7, []), (8, [1]), (VERSION, [1])])
def test_versions_that_know_record_errors_have_them(version: int, expected: list[int]) -> None:
    with Broker() as broker:
        broker.create_topic("compact", cleanup_policy="compact")
        batch = batch_of([(b"k", 0), (None, 0)], CompressionType.NONE, 1_700_000_000_000)
        with BrokerConnection(broker.port) as connection:
            answer = produce(connection, "compact", batch, version)
            assert answer.error_code == 87
            assert [each.batch_index for each in answer.record_errors] == expected
            good = batch_of([(b"k", 0)], CompressionType.NONE, 1_700_000_000_000)
            assert produce(connection, "compact", good, version).base_offset == 0
