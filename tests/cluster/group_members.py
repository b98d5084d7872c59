"""Members of consumer groups that go on while a cluster is disturbed, and what they saw.

Each commits what it has read after every poll, and waits for that. A commit that fails is not
tried again: the next one has all that the failed one had.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Protocol, Self

import confluent_kafka

from odradek.client import BlockingConsumer
from odradek.client.consumer.records import OffsetAndMetadata
from odradek.client.errors import KafkaError
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from odradek.protocol.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek.protocol.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tests.broker_connection import BrokerConnection
from tests.cluster.processes import Cluster

POLL_SECONDS = 0.2
BATCH_MAX = 100
JOIN_SECONDS_MAX = 120
ASK_SECONDS_MAX = 10
COMMIT_VERSION = FETCH_VERSION = 9
PROBE_PAUSE_SECONDS = 0.005

Record = tuple[int, int, bytes]
"""Partition, offset, value."""


class GroupClient(Protocol):
    """What a member needs of a client; ``commit`` raises if it is not acknowledged."""

    def poll(self) -> list[Record]: ...

    def commit(self, offsets: Mapping[int, int]) -> None: ...

    def committed(self, partitions: Iterable[int]) -> dict[int, int | None]: ...

    def assignment(self) -> set[int]: ...

    def close(self) -> None: ...


class OdradekClient:
    def __init__(self, servers: str, group: str, protocol: str, topic: str) -> None:
        self._topic = topic
        self._consumer = BlockingConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=group,
            group_protocol="consumer" if protocol == "consumer" else "classic",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",  # librdkafka's default
        )
        self._consumer.__enter__()

    def poll(self) -> list[Record]:
        return [
            (record.partition, record.offset, bytes(record.value or b""))
            for records in self._consumer.poll(POLL_SECONDS).values()
            for record in records
        ]

    def commit(self, offsets: Mapping[int, int]) -> None:
        self._consumer.commit(
            {
                TopicPartition(self._topic, number): OffsetAndMetadata(offset)
                for number, offset in offsets.items()
            }
        )

    def committed(self, partitions: Iterable[int]) -> dict[int, int | None]:
        asked = [TopicPartition(self._topic, number) for number in partitions]
        found = self._consumer.committed(asked)
        return {at.partition: None if each is None else each.offset for at, each in found.items()}

    def assignment(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def close(self) -> None:
        self._consumer.close()


class ConfluentClient:
    def __init__(self, servers: str, group: str, protocol: str, topic: str) -> None:
        self._topic = topic
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        self._consumer.subscribe([topic])

    def poll(self) -> list[Record]:
        messages = self._consumer.consume(BATCH_MAX, POLL_SECONDS)
        return [
            (each.partition() or 0, each.offset() or 0, bytes(each.value() or b""))
            for each in messages
            if each.error() is None  # others are told about what it tries again by itself
        ]

    def commit(self, offsets: Mapping[int, int]) -> None:
        places = [
            confluent_kafka.TopicPartition(self._topic, number, offset)
            for number, offset in offsets.items()
        ]
        for each in self._consumer.commit(offsets=places, asynchronous=False) or ():
            if each.error is not None:
                raise confluent_kafka.KafkaException(each.error)

    def committed(self, partitions: Iterable[int]) -> dict[int, int | None]:
        asked = [confluent_kafka.TopicPartition(self._topic, number) for number in partitions]
        found: dict[int, int | None] = {}
        for each in self._consumer.committed(asked, ASK_SECONDS_MAX):
            if each.error is not None:
                raise confluent_kafka.KafkaException(each.error)
            found[each.partition] = each.offset if each.offset >= 0 else None
        return found

    def assignment(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def close(self) -> None:
        self._consumer.close()


class Member:
    """Reads and commits on a thread of its own until it is closed."""

    def __init__(self, make: Callable[[], GroupClient], name: str) -> None:
        self.name = name
        self.read: list[Record] = []
        self.acknowledged: dict[int, list[int]] = {}
        """By partition, the offsets whose commits were answered, in their order."""
        self.refused = 0
        self.owned: set[int] = set()
        self.failure: BaseException | None = None
        self._make = make
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._is_ending.set()

    def join(self) -> None:
        self._thread.join(JOIN_SECONDS_MAX)
        assert not self._thread.is_alive(), f"{self.name} hangs"

    def _run(self) -> None:
        try:
            client = self._make()
            try:
                while not self._is_ending.is_set():
                    self._turn(client)
            finally:
                client.close()
        except BaseException as error:  # whatever it is, the test is to see it
            self.failure = error

    def _turn(self, client: GroupClient) -> None:
        records = client.poll()
        self.owned = client.assignment()
        if not records:
            return
        self.read.extend(records)
        offsets = {number: offset + 1 for number, offset, _ in records}
        try:
            client.commit(offsets)
        except (KafkaError, TimeoutError, confluent_kafka.KafkaException):
            self.refused += 1
            return
        for number, offset in offsets.items():
            self.acknowledged.setdefault(number, []).append(offset)


class Group:
    """Two members; a context manager."""

    def __init__(
        self,
        name: str,
        make: Callable[[str, str, str, str], GroupClient],
        servers: str,
        protocol: str,
        topic: str,
    ) -> None:
        self.name = name
        self.members = [
            Member(lambda: make(servers, name, protocol, topic), f"{name}-{number}")
            for number in range(2)
        ]

    def __enter__(self) -> Self:
        for member in self.members:
            member.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for member in self.members:
            member.end()
        for member in self.members:
            member.join()

    def owners(self) -> list[tuple[str, int]]:
        """Return who owns what, by partition."""
        self.check()
        owned = [(each.name, number) for each in self.members for number in each.owned]
        return sorted(owned, key=lambda each: each[1])

    def read(self) -> list[Record]:
        self.check()
        return [record for member in self.members for record in list(member.read)]

    def acknowledged(self) -> dict[int, int]:
        """Return the highest offset by partition whose commit was answered."""
        self.check()
        highest: dict[int, int] = {}
        for member in self.members:
            for number, offsets in list(member.acknowledged.items()):
                highest[number] = max(highest.get(number, -1), *offsets)
        return highest

    def check(self) -> None:
        for member in self.members:
            if member.failure is not None:
                raise AssertionError(f"{member.name} ended") from member.failure


class Probe:
    """Commits an offset every few milliseconds in single requests, to see how long it cannot."""

    GROUP = "probe"

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._is_ending = threading.Event()
        self._turn = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._connection: BrokerConnection | None = None
        self.acknowledged = 0
        self.gap_seconds = 0.0
        """The longest time from one acknowledged commit to the next."""
        self._answered = 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_ending.set()
        self._thread.join(JOIN_SECONDS_MAX)
        assert not self._thread.is_alive(), "the probe hangs"
        self._hang_up()

    def reset(self) -> None:
        self.gap_seconds, self._answered = 0.0, time.monotonic()

    @contextmanager
    def paused(self) -> Iterator[int]:
        """Commit nothing meanwhile; the gap is measured from the beginning of the pause."""
        with self._turn:
            self.reset()
            yield self.acknowledged

    def _run(self) -> None:
        number = 0
        while not self._is_ending.wait(PROBE_PAUSE_SECONDS):
            number += 1
            with self._turn:
                self._commit(number)

    def _commit(self, number: int) -> None:
        try:
            connection = self._connected()
            if connection is None or commit_offset(connection, self._topic, number):
                self._hang_up()
                return
        except (OSError, ValueError):
            self._hang_up()
            return
        now = time.monotonic()
        if self._answered:
            self.gap_seconds = max(self.gap_seconds, now - self._answered)
        self._answered = now
        self.acknowledged = number

    def _connected(self) -> BrokerConnection | None:
        if self._connection is None:
            node_id = coordinator_of(self._cluster, self.GROUP)
            if node_id is not None:
                self._connection = BrokerConnection(self._cluster.nodes[node_id].port)
        return self._connection

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def commit_offset(connection: BrokerConnection, topic: str, offset: int) -> int:
    """Commit once as nobody's member; returns the error code."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    request = OffsetCommitRequest(
        group_id=Probe.GROUP,
        generation_id_or_member_epoch=-1,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )
    answer = connection.ask(request, OffsetCommitResponse, COMMIT_VERSION)
    return answer.topics[0].partitions[0].error_code


