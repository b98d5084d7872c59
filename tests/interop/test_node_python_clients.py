"""Python's Kafka clients find a broker in odradek: topics, records, offsets, waiting."""

import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.broker.dispatch import HANDLERS
from odradek.records import CompressionType
from odradek.testing.broker import Broker
from tests.interop.clients import (
    DEADLINE_SECONDS,
    MURMUR2_KEYS,
    Client,
    Place,
    ProduceError,
    Seen,
    Sent,
    Tail,
    client_kinds,
)

pytestmark = pytest.mark.slow  # each is quick, together they are not

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
UNKNOWN_TOPIC_OR_PARTITION = 3
MESSAGE_TOO_LARGE = 10
FETCH_WAIT_MS = 25_000
PROMPT_SECONDS = 20  # less than the wait, far more than a busy machine needs

RECORDS = [
    Sent(b"key", b"value", (("h", b"1"), ("h", b""))),
    Sent(None, b"no key", (), 1_700_000_000_005),
    Sent(b"tombstone", None, (), 1_700_000_000_003),
    Sent(b"", b"", (), 1_700_000_000_007),
    *(Sent(b"k%d" % i, b"compress me " * 40, (), 1_700_000_000_010) for i in range(200)),
]
NUMBERED = [Sent(None, b"%d" % i, (), 1_700_000_000_000 + i * 1000) for i in range(10)]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    # The records are of 2023, and a test may take longer than it is until retention begins.
    with Broker(data_dir=str(tmp_path), config={"log.retention.ms": "-1"}) as started:
        yield started


@pytest.fixture(params=client_kinds(), ids=lambda kind: kind.name)
def client(request: pytest.FixtureRequest, broker: Broker) -> Client:
    made: Client = request.param(broker.bootstrap_servers)
    return made


def seen(records: list[Sent], start: int = 0) -> list[Seen]:
    return [Seen(start + i, record) for i, record in enumerate(records)]


def batch_codecs(log: Path) -> set[int]:
    """Return the codecs of all batches in a segment."""
    data, position, codecs = log.read_bytes(), 0, set()
    while position < len(data):
        codecs.add(data[position + 22] & 7)
        position += 12 + int(struct.unpack_from(">i", data, position + 8)[0])
    return codecs


def codec_on_disk(client: Client, codec: str) -> CompressionType:
    # librdkafka takes a broker without FindCoordinator for one before 0.8.2, which had no lz4.
    if client.name == "confluent" and codec == "lz4" and "FindCoordinator" not in HANDLERS:
        return CompressionType.NONE
    return CompressionType[codec.upper()]


@pytest.mark.seed_row("1.11")
@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_goes_in_and_comes_out(client: Client, codec: str, tmp_path: Path) -> None:
    client.create_topic("t")
    places = client.produce("t", RECORDS, partition=0, codec=codec)
    assert places == [Place(0, i) for i in range(len(RECORDS))]
    assert client.consume("t", len(RECORDS)) == seen(RECORDS)
    log = tmp_path / "t-0" / "00000000000000000000.log"
    wanted = codec_on_disk(client, codec)
    # What was sent before the rest came is a batch of its own, and too small to get smaller.
    assert wanted in batch_codecs(log) <= {wanted, CompressionType.NONE}


@pytest.mark.seed_row("1.11")
@pytest.mark.parametrize("codec", CODECS)
def test_the_topic_may_want_another_codec_than_the_producer(
    client: Client, codec: str, tmp_path: Path
) -> None:
    client.create_topic("t", configs={"compression.type": "zstd" if codec == "gzip" else "gzip"})
    client.produce("t", RECORDS, partition=0, codec=codec)
    assert client.consume("t", len(RECORDS)) == seen(RECORDS)
    wanted = CompressionType.ZSTD if codec == "gzip" else CompressionType.GZIP
    assert batch_codecs(tmp_path / "t-0" / "00000000000000000000.log") == {wanted}


def test_headers_may_be_null(client: Client) -> None:
    client.create_topic("t")
    null = b"" if client.name == "kafka-python" else None  # which refuses to send one
    record = Sent(None, b"value", (("n", null), ("n", b"second"), ("", b"nameless")))
    client.produce("t", [record], partition=0)
    assert client.consume("t", 1) == seen([record])


def test_a_record_of_one_megabyte_goes_through(client: Client) -> None:
    client.create_topic("t")
    big = Sent(b"big", bytes(range(250)) * 4000)
    client.produce("t", [big, *NUMBERED], partition=0)
    assert client.consume("t", 1 + len(NUMBERED)) == seen([big, *NUMBERED])


def test_a_record_above_max_message_bytes_is_refused(client: Client) -> None:
    client.create_topic("t")
    with pytest.raises(ProduceError) as refused:
        client.produce("t", [Sent(None, bytes(2_000_000))], partition=0)
    assert refused.value.code == MESSAGE_TOO_LARGE
    assert client.watermarks("t") == (0, 0)


def test_keys_go_where_java_sends_them(client: Client) -> None:
    client.create_topic("t", 7)
    places = client.produce("t", [Sent(key, b"") for key in MURMUR2_KEYS])
    homes = [(h & 0x7FFFFFFF) % 7 for h in MURMUR2_KEYS.values()]
    assert sorted(place.partition for place in places) == sorted(homes)
    for partition in set(homes):
        keys = [key for key, home in zip(MURMUR2_KEYS, homes, strict=True) if home == partition]
        found = client.consume("t", len(keys), partition=partition)
        assert [each.record.key for each in found] == keys


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acknowledged_or_not_the_records_arrive(client: Client, acks: str) -> None:
    client.create_topic("t")
    client.produce("t", NUMBERED, partition=0, acks=acks)
    assert client.consume("t", len(NUMBERED)) == seen(NUMBERED)
    assert client.watermarks("t") == (0, len(NUMBERED))


