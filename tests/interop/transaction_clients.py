"""Transactional producers of other people's clients behind one blocking interface.

Nothing here imports odradek: a fault of ours cannot hide in the measuring instrument.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.errors
from confluent_kafka import IsolationLevel
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from kafka.structs import OffsetAndMetadata

from tests.interop.clients import DEADLINE_SECONDS, ProduceError
from tests.interop.group_members import wait_until
from tests.interop.programs.program import Program

POLL_RECORDS = 10
POLL_MS = 200
SILENT_POLLS_MAX = 40
"""Of kafka-python, which sends a heartbeat every 3 s."""
COPY_SECONDS_MAX = 180
TIMEOUT_MS_USUAL = 600_000
"""Of transactions: more than a test takes, however busy the machine."""
PRODUCER_FENCED = 90
FENCED_CODES = frozenset({47, PRODUCER_FENCED, -144})
"""INVALID_PRODUCER_EPOCH, PRODUCER_FENCED, and what librdkafka calls both."""
JAVA_SOURCE = Path(__file__).with_name("Transactions.java")
Place = tuple[str, int]


class RefusedError(Exception):
    """The client gave up; `code` is Kafka's error code, negative where the client has its own."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class TransactionalClient(ABC):
    """One producer with a transactional id; who had the id before is fenced when it is made."""

    name: str
    group_protocol = "classic"
    """The protocol of the group that `copy` reads as; not every client knows another."""

    def __init__(
        self, servers: str, transactional_id: str, timeout_ms: int = TIMEOUT_MS_USUAL
    ) -> None:
        self.servers = servers
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms

    @abstractmethod
    def open(self) -> None: ...

    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def send(self, topic: str, partition: int, values: Iterable[bytes]) -> None:
        """Send all and wait for all."""

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def abort(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def copy(self, source: str, target: str, group_id: str, count: int, *, commit: bool) -> None:
        """Consume, transform and produce `count` records, each poll in a transaction of its own."""

    @abstractmethod
    def read(self, topic: str, *, committed: bool) -> list[bytes]:
        """Read partition 0 of a topic to where a reader of this kind finds its end."""


@contextmanager
def opened(client: TransactionalClient) -> Iterator[TransactionalClient]:
    client.open()
    try:
        yield client
    finally:
        client.close()


def _deadline() -> float:
    return time.monotonic() + DEADLINE_SECONDS


def wait_until_settled(servers: str, topic: str, partitions: int = 1) -> None:
    """Wait until no transaction is open in a topic: readers of both kinds find the same ends.

    A producer is told that its transaction has ended when that is decided; Kafka writes the markers
    that readers wait for afterwards.
    """
    admin = AdminClient({"bootstrap.servers": servers})

    def ends(level: IsolationLevel) -> list[int]:
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        places = [confluent_kafka.TopicPartition(topic, each) for each in range(partitions)]
        asked = admin.list_offsets(dict.fromkeys(places, latest), isolation_level=level)
        return [int(asked[each].result(DEADLINE_SECONDS).offset) for each in places]

    def are_equal() -> bool:
        return ends(IsolationLevel.READ_COMMITTED) == ends(IsolationLevel.READ_UNCOMMITTED)

    wait_until(are_equal, lambda: f"a transaction is open in {topic}")


class ConfluentTransactions(TransactionalClient):
    name = "confluent"

    def open(self) -> None:
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self.servers,
                "transactional.id": self.transactional_id,
                "transaction.timeout.ms": self.timeout_ms,
            }
        )
        with _confluent_errors():
            self._producer.init_transactions(DEADLINE_SECONDS)

    def begin(self) -> None:
        with _confluent_errors():
            self._producer.begin_transaction()

    def send(self, topic: str, partition: int, values: Iterable[bytes]) -> None:
        errors: list[Any] = []

        def delivered(error: Any, _message: Any) -> None:
            if error is not None:
                errors.append(error)

        with _confluent_errors():
            for value in values:
                self._producer.produce(topic, value, partition=partition, on_delivery=delivered)
            self._producer.flush(DEADLINE_SECONDS)
        if errors:
            raise RefusedError(errors[0].code(), str(errors[0]))

    def commit(self) -> None:
        with _confluent_errors():
            self._producer.commit_transaction(DEADLINE_SECONDS)

    def abort(self) -> None:
        with _confluent_errors():
            self._producer.abort_transaction(DEADLINE_SECONDS)

    def close(self) -> None:
        del self._producer

    def copy(self, source: str, target: str, group_id: str, count: int, *, commit: bool) -> None:
        group = {"group.id": group_id, "group.protocol": self.group_protocol}
        consumer = self._consumer(committed=True, **group)
        consumer.subscribe([source])
        try:
            deadline = _deadline()
            while count > 0:
                assert time.monotonic() < deadline
                records = consumer.consume(min(POLL_RECORDS, count), 0.2)
                if records:
                    self._copy(consumer, records, target, commit=commit)
                count -= len(records)
        finally:
            consumer.close()

    def _copy(self, consumer: Any, records: list[Any], target: str, *, commit: bool) -> None:
        self.begin()
        for partition in {each.partition() for each in records}:
            values = [each.value() for each in records if each.partition() == partition]
            self.send(target, partition, values)
        with _confluent_errors():
            positions = consumer.position(consumer.assignment())
            metadata = consumer.consumer_group_metadata()
            self._producer.send_offsets_to_transaction(positions, metadata, DEADLINE_SECONDS)
        self.commit() if commit else self.abort()

    def read(self, topic: str, *, committed: bool) -> list[bytes]:
        consumer = self._consumer(committed=committed, **{"enable.partition.eof": True})
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        values: list[bytes] = []
        try:
            deadline = _deadline()
            while time.monotonic() < deadline:
                for message in consumer.consume(1000, 0.2):
                    error = message.error()
                    if error is None:
                        values.append(message.value() or b"")
                        continue
                    assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
                    return values
            raise AssertionError("it has no end")
        finally:
            consumer.close()

    def _consumer(self, *, committed: bool, **settings: Any) -> Any:
        isolation = "read_committed" if committed else "read_uncommitted"
        return confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "nobody",
                "isolation.level": isolation,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **settings,
            }
        )


