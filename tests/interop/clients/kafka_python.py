"""kafka-python."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

import kafka
from kafka import TopicPartition
from kafka.admin import NewPartitions, NewTopic
from kafka.errors import KafkaError

from tests.interop.clients import DEADLINE_SECONDS, Client, Place, ProduceError, Seen, Sent, Tail


class KafkaPython(Client):
    name = "kafka-python"

    def create_topic(
        self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        with closing(self._admin()) as admin:
            admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=configs)])

    def delete_topic(self, topic: str) -> None:
        with closing(self._admin()) as admin:
            admin.delete_topics([topic])

    def grow_topic(self, topic: str, partitions: int) -> None:
        with closing(self._admin()) as admin:
            admin.create_partitions({topic: NewPartitions(partitions)})

    def delete_records(self, topic: str, before_offset: int) -> int:
        with closing(self._admin()) as admin:
            partition = TopicPartition(topic, 0)
            found = admin.delete_records({partition: before_offset})[partition]
            return int(found["low_watermark"])

    def partition_counts(self) -> dict[str, int]:
        with closing(self._admin()) as admin:
            return {each["name"]: len(each["partitions"]) for each in admin.describe_topics()}

    def topic_error(self, topic: str) -> int:
        with closing(self._admin()) as admin:
            return int(admin.describe_topics([topic])[0]["error_code"])

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
        producer = kafka.KafkaProducer(
            **self._server(),
            compression_type=None if codec == "none" else codec,
            acks=acks if acks == "all" else int(acks),
            enable_idempotence=idempotent,
            linger_ms=20,
            max_request_size=10_000_000,
        )
        with closing(producer):
            futures = [
                producer.send(
                    topic,
                    record.value,
                    record.key,
                    list(record.headers),
                    partition=partition,
                    timestamp_ms=record.timestamp,
                )
                for record in records
            ]
            try:
                done = [future.get(DEADLINE_SECONDS) for future in futures]
            except KafkaError as error:
                raise ProduceError(error.errno, str(error)) from error
        return [Place(each.partition, each.offset) for each in done]

    def consume(self, topic: str, count: int, *, partition: int = 0, start: int = 0) -> list[Seen]:
        where = TopicPartition(topic, partition)
        with closing(self._consumer()) as consumer:
            consumer.assign([where])
            consumer.seek(where, start)
            tail, found = _Tail(consumer), list[Seen]()
            deadline = time.monotonic() + DEADLINE_SECONDS
            while len(found) < count and time.monotonic() < deadline:
                found += tail.poll(1)
            return found[:count]

    @contextmanager
    def tail(self, topic: str, *, min_bytes: int, wait_ms_max: int) -> Iterator[Tail]:
        where = TopicPartition(topic, 0)
        options = {"fetch_min_bytes": min_bytes, "fetch_max_wait_ms": wait_ms_max}
        with closing(self._consumer(**options)) as consumer:
            consumer.assign([where])
            consumer.seek_to_end(where)
            consumer.position(where)  # the end is looked up when first needed: now
            yield _Tail(consumer)

    def watermarks(self, topic: str, partition: int = 0) -> tuple[int, int]:
        where = TopicPartition(topic, partition)
        with closing(self._consumer()) as consumer:
            low = consumer.beginning_offsets([where])[where]
            return low, consumer.end_offsets([where])[where]

    def offsets_at(self, topic: str, timestamps: Sequence[int]) -> list[int | None]:
        where = TopicPartition(topic, 0)
        with closing(self._consumer()) as consumer:
            found = [consumer.offsets_for_times({where: each})[where] for each in timestamps]
            return [None if each is None else each.offset for each in found]

    def _admin(self) -> Any:
        return kafka.KafkaAdminClient(**self._server())

    def _server(self) -> dict[str, Any]:
        config: dict[str, Any] = {
            "bootstrap_servers": self.servers,
            "security_protocol": self.security_protocol,
        }
        if self.sasl is not None:
            config |= {
                "sasl_mechanism": self.sasl.mechanism,
                "sasl_plain_username": self.sasl.username,
                "sasl_plain_password": self.sasl.password,
            }
        if self.tls is not None:
            config["ssl_cafile"] = str(self.tls.ca)
            if self.tls.certificate is not None:
                config["ssl_certfile"] = str(self.tls.certificate)
                config["ssl_keyfile"] = str(self.tls.key)
        return config

    def _consumer(self, **options: Any) -> Any:
        return kafka.KafkaConsumer(
            **self._server(), group_id=None, auto_offset_reset="none", **options
        )


class _Tail:
    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    def poll(self, seconds: float) -> list[Seen]:
        polled = self._consumer.poll(timeout_ms=int(seconds * 1000))
        return [
            Seen(each.offset, Sent(each.key, each.value, tuple(each.headers), each.timestamp))
            for messages in polled.values()
            for each in messages
        ]
