"""What clients do with replicated data: our own clients, each on a machine of a world.

Everything they send and read goes into a history (``odradek.testing.anomalies``). A client that
cannot go on is made again, as its operator would do it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, Final

from odradek.client import Consumer, Producer
from odradek.client.consumer.records import AnyRecord, OffsetAndMetadata, RebalanceListener
from odradek.client.errors import KafkaError
from odradek.core.ids import TopicPartition
from odradek.testing.anomalies import Isolation, Outcome, Recorder, Source
from odradek.testing.anomalies.recorder import Recording, Sending
from odradek.testing.simulation import SimNode

if TYPE_CHECKING:
    from tests.simulation.cluster.data_cluster import DataCluster

INPUTS: Final = tuple(TopicPartition("in", number) for number in range(3))
OUTPUTS: Final = tuple(TopicPartition("out", number) for number in range(2))
LOOSE: Final = tuple(TopicPartition("loose", number) for number in range(2))
AGAIN: Final = (TopicPartition("again", 0),)
"""Of a topic that is deleted and made again."""
KEYS: Final = (*INPUTS, *OUTPUTS)
DRAIN_SECONDS_MAX: Final = 60.0

Found = dict[TopicPartition, list[AnyRecord]]


class Worker:
    """A program with one producer, one consumer, or one of each."""

    def __init__(self, cluster: "DataCluster", node: SimNode, name: str) -> None:
        self.cluster = cluster
        self.node = node
        self.name = name
        self.recorder: Recorder = cluster.recorder
        self.random: Random = cluster.world.random(f"worker/{name}")
        self.process = 0
        self._made = 0

    async def run(self) -> None:
        """Work until all is over; after an error that a client does not survive, begin again."""
        while not self.cluster.is_over:
            self.process = self.recorder.new_process()
            try:
                await self.work()
            except KafkaError as error:
                self.cluster.ledger.count(self.name, error)
                self.cluster.say(f"{self.name} begins again: {type(error).__name__} {error}")
                await asyncio.sleep(0.5)

    async def work(self) -> None:
        raise NotImplementedError

    def common(self) -> dict[str, Any]:
        self._made += 1
        return {
            "bootstrap_servers": self.cluster.layout.bootstrap_servers,
            "client_id": self.name,
            "request_timeout_ms": 3_000,
            "random": self.cluster.world.random(f"client/{self.name}/{self._made}"),
            "now_ms": self.node.clock.now_ms,
            "monotonic_ms": self.node.clock.monotonic_ms,
        }

    def producer(self, **settings: Any) -> "Producer":
        return Producer(
            max_block_ms=30_000,
            delivery_timeout_ms=60_000,
            linger_ms=0,
            **self.common(),
            **settings,
        )

    def consumer(self, **settings: Any) -> "Consumer":
        return Consumer(
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            default_api_timeout_ms=10_000,
            **self.common(),
            **settings,
        )

    async def rest(self, seconds: float) -> None:
        await asyncio.sleep(self.random.uniform(0, 2 * seconds))


class Sender(Worker):
    """Sends with acks=all and sequences; several records are on their way at a time."""

    acks = "all"
    keys: Sequence[TopicPartition] = INPUTS
    in_flight_max = 8
    rest_seconds = 0.15

    async def work(self) -> None:
        in_flight: set[asyncio.Task[None]] = set()
        async with self.producer(acks=self.acks) as producer:
            while not self.cluster.is_over:
                for _ in range(self.random.choice((1, 1, 2, 5))):
                    in_flight.add(asyncio.create_task(self._send(producer)))
                    await asyncio.sleep(0)
                await self.rest(self.rest_seconds)
                in_flight = {task for task in in_flight if not task.done()}
                while len(in_flight) >= self.in_flight_max and not self.cluster.is_over:
                    await asyncio.sleep(0.1)
                    in_flight = {task for task in in_flight if not task.done()}
            for task in [*in_flight]:
                await task

    async def _send(self, producer: "Producer") -> None:
        key, value = self.random.choice(self.keys), self.cluster.new_value(self.name)
        recording = self.recorder.operation(self.process)
        sending = recording.sends(key, value)
        try:
            future = await producer.send(key.topic, value.encode(), partition=key.partition)
            sending.acknowledged((await future).offset)
            recording.end(Outcome.OK)
            self.cluster.ledger.count("send", None)
        except KafkaError as error:
            recording.end(Outcome.INFO)
            self.cluster.ledger.count("send", error)


class LooseSender(Sender):
    """Sends where records may go lost: with acks 0 or 1, or to a topic that is deleted."""

    rest_seconds = 0.6

    def __init__(
        self,
        cluster: "DataCluster",
        node: SimNode,
        name: str,
        acks: str,
        keys: Sequence[TopicPartition],
    ) -> None:
        super().__init__(cluster, node, name)
        self.acks = acks
        self.keys = keys

    async def _send(self, producer: "Producer") -> None:
        key, value = self.random.choice(self.keys), self.cluster.new_value(self.name)
        self.cluster.sent_loosely.add(value)
        try:
            future = await producer.send(key.topic, value.encode(), partition=key.partition)
            await future
            self.cluster.ledger.count("loose send", None)
        except KafkaError as error:
            self.cluster.ledger.count("loose send", error)


class Poller(Worker):
    """Reads everything from the start, without a group."""

    def __init__(
        self, cluster: "DataCluster", node: SimNode, name: str, isolation: Isolation
    ) -> None:
        super().__init__(cluster, node, name)
        self.isolation = isolation

    async def work(self) -> None:
        async with self.consumer(isolation_level=self.isolation.value) as consumer:
            consumer.assign(KEYS)
            consumer.seek_to_beginning()
            self.recorder.assigned(self.process, KEYS)
            for key in KEYS:
                self.recorder.sought(self.process, key, 0)
            while not self.cluster.is_over:
                with self.recorder.operation(self.process) as polled:
                    found = await consumer.poll(timeout=1.0)
                    record_polls(self.cluster, polled, found, self.isolation)
                await self.rest(0.2)


class Member(Worker, RebalanceListener):
    """A member of a group that reads, and commits what it has read."""

    def __init__(
        self, cluster: "DataCluster", node: SimNode, name: str, group: str, protocol: str
    ) -> None:
        super().__init__(cluster, node, name)
        self.group = group
        self.protocol = protocol

    async def work(self) -> None:
        settings: dict[str, Any] = {"group_id": self.group, "group_protocol": self.protocol}
        if self.protocol == "classic":
            settings |= {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 500}
        async with self.consumer(**settings, isolation_level="read_committed") as consumer:
            self._consumer = consumer
            consumer.subscribe(["in"], self)
            lives = self.random.uniform(5, 40)
            ends = self.cluster.world.now + lives
            while not self.cluster.is_over and self.cluster.world.now < ends:
                with self.recorder.operation(self.process) as polled:
                    found = await consumer.poll(timeout=0.5)
                    record_polls(self.cluster, polled, found, Isolation.READ_COMMITTED)
                if found and self.random.random() < 0.7:
                    await self._commit(consumer, found)
                if self.random.random() < 0.1:
                    await self._ask(consumer)
                await self.rest(0.1)

    async def _commit(self, consumer: "Consumer", found: Found) -> None:
        ends = {key: OffsetAndMetadata(records[-1].offset + 1) for key, records in found.items()}
        recording = self.recorder.operation(self.process)
        for key, end in ends.items():
            recording.commits_offset(self.group, key, end.offset)
        try:
            await consumer.commit(ends)
            recording.end(Outcome.OK)
            self.cluster.ledger.count(f"commit {self.protocol}", None)
        except KafkaError as error:
            recording.end(Outcome.INFO)
            self.cluster.ledger.count(f"commit {self.protocol}", error)

    async def _ask(self, consumer: "Consumer") -> None:
        recording = self.recorder.operation(self.process)
        try:
            for key, at in (await consumer.committed(INPUTS)).items():
                recording.fetched_offset(self.group, key, None if at is None else at.offset)
            recording.end(Outcome.OK)
        except KafkaError as error:
            recording.end(Outcome.INFO)
            self.cluster.ledger.count("fetch offsets", error)

    def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.recorder.assigned(self.process, partitions, is_subscription=True)
        me = self._consumer.group_metadata()
        for key in partitions:
            self.cluster.on_owned(self.group, me.generation_id, me.member_id, key)

    def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.recorder.assigned(self.process, (), is_subscription=True)


class Transactional(Worker):
    """Writes in transactions: to one or more partitions, committed or aborted."""

    async def work(self) -> None:
        async with self._open() as producer:
            await self._until_done(producer.init_transactions)
            while not self.cluster.is_over:
                recording = self.recorder.transaction(self.process)
                try:
                    await self._transact(producer, recording)
                finally:
                    recording.abandon()
                await self.rest(0.3)

    def _open(self) -> "Producer":
        return self.producer(transactional_id=self.name, transaction_timeout_ms=10_000)

    async def _transact(self, producer: "Producer", recording: Recording) -> None:
        await producer.begin_transaction()
        for _ in range(self.random.randint(1, 4)):
            await self.send(producer, recording, self.random.choice(KEYS))
        await self.end(producer, recording, self.random.random() < 0.8)

    async def send(
        self,
        producer: "Producer",
        recording: Recording,
        key: TopicPartition,
        source: Source | None = None,
    ) -> None:
        value = self.cluster.new_value(self.name)
        sending = recording.sends(key, value, source)
        future = await producer.send(key.topic, value.encode(), partition=key.partition)
        future.add_done_callback(lambda done: _take_offset(sending, done))

    async def end(self, producer: "Producer", recording: Recording, commits: bool) -> bool:
        """Commit, or abort; what becomes of it is in the history."""
        if not commits:
            await self._abort(producer, recording)
            return False
        recording.commits()
        try:
            await self._until_done(producer.commit_transaction)
        except KafkaError as error:
            self.cluster.ledger.count("commit transaction", error)
            await self._abort(producer, recording, Outcome.INFO)
            return False
        recording.end(Outcome.OK)
        self.cluster.ledger.count("commit transaction", None)
        return True

    async def _abort(
        self, producer: "Producer", recording: Recording, outcome: Outcome = Outcome.FAIL
    ) -> None:
        try:
            await self._until_done(producer.abort_transaction)
            self.cluster.ledger.count("abort transaction", None)
        finally:
            recording.end(outcome)

    async def _until_done(self, call: Callable[[], Awaitable[None]]) -> None:
        """Call again what had no answer in time."""
        for _ in range(20):
            try:
                return await call()
            except KafkaError as error:
                if type(error).__name__ != "KafkaTimeoutError":
                    raise
        return await call()


class Copier(Transactional):
    """Reads the inputs, and writes what it makes of them to the outputs: exactly once."""

    group = "copiers"

    async def work(self) -> None:
        settings = {"group_id": self.group, "isolation_level": "read_committed"}
        async with self._open() as producer, self.consumer(**settings) as consumer:
            await self._until_done(producer.init_transactions)
            consumer.assign(INPUTS)
            await self._go_back(consumer)
            while not self.cluster.is_over:
                recording = self.recorder.transaction(self.process)
                try:
                    found = await consumer.poll(timeout=0.5)
                    record_polls(self.cluster, recording, found, Isolation.READ_COMMITTED)
                    if not found:
                        recording.end(Outcome.FAIL)
                    elif not await self._copy(producer, consumer, recording, found):
                        await self._go_back(consumer)
                finally:
                    recording.abandon()
                await self.rest(0.2)

    async def _copy(
        self, producer: "Producer", consumer: "Consumer", recording: Recording, found: Found
    ) -> bool:
        ends = {key: OffsetAndMetadata(records[-1].offset + 1) for key, records in found.items()}
        await producer.begin_transaction()
        for key, records in found.items():
            for record in records:
                source = Source(self.group, key, record.offset)
                await self.send(producer, recording, self.random.choice(OUTPUTS), source)
        for key, end in ends.items():
            recording.commits_offset(self.group, key, end.offset)
        try:
            await producer.send_offsets_to_transaction(ends, consumer.group_metadata())
        except KafkaError as error:
            self.cluster.ledger.count("send offsets", error)
            await self._abort(producer, recording)
            return False
        return await self.end(producer, recording, self.random.random() < 0.85)

    async def _go_back(self, consumer: "Consumer") -> None:
        """Start from what is committed."""

        async def ask() -> None:
            with self.recorder.operation(self.process) as asked:
                committed = await consumer.committed(INPUTS)
                for key, at in committed.items():
                    asked.fetched_offset(self.group, key, None if at is None else at.offset)
            for key, at in committed.items():
                offset = 0 if at is None else at.offset
                consumer.seek(key, offset)
                self.recorder.sought(self.process, key, offset)

        await self._until_done(ask)


def _take_offset(sending: Sending, done: "asyncio.Future[Any]") -> None:
    if not done.cancelled() and done.exception() is None:
        sending.acknowledged(done.result().offset)


def record_polls(
    cluster: "DataCluster", recording: Recording, found: Found, isolation: Isolation
) -> None:
    for key, records in found.items():
        cluster.replica_oracle.check_read(key, records[-1].offset)
        recording.polled(
            key, [(each.offset, (each.value or b"").decode()) for each in records], isolation
        )


async def drain(cluster: "DataCluster", node: SimNode) -> None:
    """Read everything, from the start to where the logs end, with read_committed."""
    worker = Worker(cluster, node, "drain")
    recorder, process = cluster.recorder, cluster.recorder.new_process()
    for key in KEYS:
        recorder.sought(process, key, 0)
    async with worker.consumer(isolation_level="read_committed") as consumer:
        consumer.assign((*KEYS, *LOOSE))
        consumer.seek_to_beginning()
        ends = await consumer.end_offsets((*KEYS, *LOOSE))
        behind = dict(ends)
        while behind:
            with recorder.operation(process) as polled:
                found = await consumer.poll(timeout=0.5)
                cluster.on_loose_read([each for key in LOOSE for each in found.pop(key, [])])
                record_polls(cluster, polled, found, Isolation.READ_COMMITTED)
            for key in [*behind]:
                if await consumer.position(key) >= ends[key]:
                    del behind[key]
