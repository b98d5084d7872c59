"""Makes the golden files anew by running the libraries: ``python -m tests.golden.records.capture``.

librdkafka gives its batches only to a broker, so it gets one; aiokafka and kafka-python have their
builders called. The files of Kafka itself come from ``CaptureJava.java``. All are committed: a new
version of a library must not change what we test.
"""

from typing import Any

import confluent_kafka
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder as AiokafkaLegacyBuilder
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
from kafka.record.legacy_records import LegacyRecordBatchBuilder as KafkaPythonLegacyBuilder

from tests.golden.records.cases import (
    CODECS,
    DATA,
    LEGACY_CODECS,
    path_of,
    records_of,
)
from tests.interop.mini_broker import TOPIC, MiniBroker

BATCH_BYTES_MAX = 1 << 20


def librdkafka(codec: str) -> bytes:
    with MiniBroker() as broker:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "compression.type": codec,
                "linger.ms": 500,
            }
        )
        for record in records_of(codec):
            producer.produce(
                TOPIC,
                key=record.key,
                value=record.value,
                partition=0,
                timestamp=record.timestamp,
                headers=list(record.headers),
            )
        assert producer.flush(20) == 0
        (batch,) = broker.produced
    return batch


def with_builder(builder_class: Any, codec: str) -> bytes:
    builder = builder_class(2, CODECS.index(codec), False, -1, -1, -1, BATCH_BYTES_MAX)
    for record in records_of(codec):
        builder.append(
            record.offset, record.timestamp, record.key, record.value, list(record.headers)
        )
    return bytes(builder.build())


def with_legacy_builder(builder_class: Any, magic: int, codec: str) -> bytes:
    builder = builder_class(magic, CODECS.index(codec), BATCH_BYTES_MAX)
    for record in records_of(codec, magic):
        timestamp = record.timestamp if magic else None
        builder.append(record.offset, timestamp, record.key, record.value)
    return bytes(builder.build())


def main() -> None:
    DATA.mkdir(exist_ok=True)
    for codec in CODECS:
        path_of("librdkafka", codec).write_bytes(librdkafka(codec))
        path_of("aiokafka", codec).write_bytes(with_builder(AiokafkaBuilder, codec))
        path_of("kafka-python", codec).write_bytes(with_builder(KafkaPythonBuilder, codec))
    for codec in LEGACY_CODECS:
        for magic in (0, 1):
            if (magic, codec) == (0, "lz4"):
                continue  # neither writes the wrong checksum that this takes (KAFKA-3160)
            ours = with_legacy_builder(AiokafkaLegacyBuilder, magic, codec)
            path_of("aiokafka", codec, magic).write_bytes(ours)
            theirs = with_legacy_builder(KafkaPythonLegacyBuilder, magic, codec)
            path_of("kafka-python", codec, magic).write_bytes(theirs)


if __name__ == "__main__":
    main()
