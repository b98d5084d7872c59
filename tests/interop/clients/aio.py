"""aiokafka, each call on an event loop of its own."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import aiokafka
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.errors import KafkaError, for_code

from tests.interop.clients import DEADLINE_SECONDS, Client, Place, ProduceError, Seen, Sent, Tail


class AioKafka(Client):
    name = "aiokafka"

    def create_topic(
        self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        async def run() -> None:
            new = NewTopic(topic, partitions, 1, topic_configs=dict(configs or {}))
            async with self._admin() as admin:
                _check((await admin.create_topics([new])).topic_errors)

        asyncio.run(run())

    def delete_topic(self, topic: str) -> None:
        async def run() -> None:
            async with self._admin() as admin:
                _check((await admin.delete_topics([topic])).topic_error_codes)

        asyncio.run(run())

    def grow_topic(self, topic: str, partitions: int) -> None:
        async def run() -> None:
            async with self._admin() as admin:
                new = {topic: NewPartitions(partitions)}
                _check((await admin.create_partitions(new)).topic_errors)

        asyncio.run(run())

    def delete_records(self, topic: str, before_offset: int) -> int:
        async def run() -> int:
            partition = TopicPartition(topic, 0)
            async with self._admin() as admin:
                found = await admin.delete_records({partition: RecordsToDelete(before_offset)})
                return int(found[partition])

        return asyncio.run(run())

    def partition_counts(self) -> dict[str, int]:
        async def run() -> dict[str, int]:
            async with self._admin() as admin:
                found = await admin.describe_topics()
                return {each["topic"]: len(each["partitions"]) for each in found}

        return asyncio.run(run())

    def topic_error(self, topic: str) -> int:
        async def run() -> int:
            async with self._admin() as admin:
                return int((await admin.describe_topics([topic]))[0]["error_code"])

        return asyncio.run(run())

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
        async def run() -> list[Place]:
            producer = aiokafka.AIOKafkaProducer(
                **self._server(),
                compression_type=None if codec == "none" else codec,
                acks=acks if acks == "all" else int(acks),
                enable_idempotence=idempotent,
                linger_ms=20,
                max_request_size=10_000_000,
            )
            async with producer:
                return await _send_all(producer, topic, records, partition, is_acked=acks != "0")

        try:
            return asyncio.run(run())
        except KafkaError as error:
            raise ProduceError(error.errno, str(error)) from error

    def consume(self, topic: str, count: int, *, partition: int = 0, start: int = 0) -> list[Seen]:
        async def run() -> list[Seen]:
            where = TopicPartition(topic, partition)
            async with self._consumer() as consumer:
                consumer.assign([where])
                consumer.seek(where, start)
                found: list[Seen] = []
                deadline = time.monotonic() + DEADLINE_SECONDS
                while len(found) < count and time.monotonic() < deadline:
                    found += _seen(await consumer.getmany(timeout_ms=1000))
                return found[:count]

        return asyncio.run(run())

    @contextmanager
    def tail(self, topic: str, *, min_bytes: int, wait_ms_max: int) -> Iterator[Tail]:
        where = TopicPartition(topic, 0)
        with asyncio.Runner() as runner:
            consumer = runner.run(self._open_tail(where, min_bytes, wait_ms_max))
            try:
                yield _Tail(runner, consumer)
            finally:
                runner.run(consumer.stop())

    async def _open_tail(self, where: TopicPartition, min_bytes: int, wait_ms_max: int) -> Any:
        consumer = self._new_consumer(fetch_min_bytes=min_bytes, fetch_max_wait_ms=wait_ms_max)
        await consumer.start()
        consumer.assign([where])
        await consumer.seek_to_end(where)
        return consumer

    def watermarks(self, topic: str, partition: int = 0) -> tuple[int, int]:
        async def run() -> tuple[int, int]:
            where = TopicPartition(topic, partition)
            async with self._consumer() as consumer:
                low = (await consumer.beginning_offsets([where]))[where]
                return low, (await consumer.end_offsets([where]))[where]

        return asyncio.run(run())

    def offsets_at(self, topic: str, timestamps: Sequence[int]) -> list[int | None]:
        async def run() -> list[int | None]:
            where = TopicPartition(topic, 0)
            async with self._consumer() as consumer:
                found = [
                    (await consumer.offsets_for_times({where: each}))[where] for each in timestamps
                ]
                return [None if each is None else each.offset for each in found]

        return asyncio.run(run())

    @asynccontextmanager
    async def _admin(self) -> AsyncIterator[Any]:
        admin = AIOKafkaAdminClient(**self._server())
        await admin.start()
        try:
            yield admin
        finally:
            await admin.close()

    def _new_consumer(self, **options: Any) -> Any:
        return aiokafka.AIOKafkaConsumer(**self._server(), auto_offset_reset="none", **options)

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
            context = ssl.create_default_context(cafile=str(self.tls.ca))
            if self.tls.certificate is not None:
                context.load_cert_chain(self.tls.certificate, self.tls.key)
            config["ssl_context"] = context
        return config

    @asynccontextmanager
    async def _consumer(self) -> AsyncIterator[Any]:
        consumer = self._new_consumer()
        await consumer.start()
        try:
            yield consumer
        finally:
            await consumer.stop()


class _Tail:
    def __init__(self, runner: asyncio.Runner, consumer: Any) -> None:
        self._runner = runner
        self._consumer = consumer

    def poll(self, seconds: float) -> list[Seen]:
        return _seen(self._runner.run(self._consumer.getmany(timeout_ms=int(seconds * 1000))))


async def _send_all(
    producer: Any, topic: str, records: Iterable[Sent], partition: int | None, *, is_acked: bool
) -> list[Place]:
    futures = [
        await producer.send(
            topic,
            record.value,
            record.key,
            partition=partition,
            timestamp_ms=record.timestamp,
            headers=list(record.headers),
        )
        for record in records
    ]
    done = await asyncio.wait_for(asyncio.gather(*futures), DEADLINE_SECONDS)
    # Without acknowledgement aiokafka gives None.
    return [Place(each.partition, each.offset) for each in done] if is_acked else []


def _seen(polled: Mapping[TopicPartition, Sequence[Any]]) -> list[Seen]:
    return [
        Seen(each.offset, Sent(each.key, each.value, tuple(each.headers), each.timestamp))
        for messages in polled.values()
        for each in messages
    ]


def _check(errors: Iterable[Sequence[Any]]) -> None:
    for _, code, *message in errors:
        if code:
            raise for_code(code)(*message)
