"""The group coordinator beside real Apache Kafka's, and how soon a consumer has its first record.

Heartbeats and commits of one offset go over bare sockets, from members of a classic group: one by
one, where every request waits for its answer, and in bursts over several connections, so that a
broker with threads can use them. The CPU is that of all threads of the broker: what counts on a
machine that is busy, because Kafka spreads over several cores what ours does on one.

Brokers take turns, round by round, and the median counts.
"""

import socket
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import NamedTuple

from confluent_kafka import Consumer
from kafka import KafkaConsumer

from bench import brokers
from bench.brokers import Target
from bench.timing import Row
from odradek.core.ids import TopicPartition
from odradek.protocol.apis import api_for_key
from odradek.protocol.framing import frame_request
from odradek.protocol.generated.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.protocol.generated.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from odradek.protocol.generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.protocol.generated.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from odradek.protocol.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek.protocol.generated.sync_group import SyncGroupRequest, SyncGroupResponse
from odradek.protocol.message import Message
from odradek.records import BatchBuilder
from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection

ROUNDS = 5
REQUESTS = 4_000
BURST = 100
CONNECTIONS = 8
FIRST_RECORD_ROUNDS = 7
TIMEOUT_SECONDS = 30
TOPIC = "bench-groups"
GROUP = "bench"
HEARTBEAT_VERSION = 4
COMMIT_VERSION = 9


class Figures(NamedTuple):
    per_second: list[float]
    cpu_ms: list[float]
    """Of a thousand requests."""


def run() -> Iterator[Row]:
    yield from _first_records()
    with ExitStack() as stack:
        targets = list(brokers.start(stack))
        all_members = {target: _start_members(stack, target) for target in targets}
        for what in ("Heartbeat", "OffsetCommit"):
            first_only = {target: members[:1] for target, members in all_members.items()}
            yield from _requests(first_only, f"{what}, one by one", what, 1)
            yield from _requests(all_members, f"{what}, in bursts", what, BURST)


# Requests.


