"""What every client finds in a broker, as tests that a class of each client inherits.

A subclass says where the client's default partitioner sends a key (`home`) and overrides what its
client cannot say. Writers are read back by librdkafka, readers read what librdkafka and they
themselves wrote.
"""

import random
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

from tests.interop.clients import (
    DEADLINE_SECONDS,
    MURMUR2_KEYS,
    Place,
    ProduceError,
    Seen,
    Sent,
)
from tests.interop.clients.confluent import Confluent
from tests.interop.programs.program import Target
from tests.interop.programs.witness import wait_until

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
CODEC_MASK = 7

MESSAGE_TOO_LARGE = 10
INVALID_TOPIC_EXCEPTION = 17
INVALID_TIMESTAMP = 32
TOPIC_ALREADY_EXISTS = 36
INVALID_PARTITIONS = 37
INVALID_CONFIG = 40
INVALID_RECORD = 87

RECORDS = [
    Sent(b"key", b"value", (("h", b"1"), ("h", b""), ("ü", b"\xff"))),
    Sent(None, b"no key", (), 1_700_000_000_005),
    Sent(b"tombstone", None, (), 1_700_000_000_003),
    Sent(None, None, (), 1_700_000_000_004),
    Sent(b"", b"", (), 1_700_000_000_007),
    *(Sent(b"k%d" % i, b"compress me " * 40, (), 1_700_000_000_010) for i in range(200)),
]
NUMBERED = [Sent(b"k", b"%d" % i, (), 1_700_000_000_000 + i * 1000) for i in range(10)]
NULL_HEADERS = Sent(b"k", b"v", (("n", None), ("n", b"second")))
BIG = Sent(b"big", random.Random(1).randbytes(1_500_000))  # no codec makes it small
BIG_CONFIGS = {"max.message.bytes": "3000000"}
FAR_AHEAD = Sent(b"k", b"v", (), 4_102_444_800_000)  # 2100-01-01