def coordinator_of(cluster: Cluster, group: str) -> int | None:
    """Ask the first broker that answers; None while it knows of no coordinator."""
    request = FindCoordinatorRequest(coordinator_keys=[group])
    for node in cluster.brokers:
        try:
            with BrokerConnection(node.port) as connection:
                (found,) = connection.ask(request, FindCoordinatorResponse, 4).coordinators
        except OSError:
            continue
        return None if found.error_code else found.node_id
    return None


def committed_offsets(cluster: Cluster, group: str, topic: str, count: int) -> dict[int, int]:
    """Return what a group has committed, as its coordinator answers once it can."""
    wanted = OffsetFetchRequestTopics(name=topic, partition_indexes=list(range(count)))
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=[wanted])], require_stable=True
    )
    deadline = time.monotonic() + JOIN_SECONDS_MAX
    while time.monotonic() < deadline:
        time.sleep(PROBE_PAUSE_SECONDS)
        node_id = coordinator_of(cluster, group)
        if node_id is None:
            continue
        try:
            with BrokerConnection(cluster.nodes[node_id].port) as connection:
                (found,) = connection.ask(request, OffsetFetchResponse, FETCH_VERSION).groups
        except OSError:
            continue
        if found.error_code == ErrorCode.NONE:
            partitions = found.topics[0].partitions
            return {each.partition_index: each.committed_offset for each in partitions}
    raise AssertionError(f"no coordinator answers for {group}")
