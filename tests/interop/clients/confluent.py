"""confluent-kafka: librdkafka."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import confluent_kafka
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.interop.clients import DEADLINE_SECONDS, Client, Place, ProduceError, Seen, Sent, Tail


class Confluent(Client):
    name = "confluent"

    def create_topic(
        self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        new = NewTopic(topic, partitions, 1, config=dict(configs or {}))
        admin = self._admin()  # kept: its futures fail when it is collected
        admin.create_topics([new])[topic].result(DEADLINE_SECONDS)

    def delete_topic(self, topic: str) -> None:
        admin = self._admin()
        admin.delete_topics([topic])[topic].result(DEADLINE_SECONDS)

    def grow_topic(self, topic: str, partitions: int) -> None:
        admin = self._admin()
        new = NewPartitions(topic, partitions)
        admin.create_partitions([new])[topic].result(DEADLINE_SECONDS)

    def delete_records(self, topic: str, before_offset: int) -> int:
        admin = self._admin()
        partition = TopicPartition(topic, 0, before_offset)
        (future,) = admin.delete_records([partition]).values()
        return int(future.result(DEADLINE_SECONDS).low_watermark)

    def partition_counts(self) -> dict[str, int]:
        found = self._admin().list_topics(timeout=DEADLINE_SECONDS).topics
        return {name: len(topic.partitions) for name, topic in found.items()}

    def topic_error(self, topic: str) -> int:
        error = self._admin().list_topics(topic, timeout=DEADLINE_SECONDS).topics[topic].error
        return 0 if error is None else int(error.code())

    def produce(
        self,
        topic: str,
        records: Iterable[Sent],
        *,
        partition: int | None = None,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> list[Place]:
        producer = confluent_kafka.Producer(
            {
                **self._server(),
                "compression.type": codec,
                "acks": acks,
                "enable.idempotence": idempotent,
                "linger.ms": 20,
                "message.max.bytes": 10_000_000,
                "partitioner": "murmur2_random",  # Java's; its own default is CRC-32
            }
        )
        places: list[Place] = []
        errors: list[confluent_kafka.KafkaError] = []

        def delivered(error: Any, message: confluent_kafka.Message) -> None:
            if error is not None:
                errors.append(error)
            places.append(Place(message.partition() or 0, message.offset() or 0))

        chosen: dict[str, Any] = {} if partition is None else {"partition": partition}
        for record in records:
            producer.produce(
                topic,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
                timestamp=record.timestamp,
                on_delivery=delivered,
                **chosen,
            )
        assert producer.flush(DEADLINE_SECONDS) == 0
        if errors:
            raise ProduceError(errors[0].code(), errors[0].str())
        return places

    def consume(self, topic: str, count: int, *, partition: int = 0, start: int = 0) -> list[Seen]:
        consumer = self._consumer()
        consumer.assign([TopicPartition(topic, partition, start)])
        try:
            return _seen(consumer.consume(count, timeout=DEADLINE_SECONDS))
        finally:
            consumer.close()

    @contextmanager
    def tail(self, topic: str, *, min_bytes: int, wait_ms_max: int) -> Iterator[Tail]:
        consumer = self._consumer(
            **{"fetch.min.bytes": min_bytes, "fetch.wait.max.ms": wait_ms_max},
        )
        consumer.assign([TopicPartition(topic, 0, confluent_kafka.OFFSET_END)])
        try:
            yield _Tail(consumer)
        finally:
            consumer.close()

    def watermarks(self, topic: str, partition: int = 0) -> tuple[int, int]:
        consumer = self._consumer()
        try:
            where = TopicPartition(topic, partition)
            low, high = consumer.get_watermark_offsets(where, DEADLINE_SECONDS)
            return low, high
        finally:
            consumer.close()

    def offsets_at(self, topic: str, timestamps: Sequence[int]) -> list[int | None]:
        consumer = self._consumer()
        try:
            found = [
                consumer.offsets_for_times([TopicPartition(topic, 0, each)], DEADLINE_SECONDS)[0]
                for each in timestamps
            ]
            return [each.offset if each.offset >= 0 else None for each in found]
        finally:
            consumer.close()

    def _admin(self) -> AdminClient:
        return AdminClient(self._server())

    def _server(self) -> dict[str, Any]:
        config: dict[str, Any] = {
            "bootstrap.servers": self.servers,
            "security.protocol": self.security_protocol,
        }
        if self.sasl is not None:
            config |= {
                "sasl.mechanism": self.sasl.mechanism,
                "sasl.username": self.sasl.username,
                "sasl.password": self.sasl.password,
            }
        if self.tls is not None:
            config["ssl.ca.location"] = str(self.tls.ca)
            if self.tls.certificate is not None:
                config["ssl.certificate.location"] = str(self.tls.certificate)
                config["ssl.key.location"] = str(self.tls.key)
        return config

    def _consumer(self, **config: Any) -> confluent_kafka.Consumer:
        return confluent_kafka.Consumer(
            {
                **self._server(),
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
                **config,
            }
        )


class _Tail:
    def __init__(self, consumer: confluent_kafka.Consumer) -> None:
        self._consumer = consumer

    def poll(self, seconds: float) -> list[Seen]:
        deadline = time.monotonic() + seconds
        while True:
            left = max(deadline - time.monotonic(), 0)
            message = self._consumer.poll(left)
            if message is not None:
                return _seen([message])
            if not left:
                return []


def _seen(messages: Iterable[confluent_kafka.Message]) -> list[Seen]:
    found = []
    for message in messages:
        error = message.error()
        if error is not None:
            raise confluent_kafka.KafkaException(error)
        headers: Any = tuple(message.headers() or ())
        sent = Sent(message.key(), message.value(), headers, message.timestamp()[1])
        found.append(Seen(message.offset() or 0, sent))
    return found