class Member:
    """A member of a classic group of its own, which goes on living, and its connection."""

    def __init__(self, target: Target, group_id: str) -> None:
        with BrokerConnection(target.port) as connection:
            _await_coordinator(connection, group_id)
            member_id, generation_id = _join(connection, group_id)
        beat = HeartbeatRequest(group_id=group_id, generation_id=generation_id, member_id=member_id)
        offset = OffsetCommitRequestPartition(partition_index=0, committed_offset=4711)
        commit = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=generation_id,
            member_id=member_id,
            topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[offset])],
        )
        with BrokerConnection(target.port) as connection:
            assert connection.ask(beat, HeartbeatResponse, HEARTBEAT_VERSION).error_code == 0
            committed = connection.ask(commit, OffsetCommitResponse, COMMIT_VERSION)
            assert committed.topics[0].partitions[0].error_code == 0
        self._socket = socket.create_connection(("127.0.0.1", target.port), TIMEOUT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._frames = {
            "Heartbeat": _frame(beat, HEARTBEAT_VERSION),
            "OffsetCommit": _frame(commit, COMMIT_VERSION),
        }
        self._answers = {what: self._first_answer(what) for what in self._frames}

    def _first_answer(self, what: str) -> bytes:
        self.send(what, 1)
        size = self._receive(4)
        return size + self._receive(int.from_bytes(size, "big"))

    def _receive(self, count: int) -> bytes:
        received = bytearray(count)
        left = memoryview(received)
        while left:
            got = self._socket.recv_into(left)
            assert got, "the broker hung up"
            left = left[got:]
        return bytes(received)

    def send(self, what: str, burst: int) -> None:
        self._socket.sendall(self._frames[what] * burst)

    def take_answers(self, what: str, burst: int) -> None:
        """Wait for the answers to a burst, which are all like the first one: no error."""
        expected = self._answers[what] * burst
        assert self._receive(len(expected)) == expected

    def close(self) -> None:
        self._socket.close()


def _start_members(stack: ExitStack, target: Target) -> list[Member]:
    with BrokerConnection(target.port) as connection:
        _create_topic(connection)
    return [
        stack.enter_context(closing(Member(target, f"{GROUP}-{number}")))
        for number in range(CONNECTIONS)
    ]


def _ask(members: list[Member], what: str, count: int, burst: int) -> None:
    """Send ``count`` requests, a burst from each member at a time, and take their answers."""
    for _ in range(count // burst // len(members)):
        for member in members:
            member.send(what, burst)
        for member in members:
            member.take_answers(what, burst)


def _frame(request: Message, version: int) -> bytes:
    return b"".join(frame_request(request, api_for_key(request.ID), version, 1, "bench"))


def _create_topic(connection: BrokerConnection) -> None:
    topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_SECONDS * 1000)
    created = connection.ask(request, CreateTopicsResponse)
    assert created.topics[0].error_code == 0, created.topics[0].error_message


def _await_coordinator(connection: BrokerConnection, group_id: str) -> None:
    request = FindCoordinatorRequest(coordinator_keys=[group_id])
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while connection.ask(request, FindCoordinatorResponse).coordinators[0].error_code:
        assert time.monotonic() < deadline, "there is no coordinator"


def _join(connection: BrokerConnection, group_id: str) -> tuple[str, int]:
    request = JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=300_000,
        rebalance_timeout_ms=300_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while (joined := connection.ask(request, JoinGroupResponse)).error_code:
        assert time.monotonic() < deadline, f"cannot join: {joined.error_code}"
        request.member_id = joined.member_id  # which it is to come back with
    synced = connection.ask(
        SyncGroupRequest(
            group_id=group_id,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
        ),
        SyncGroupResponse,
    )
    assert synced.error_code == 0
    return joined.member_id, joined.generation_id


def _requests(
    all_members: dict[Target, list[Member]], title: str, what: str, burst: int
) -> Iterator[Row]:
    figures = {target: Figures([], []) for target in all_members}
    count = REQUESTS if burst == 1 else REQUESTS * 4
    for members in all_members.values():
        _ask(members, what, count * 2, burst)  # to warm up: Java compiles what is used much
    for _ in range(ROUNDS):
        for target, members in all_members.items():
            cpu, began = target.cpu_seconds(), time.perf_counter()
            _ask(members, what, count, burst)
            figures[target].per_second.append(count / (time.perf_counter() - began))
            figures[target].cpu_ms.append((target.cpu_seconds() - cpu) * 1e6 / count)
    for target, (per_second, _) in figures.items():
        yield Row(title, target.name, statistics.median(per_second), "requests/s")
    for target, (_, cpu_ms) in figures.items():
        value = statistics.median(cpu_ms)
        yield Row(f"{title}, CPU of the broker for 1,000", target.name, value, "ms")


# From the wish to read to the first record.


def _first_records() -> Iterator[Row]:
    """Time a consumer in a group of its own, from its making to its first record."""
    clients = {
        "confluent-kafka": _first_with_confluent_kafka,
        "kafka-python": _first_with_kafka_python,
    }
    spent: dict[str, list[float]] = {name: [] for name in clients}
    for _ in range(FIRST_RECORD_ROUNDS):
        for name, first in clients.items():
            with Broker(topics=[TOPIC]) as broker:
                _append(broker)
                spent[name].append(first(broker.bootstrap_servers))
    for name, seconds in spent.items():
        title = "join to first record, embedded broker"
        yield Row(title, name, statistics.median(seconds) * 1000, "ms")
    for name, seconds in spent.items():
        yield Row("the same, first of the process", name, seconds[0] * 1000, "ms")


def _append(broker: Broker) -> None:
    builder = BatchBuilder()
    builder.append(0, None, b"first")
    log = broker.node.broker.store.get(TopicPartition(TOPIC, 0))
    assert log is not None
    log.append_as_leader(bytearray(builder.build()), leader_epoch=0, now_ms=0)
    log.update_high_watermark(log.log_end_offset)


def _first_with_confluent_kafka(bootstrap_servers: str) -> float:
    began = time.perf_counter()
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": GROUP,
            "log_level": brokers.CLIENT_LOG_LEVEL,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([TOPIC])
    message = consumer.poll(TIMEOUT_SECONDS)
    seconds = time.perf_counter() - began
    assert message is not None
    assert message.value() == b"first"
    consumer.close()
    return seconds


def _first_with_kafka_python(bootstrap_servers: str) -> float:
    began = time.perf_counter()
    consumer = KafkaConsumer(
        TOPIC,
        bootstrap_servers=bootstrap_servers,
        group_id=GROUP,
        auto_offset_reset="earliest",
        consumer_timeout_ms=TIMEOUT_SECONDS * 1000,
    )
    message = next(consumer)
    seconds = time.perf_counter() - began
    assert message.value == b"first"
    consumer.close(autocommit=False)
    return seconds