class ForeignClient(Protocol):
    """A client that is not written in Python."""

    def create_topic(
        self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None: ...

    def produce(
        self,
        topic: str,
        records: Iterable[Sent],
        *,
        partition: int | None = None,
        codec: str = "none",
        acks: int = -1,
        idempotent: bool = False,
    ) -> list[Place]:
        """Send all; gives at least the place of the first record in each partition."""

    def consume(self, topic: str, count: int, *, partition: int = 0, start: int = 0) -> list[Seen]:
        """Read from an offset on until `count` records are there, perhaps a few more."""


class TopicContract:
    """For clients that create topics."""

    def test_a_topic_is_made_with_its_partitions_and_configs(
        self, client: ForeignClient, witness: Confluent, topic: str
    ) -> None:
        wanted = {"retention.ms": "86400000", "cleanup.policy": "compact"}
        client.create_topic(topic, 3, wanted)
        # Kafka's controller has answered, its broker may hear of it a moment later.
        wait_until(lambda: witness.partition_counts().get(topic) == 3)
        wait_until(lambda: wanted.items() <= described(witness, topic).items())

    def test_a_topic_that_exists_is_not_made_again(self, client: ForeignClient, topic: str) -> None:
        client.create_topic(topic)
        with pytest.raises(ProduceError) as refused:
            client.create_topic(topic)
        assert refused.value.code == TOPIC_ALREADY_EXISTS

    @pytest.mark.parametrize(
        ("end", "partitions", "configs", "code"),
        [
            ("/", 1, {}, INVALID_TOPIC_EXCEPTION),
            ("", 0, {}, INVALID_PARTITIONS),
            ("", 1, {"retention.ms": "soon"}, INVALID_CONFIG),
        ],
        ids=["name", "partitions", "config"],
    )
    def test_a_topic_that_cannot_be_is_refused(
        self,
        client: ForeignClient,
        witness: Confluent,
        topic: str,
        end: str,
        partitions: int,
        configs: dict[str, str],
        code: int,
    ) -> None:
        with pytest.raises(ProduceError) as refused:
            client.create_topic(topic + end, partitions, configs)
        assert refused.value.code == code
        assert topic + end not in witness.partition_counts()


class KeyContract:
    @staticmethod
    def home(key: bytes, partitions: int) -> int:
        """Return where Java's partitioner sends a key, one of Kafka's own examples of murmur2."""
        return int(MURMUR2_KEYS[key] & 0x7FFFFFFF) % partitions

    def test_keys_go_where_the_partitioner_sends_them(
        self, client: ForeignClient, witness: Confluent, topic: str
    ) -> None:
        witness.create_topic(topic, 7)
        for _ in range(2):
            client.produce(topic, [Sent(key, b"") for key in MURMUR2_KEYS])
        homes = {key: self.home(key, 7) for key in MURMUR2_KEYS}
        for partition in range(7):
            keys = [key for key in MURMUR2_KEYS if homes[key] == partition]
            assert witness.watermarks(topic, partition) == (0, 2 * len(keys))
            if keys:
                found = witness.consume(topic, 2 * len(keys), partition=partition)
                assert [each.record.key for each in found] == keys * 2


class ProducerContract(KeyContract):
    records: ClassVar[list[Sent]] = RECORDS
    has_timestamps: ClassVar = True

    def as_sent(self, found: Iterable[Seen]) -> list[Sent]:
        """Drop the timestamp where the client gave the records one of its own."""
        default = Sent(None, None).timestamp
        return [
            each.record if self.has_timestamps else each.record._replace(timestamp=default)
            for each in found
        ]

    def expected(self, sent: Iterable[Sent]) -> list[Sent]:
        return self.as_sent(Seen(0, record) for record in sent)

    @pytest.mark.parametrize("codec", CODECS)
    def test_every_codec_goes_in(
        self, client: ForeignClient, target: Target, witness: Confluent, topic: str, codec: str
    ) -> None:
        witness.create_topic(topic, 2)
        places = client.produce(topic, self.records, partition=1, codec=codec)
        assert first_places(places) == {1: 0}
        found = witness.consume(topic, len(self.records), partition=1)
        assert self.as_sent(found) == self.expected(self.records)
        assert [each.offset for each in found] == list(range(len(self.records)))
        # The last batch is the one of many records; kcat makes small ones that no codec shrinks.
        assert batch_codecs(target.data_dir / f"{topic}-1")[-1] == CODECS.index(codec)
        assert witness.watermarks(topic, 0) == (0, 0)

    def test_a_record_above_a_megabyte_goes_in_where_the_topic_allows(
        self, client: ForeignClient, witness: Confluent, topic: str
    ) -> None:
        witness.create_topic(topic, configs=BIG_CONFIGS)
        client.produce(topic, [BIG, *NUMBERED], partition=0)
        found = witness.consume(topic, 1 + len(NUMBERED))
        assert self.as_sent(found) == self.expected([BIG, *NUMBERED])

    @pytest.mark.parametrize("acks", [0, 1, -1])
    def test_acknowledged_or_not_the_records_arrive(
        self, client: ForeignClient, witness: Confluent, topic: str, acks: int
    ) -> None:
        witness.create_topic(topic)
        client.produce(topic, NUMBERED, partition=0, acks=acks)
        found = witness.consume(topic, len(NUMBERED))
        assert self.as_sent(found) == self.expected(NUMBERED)

    def test_idempotent_producers_follow_each_other(
        self, client: ForeignClient, witness: Confluent, topic: str
    ) -> None:
        witness.create_topic(topic)
        for start in (0, 10):
            places = client.produce(topic, NUMBERED, partition=0, idempotent=True)
            assert first_places(places) == {0: start}
        assert witness.watermarks(topic) == (0, 20)

    def test_a_lone_replica_is_enough_for_any_min_insync_replicas(
        self, client: ForeignClient, witness: Confluent, topic: str
    ) -> None:
        witness.create_topic(topic, configs={"min.insync.replicas": "2"})
        client.produce(topic, NUMBERED, partition=0, acks=-1)
        assert witness.watermarks(topic) == (0, 10)

    def test_a_record_above_max_message_bytes_is_refused(
        self, client: ForeignClient, witness: Confluent, topic: str
    ) -> None:
        witness.create_topic(topic)
        refused_with(MESSAGE_TOO_LARGE, client, topic, BIG)
        assert witness.watermarks(topic) == (0, 0)

    def test_a_compacted_topic_refuses_a_record_without_key(
        self, client: ForeignClient, witness: Confluent, topic: str
    ) -> None:
        witness.create_topic(topic, configs={"cleanup.policy": "compact"})
        refused_with(INVALID_RECORD, client, topic, Sent(None, b"v"))
        client.produce(topic, NUMBERED, partition=0)
        assert witness.watermarks(topic) == (0, 10)


class NullHeaderContract(ProducerContract):
    """For clients that can send a header without value."""

    def test_null_headers_go_in(
        self, client: ForeignClient, witness: Confluent, topic: str
    ) -> None:
        witness.create_topic(topic)
        client.produce(topic, [NULL_HEADERS], partition=0)
        found = witness.consume(topic, 1)
        assert self.as_sent(found) == self.expected([NULL_HEADERS])


class TimestampContract:
    """For clients that set timestamps."""

    def test_a_timestamp_far_ahead_is_refused(
        self, client: ForeignClient, witness: Confluent, topic: str
    ) -> None:
        witness.create_topic(topic)
        refused_with(INVALID_TIMESTAMP, client, topic, FAR_AHEAD)
        assert witness.watermarks(topic) == (0, 0)

    def test_the_topic_may_set_timestamps_itself(
        self, client: ForeignClient, witness: Confluent, topic: str
    ) -> None:
        witness.create_topic(topic, configs={"message.timestamp.type": "LogAppendTime"})
        client.produce(topic, [FAR_AHEAD, NUMBERED[0]], partition=0)
        stamps = {each.record.timestamp for each in witness.consume(topic, 2)}
        assert NUMBERED[0].timestamp < min(stamps) <= max(stamps) < FAR_AHEAD.timestamp


class ConsumerContract:
    @pytest.mark.parametrize("codec", CODECS)
    def test_every_codec_comes_out(
        self, client: ForeignClient, witness: Confluent, topic: str, codec: str
    ) -> None:
        witness.create_topic(topic, 2)
        witness.produce(topic, RECORDS, partition=1, codec=codec)
        assert client.consume(topic, len(RECORDS), partition=1) == seen(RECORDS)

    @pytest.mark.parametrize("codec", CODECS)
    def test_a_client_reads_what_it_wrote(
        self, client: ForeignClient, witness: Confluent, topic: str, codec: str
    ) -> None:
        witness.create_topic(topic)
        client.produce(topic, NUMBERED, partition=0, codec=codec)
        found = client.consume(topic, len(NUMBERED))
        assert found == witness.consume(topic, len(NUMBERED))
        assert [each.record.value for each in found] == [each.value for each in NUMBERED]

    def test_null_headers_come_out(
        self, client: ForeignClient, witness: Confluent, topic: str
    ) -> None:
        witness.create_topic(topic)
        witness.produce(topic, [NULL_HEADERS], partition=0)
        assert client.consume(topic, 1) == seen([NULL_HEADERS])

    def test_a_record_above_a_megabyte_comes_out(
        self, client: ForeignClient, witness: Confluent, topic: str
    ) -> None:
        witness.create_topic(topic, configs=BIG_CONFIGS)
        witness.produce(topic, [*NUMBERED, BIG, *NUMBERED], partition=0)
        expected = seen([*NUMBERED, BIG, *NUMBERED])
        assert client.consume(topic, len(expected)) == expected

    @pytest.mark.parametrize("codec", ["none", "zstd"])
    def test_reading_starts_at_the_offset_asked_for(
        self, client: ForeignClient, witness: Confluent, topic: str, codec: str
    ) -> None:
        witness.create_topic(topic)
        witness.produce(topic, NUMBERED, partition=0, codec=codec)
        assert client.consume(topic, 4, start=6) == seen(NUMBERED)[6:]


def refused_with(code: int, client: ForeignClient, topic: str, record: Sent) -> None:
    with pytest.raises(ProduceError) as refused:
        client.produce(topic, [record], partition=0)
    assert refused.value.code == code, refused.value


def seen(records: list[Sent]) -> list[Seen]:
    return [Seen(offset, record) for offset, record in enumerate(records)]


def first_places(places: Iterable[Place]) -> dict[int, int]:
    first: dict[int, int] = {}
    for place in places:
        first.setdefault(place.partition, place.offset)
    return first


def batch_codecs(folder: Path) -> list[int]:
    """Return the codecs of all batches in the first segment of a partition."""
    data, position, codecs = (folder / f"{0:020}.log").read_bytes(), 0, []
    while position < len(data):
        codecs.append(data[position + 22] & CODEC_MASK)
        position += 12 + int(struct.unpack_from(">i", data, position + 8)[0])
    return codecs


def described(witness: Confluent, topic: str) -> dict[str, str]:
    admin = AdminClient({"bootstrap.servers": witness.servers})
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    (future,) = admin.describe_configs([resource]).values()
    found: dict[str, Any] = future.result(DEADLINE_SECONDS)
    return {name: entry.value for name, entry in found.items()}