@pytest.mark.slow  # librdkafka takes half a second to get a producer id
def test_idempotent_producers_follow_each_other(client: Client) -> None:
    client.create_topic("t", 2)
    for partition in (0, 1, 0):
        client.produce("t", NUMBERED, partition=partition, idempotent=True)
    assert client.consume("t", 20) == seen([*NUMBERED, *NUMBERED])
    assert client.consume("t", 10, partition=1) == seen(NUMBERED)


def test_reading_starts_at_the_offset_asked_for(client: Client) -> None:
    client.create_topic("t")
    client.produce("t", NUMBERED, partition=0)
    assert client.consume("t", 4, start=6) == seen(NUMBERED)[6:]


def test_offsets_are_found_by_timestamp(client: Client) -> None:
    client.create_topic("t")
    client.produce("t", NUMBERED, partition=0)
    first = NUMBERED[0].timestamp
    asked = [0, first, first + 1, first + 4000, first + 9000, first + 9001]
    assert client.offsets_at("t", asked) == [0, 0, 1, 4, 9, None]


@pytest.mark.seed_row("1.2")
def test_an_unknown_topic_is_created_on_demand(broker: Broker, client: Client) -> None:
    client.produce("fresh", NUMBERED)
    assert client.partition_counts() == {"fresh": 1}
    assert client.consume("fresh", len(NUMBERED)) == seen(NUMBERED)


@pytest.mark.seed_row("1.2")
@pytest.mark.parametrize("kind", client_kinds(), ids=lambda kind: kind.name)
def test_no_topic_comes_to_be_where_that_is_off(kind: type[Client]) -> None:
    with Broker(config={"auto.create.topics.enable": "false"}) as broker:
        client = kind(broker.bootstrap_servers)
        assert client.topic_error("ghost") == UNKNOWN_TOPIC_OR_PARTITION
        assert client.partition_counts() == {}


def test_a_topic_deleted_and_made_again_is_empty(client: Client) -> None:
    client.create_topic("t", 3)
    client.produce("t", NUMBERED, partition=2)
    client.delete_topic("t")
    assert client.partition_counts() == {}
    client.create_topic("t", 2)
    assert client.partition_counts() == {"t": 2}
    assert [client.watermarks("t", partition) for partition in (0, 1)] == [(0, 0), (0, 0)]
    client.produce("t", RECORDS[:4], partition=1)
    assert client.consume("t", 4, partition=1) == seen(RECORDS[:4])


def test_a_topic_grows_and_keeps_its_records(client: Client) -> None:
    client.create_topic("t", 1)
    client.produce("t", NUMBERED, partition=0)
    client.grow_topic("t", 3)
    assert client.partition_counts() == {"t": 3}
    assert client.produce("t", NUMBERED, partition=2)[-1] == Place(2, 9)
    assert client.consume("t", 10) == client.consume("t", 10, partition=2) == seen(NUMBERED)


@pytest.mark.seed_row("1.14")
def test_deleted_records_are_gone_and_offsets_stay(client: Client) -> None:
    client.create_topic("t")
    client.produce("t", NUMBERED, partition=0)
    assert client.delete_records("t", 4) == 4
    assert client.watermarks("t") == (4, 10)
    assert client.consume("t", 6, start=4) == seen(NUMBERED)[4:]
    assert client.delete_records("t", -1) == 10
    assert client.watermarks("t") == (10, 10)


def wait_for_parked_fetch(broker: Broker, tail: Tail) -> None:
    """Return when the consumer is at the end and its fetch waits in the broker."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(broker.node.broker.delayed) == 0:
        assert tail.poll(0.01) == []
        assert time.monotonic() < deadline, "the consumer does not fetch"


def poll_for(tail: Tail, count: int) -> list[Seen]:
    found: list[Seen] = []
    deadline = time.monotonic() + PROMPT_SECONDS
    while len(found) < count and time.monotonic() < deadline:
        found += tail.poll(0.1)
    return found


@pytest.mark.seed_row("0.2")
def test_a_consumer_at_the_end_gets_what_comes_later_at_once(
    broker: Broker, client: Client
) -> None:
    client.create_topic("t")
    client.produce("t", RECORDS[:3], partition=0)
    with client.tail("t", min_bytes=1, wait_ms_max=FETCH_WAIT_MS) as tail:
        for number, record in enumerate(NUMBERED[:3]):
            wait_for_parked_fetch(broker, tail)
            client.produce("t", [record], partition=0)
            assert poll_for(tail, 1) == [Seen(3 + number, record)]


@pytest.mark.seed_row("0.2")
def test_a_fetch_waits_until_its_least_bytes_are_there(broker: Broker, client: Client) -> None:
    client.create_topic("t")
    with client.tail("t", min_bytes=50_000, wait_ms_max=FETCH_WAIT_MS) as tail:
        wait_for_parked_fetch(broker, tail)
        client.produce("t", NUMBERED, partition=0)
        assert len(broker.node.broker.delayed) == 1
        assert tail.poll(0) == []
        large = Sent(None, bytes(60_000))
        client.produce("t", [large], partition=0)
        assert poll_for(tail, 11) == seen([*NUMBERED, large])
