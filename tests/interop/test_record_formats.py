"""Batches travel between odradek and other people's clients, in every codec, both ways."""

import asyncio
from collections.abc import Iterator

import aiokafka
import confluent_kafka
import kafka
import pytest

from odradek.records import BatchBuilder, CompressionType, Record, read_all
from tests.interop.mini_broker import TOPIC, MiniBroker

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
DEADLINE_SECONDS = 60
LARGE = 20  # records

RECORDS = [
    Record(0, 1_700_000_000_000, b"key", b"value", (("h", b"1"), ("h", b""), ("n", None))),
    Record(1, 1_700_000_000_005, None, b"no key"),
    Record(2, 1_700_000_000_003, b"tombstone", None),
    Record(3, 1_700_000_000_007, b"", b""),
    *(Record(4 + i, 1_700_000_000_010, b"k%d" % i, b"compress me " * 40) for i in range(200)),
]


def build(codec: str) -> bytes:
    builder = BatchBuilder(codec=CompressionType[codec.upper()], partition_leader_epoch=0)
    builder.append_records(RECORDS)
    return bytes(builder.build())


@pytest.fixture(params=CODECS)
def codec(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def broker() -> Iterator[MiniBroker]:
    with MiniBroker() as started:
        yield started


@pytest.fixture
def serving(codec: str) -> Iterator[MiniBroker]:
    with MiniBroker([build(codec)], log_end_offset=len(RECORDS)) as started:
        yield started


def check_produced(broker: MiniBroker, codec: str) -> None:
    """The captured batches hold RECORDS, and really are compressed as asked.

    Not the small ones, which no codec makes smaller: a client that is held up while it fills a
    batch sends what there is.
    """
    batches = [(blob, list(read_all(blob))) for blob in broker.produced]
    assert [r[1:] for _, records in batches for r in records] == [r[1:] for r in RECORDS]
    wanted = CompressionType[codec.upper()]
    assert {blob[22] & 7 for blob, records in batches if len(records) >= LARGE} == {wanted}


def test_we_read_what_librdkafka_writes(broker: MiniBroker, codec: str) -> None:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "compression.type": codec,
            "linger.ms": 60_000,  # flush does not wait for it
        }
    )
    for record in RECORDS:
        producer.produce(
            TOPIC,
            key=record.key,
            value=record.value,
            partition=0,
            timestamp=record.timestamp,
            headers=list(record.headers),
        )
    assert producer.flush(DEADLINE_SECONDS) == 0
    check_produced(broker, codec)


def test_librdkafka_reads_what_we_write(serving: MiniBroker) -> None:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": serving.bootstrap_servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "check.crcs": True,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
    messages = consumer.consume(len(RECORDS), timeout=DEADLINE_SECONDS)
    consumer.close()
    assert [m.error() for m in messages] == [None] * len(RECORDS)
    seen = [
        (m.offset(), m.timestamp()[1], m.key(), m.value(), tuple(m.headers() or ()))
        for m in messages
    ]
    assert seen == [tuple(record) for record in RECORDS]


def test_we_read_what_aiokafka_writes(broker: MiniBroker, codec: str) -> None:
    async def produce() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap_servers,
            compression_type=None if codec == "none" else codec,
            linger_ms=200,
        )
        await producer.start()
        try:
            sent = [
                await producer.send(
                    TOPIC,
                    r.value,
                    r.key,
                    partition=0,
                    timestamp_ms=r.timestamp,
                    headers=list(r.headers),
                )
                for r in RECORDS
            ]
            await asyncio.wait_for(asyncio.gather(*sent), DEADLINE_SECONDS)
        finally:
            await producer.stop()

    asyncio.run(produce())
    check_produced(broker, codec)


def test_kafka_python_reads_what_we_write(serving: MiniBroker) -> None:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=serving.bootstrap_servers,
        group_id=None,
        auto_offset_reset="earliest",
        consumer_timeout_ms=DEADLINE_SECONDS * 1000,
    )
    consumer.assign([kafka.TopicPartition(TOPIC, 0)])
    consumer.seek(kafka.TopicPartition(TOPIC, 0), 0)
    try:
        seen = []
        for message in consumer:
            headers = tuple(message.headers)
            seen.append(
                Record(message.offset, message.timestamp, message.key, message.value, headers)
            )
            if len(seen) == len(RECORDS):
                break
    finally:
        consumer.close()
    assert seen == RECORDS