@contextmanager
def _confluent_errors() -> Iterator[None]:
    try:
        yield
    except confluent_kafka.KafkaException as refused:
        error = refused.args[0]
        raise RefusedError(error.code(), str(error)) from refused


class KafkaPythonTransactions(TransactionalClient):
    name = "kafka-python"

    def open(self) -> None:
        with _kafka_python_errors():
            self._producer: Any = kafka.KafkaProducer(
                bootstrap_servers=self.servers,
                transactional_id=self.transactional_id,
                transaction_timeout_ms=self.timeout_ms,
            )
            self._producer.init_transactions()

    def begin(self) -> None:
        with _kafka_python_errors():
            self._producer.begin_transaction()

    def send(self, topic: str, partition: int, values: Iterable[bytes]) -> None:
        with _kafka_python_errors():
            futures = [self._producer.send(topic, each, partition=partition) for each in values]
            self._producer.flush(DEADLINE_SECONDS)
            for future in futures:
                future.get(DEADLINE_SECONDS)

    def commit(self) -> None:
        with _kafka_python_errors():
            self._producer.commit_transaction()

    def abort(self) -> None:
        with _kafka_python_errors():
            self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(timeout=DEADLINE_SECONDS)

    def copy(self, source: str, target: str, group_id: str, count: int, *, commit: bool) -> None:
        deadline = time.monotonic() + COPY_SECONDS_MAX
        while count > 0:
            assert time.monotonic() < deadline
            consumer = self._consumer(committed=True, group_id=group_id)
            consumer.subscribe([source])
            try:
                for polled in _poll_until_silent(consumer, count):
                    self._copy(consumer, polled, target, commit=commit)
                    count -= sum(map(len, polled.values()))
            finally:
                consumer.close()

    def _copy(
        self, consumer: Any, polled: Mapping[Any, list[Any]], target: str, *, commit: bool
    ) -> None:
        self.begin()
        for place, records in polled.items():
            self.send(target, place.partition, [each.value for each in records])
        positions = {each: OffsetAndMetadata(consumer.position(each), "", -1) for each in polled}
        with _kafka_python_errors():
            self._producer.send_offsets_to_transaction(positions, consumer.group_metadata())
        self.commit() if commit else self.abort()

    def read(self, topic: str, *, committed: bool) -> list[bytes]:
        place = kafka.TopicPartition(topic, 0)
        consumer = self._consumer(committed=committed)
        consumer.assign([place])
        values: list[bytes] = []
        try:
            deadline = _deadline()
            end = consumer.end_offsets([place])[place]
            while consumer.position(place) < end:
                assert time.monotonic() < deadline, "it has no end"
                for records in consumer.poll(200).values():
                    values += [each.value for each in records]
            return values
        finally:
            consumer.close()

    def _consumer(self, *, committed: bool, **settings: Any) -> Any:
        return kafka.KafkaConsumer(
            bootstrap_servers=self.servers,
            isolation_level="read_committed" if committed else "read_uncommitted",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            **settings,
        )


def _poll_until_silent(consumer: Any, count: int) -> Iterator[Mapping[Any, list[Any]]]:
    """Give so many records, or as many as come before the consumer hangs while it joins its group.

    Up to a fifth of them do, on a busy machine, with a real Kafka too (see
    ``group_member_program.py``): whoever uses this client begins again.
    """
    heartbeat = consumer._coordinator.heartbeat
    last_send, silent_polls = heartbeat.last_send, 0
    while count > 0 and silent_polls <= SILENT_POLLS_MAX:
        polled = consumer.poll(POLL_MS, max_records=min(POLL_RECORDS, count))
        is_silent = not polled and heartbeat.last_send == last_send
        last_send, silent_polls = heartbeat.last_send, silent_polls + 1 if is_silent else 0
        if polled:
            count -= sum(map(len, polled.values()))
            yield polled


@contextmanager
def _kafka_python_errors() -> Iterator[None]:
    try:
        yield
    except kafka.errors.KafkaError as refused:
        raise RefusedError(getattr(refused, "errno", -1), repr(refused)) from refused


class AioKafkaTransactions(TransactionalClient):
    """On an event loop of its own, which runs while something is asked of it."""

    name = "aiokafka"

    def open(self) -> None:
        self._runner = asyncio.Runner()
        self._run(self._open())

    async def _open(self) -> None:
        self._producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=self.servers,
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.timeout_ms,
        )
        await self._producer.start()

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, topic: str, partition: int, values: Iterable[bytes]) -> None:
        self._run(self._send(topic, partition, values))

    async def _send(self, topic: str, partition: int, values: Iterable[bytes]) -> None:
        futures = [await self._producer.send(topic, each, partition=partition) for each in values]
        await asyncio.wait_for(asyncio.gather(*futures), DEADLINE_SECONDS)

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        try:
            self._run(self._producer.stop())
        finally:
            self._runner.close()

    def copy(self, source: str, target: str, group_id: str, count: int, *, commit: bool) -> None:
        async def run() -> None:
            left, deadline = count, _deadline()
            consumer = self._consumer(committed=True, group_id=group_id)
            consumer.subscribe([source])
            await consumer.start()
            try:
                while left > 0:
                    assert time.monotonic() < deadline
                    most = min(POLL_RECORDS, left)
                    polled = await consumer.getmany(timeout_ms=200, max_records=most)
                    if polled:
                        await self._copy(consumer, polled, target, group_id, commit=commit)
                    left -= sum(map(len, polled.values()))
            finally:
                await consumer.stop()

        self._run(run())

    async def _copy(
        self,
        consumer: Any,
        polled: Mapping[Any, list[Any]],
        target: str,
        group_id: str,
        *,
        commit: bool,
    ) -> None:
        await self._producer.begin_transaction()
        for place, records in polled.items():
            await self._send(target, place.partition, [each.value for each in records])
        positions = {each: await consumer.position(each) for each in polled}
        await self._producer.send_offsets_to_transaction(positions, group_id)
        await (
            self._producer.commit_transaction() if commit else self._producer.abort_transaction()
        )

    def read(self, topic: str, *, committed: bool) -> list[bytes]:
        values: list[bytes] = self._run(self._read(topic, committed))
        return values

    async def _read(self, topic: str, committed: bool) -> list[bytes]:
        place = aiokafka.TopicPartition(topic, 0)
        values: list[bytes] = []
        consumer = self._consumer(committed=committed)
        await consumer.start()
        try:
            consumer.assign([place])
            deadline = _deadline()
            end = (await consumer.end_offsets([place]))[place]
            while await consumer.position(place) < end:
                assert time.monotonic() < deadline, "it has no end"
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    values += [each.value for each in records]
            return values
        finally:
            await consumer.stop()

    def _consumer(self, *, committed: bool, **settings: Any) -> Any:
        return aiokafka.AIOKafkaConsumer(
            bootstrap_servers=self.servers,
            isolation_level="read_committed" if committed else "read_uncommitted",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            **settings,
        )

    def _run(self, what: Any) -> Any:
        try:
            return self._runner.run(what)
        except aiokafka.errors.ProducerFenced as refused:  # which has no code
            raise RefusedError(PRODUCER_FENCED, repr(refused)) from refused
        except aiokafka.errors.KafkaError as refused:
            raise RefusedError(getattr(refused, "errno", -1), repr(refused)) from refused


class JavaTransactions(TransactionalClient):
    """Apache Kafka's own, in a program that several of these may share."""

    name = "java"
    _made = 0

    def __init__(
        self,
        servers: str,
        transactional_id: str,
        timeout_ms: int = TIMEOUT_MS_USUAL,
        *,
        program: Program,
    ) -> None:
        super().__init__(servers, transactional_id, timeout_ms)
        JavaTransactions._made += 1
        self._program = program
        self._producer = f"{transactional_id}#{JavaTransactions._made}"

    def open(self) -> None:
        self._ask(
            "open",
            servers=self.servers,
            transactional_id=self.transactional_id,
            timeout_ms=self.timeout_ms,
        )

    def begin(self) -> None:
        self._ask("begin")

    def send(self, topic: str, partition: int, values: Iterable[bytes]) -> None:
        self._ask("send", topic=topic, partition=partition, values=[v.decode() for v in values])

    def commit(self) -> None:
        self._ask("commit")

    def abort(self) -> None:
        self._ask("abort")

    def close(self) -> None:
        self._ask("close")

    def copy(self, source: str, target: str, group_id: str, count: int, *, commit: bool) -> None:
        self._ask(
            "copy",
            servers=self.servers,
            source=source,
            target=target,
            group=group_id,
            protocol=self.group_protocol,
            count=count,
            commit=commit,
        )

    def read(self, topic: str, *, committed: bool) -> list[bytes]:
        answer = self._ask("read", servers=self.servers, topic=topic, committed=committed)
        return [each.encode() for each in answer["values"]]

    def _ask(self, do: str, **fields: Any) -> Any:
        try:
            return self._program.ask(do, producer=self._producer, **fields)
        except ProduceError as refused:
            raise RefusedError(refused.code, str(refused)) from refused
