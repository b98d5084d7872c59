"""Whatever happens to its requests, an idempotent producer's records are in the log once, in order.

The producer's core (accumulator, sequences, delivery) is driven without I/O against a model of
brokers that check sequences as Kafka does. Connections break before or after a request was carried
out, requests of a dead connection are carried out later (one, as a broker handles no second before
it has answered the first), brokers refuse for a while or for good, leaders move, time runs out.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.client.metadata import ClusterMetadata, PartitionMetadata, TopicMetadata
from odradek.client.producer.accumulator import Accumulator
from odradek.client.producer.batch import ProducerBatch, ProducerIdAndEpoch, RecordMetadata
from odradek.client.producer.delivery import Delivery, Refusal
from odradek.client.producer.sequences import Sequences
from odradek.client.producer.settings import DEFINITIONS, options_from
from odradek.client.settings import Settings
from odradek.core.errors import ErrorCode
from odradek.core.ids import Uuid
from odradek.records import parse_header, read_records

TOPIC = "t"
PARTITIONS = 2
NODES = (1, 2)
REMEMBERED_BATCHES = 5
DELIVERY_TIMEOUT_MS = 1_000
TOO_MANY_RECORDS = 5
POISON = b"poison"
REFUSALS = (
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.REQUEST_TIMED_OUT,
)


class Append(NamedTuple):
    """One partition's part of a request, as its bytes say."""

    partition: int
    producer: ProducerIdAndEpoch
    first: int
    values: list[bytes]

    @property
    def last(self) -> int:
        return self.first + len(self.values) - 1


class Sent(NamedTuple):
    batches: list[ProducerBatch]
    appends: list[Append]


class Known(NamedTuple):
    first: int
    last: int
    offset: int


class PartitionLog:
    """What a leader has and remembers; all leaders of the partition share it."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self._epochs: dict[int, int] = {}
        self._known: dict[int, deque[Known]] = {}

    def append(self, append: Append) -> tuple[ErrorCode, int]:
        if len(append.values) > TOO_MANY_RECORDS:
            return ErrorCode.MESSAGE_TOO_LARGE, -1
        if POISON in append.values:
            return ErrorCode.INVALID_RECORD, -1
        producer_id, epoch = append.producer
        current = self._epochs.get(producer_id)
        known = self._known.setdefault(producer_id, deque(maxlen=REMEMBERED_BATCHES))
        if current is not None and epoch < current:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        if current is not None and epoch > current and append.first != 0:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        if epoch == current:
            for each in known:
                if (each.first, each.last) == (append.first, append.last):
                    return ErrorCode.NONE, each.offset
            if append.first != known[-1].last + 1:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        elif current is not None:
            known.clear()
        self._epochs[producer_id] = epoch
        offset = len(self.values)
        known.append(Known(append.first, append.last, offset))
        self.values += append.values
        return ErrorCode.NONE, offset


class World:
    """A producer's core, brokers, and what is on the way between them."""

    def __init__(self, in_flight_max: int, codec: str, *, grows: bool) -> None:
        self.loop = asyncio.new_event_loop()  # futures want one; it never runs
        given_settings = {
            "bootstrap.servers": "none:1",
            "batch.size": 400,
            "linger.ms": 0,
            "request.timeout.ms": 100,
            "delivery.timeout.ms": DELIVERY_TIMEOUT_MS,
            "retry.backoff.ms": 0,
            "max.in.flight.requests.per.connection": in_flight_max,
            "compression.type": codec,
        }
        self.options = options_from(Settings(DEFINITIONS, given_settings))
        if grows:
            self.options = replace(self.options, batch_size=100)
        self.sequences = Sequences()
        self.accumulator = Accumulator(self.options, Random(0), self.sequences)
        self.delivery = Delivery(self.options, self.accumulator, self.sequences)
        self.sequences.set_producer(ProducerIdAndEpoch(7, 0))
        self.now_ms = 0.0
        self.logs = [PartitionLog() for _ in range(PARTITIONS)]
        self.leaders = [1] * PARTITIONS
        self.metadata = ClusterMetadata()
        self.learn()
        self.wires: dict[int, deque[Sent]] = {node: deque() for node in NODES}
        self.zombies: deque[Sent] = deque()
        self.sent: list[tuple[int, bytes, asyncio.Future[RecordMetadata]]] = []

    # The producer's side.

    def learn(self) -> None:
        partitions = {
            number: PartitionMetadata(leader, 0, (1, 2), (1, 2))
            for number, leader in enumerate(self.leaders)
        }
        self.metadata.topics = {TOPIC: TopicMetadata(TOPIC, Uuid(16), False, partitions)}

    def send(self, partition: int, value: bytes | None = None) -> None:
        value = value or b"%d" % len(self.sent)
        future: asyncio.Future[RecordMetadata] = self.loop.create_future()
        self.sent.append((partition, value, future))
        queue = self.accumulator.topic(TOPIC).of(partition)
        size = 36 + len(value)
        record = (0, None, value, (), future, size)
        if self.accumulator.append(queue, record):
            return
        if not self.accumulator.grow(queue) or not self.accumulator.append(queue, record):
            reserved = self.accumulator.batch_bytes(size)
            assert self.accumulator.pool.try_reserve(reserved)
            self.accumulator.append_first(queue, record, reserved, self.now_ms)

    def run(self) -> bool:
        """One turn of a sender; True if anything was sent."""
        self.delivery.expire(self.now_ms)
        self.delivery.resolve_sequences()
        has_sent = False
        for node, queues in self.accumulator.ready(self.metadata, self.now_ms).nodes.items():
            if len(self.wires[node]) < self.options.in_flight_max:
                batches = self.accumulator.drain(queues)
                if batches:
                    self.wires[node].append(Sent(batches, [_append_of(each) for each in batches]))
                    has_sent = True
        self.check()
        return has_sent

    def check(self) -> None:
        self.accumulator.check_invariants()
        self.sequences.check_invariants()

    # The brokers' side.

    def serve(self, node: int, refusal: ErrorCode | None = None) -> None:
        """Carry out the next request of a connection and answer it, or refuse it as a whole."""
        if not self.wires[node]:
            return
        sent = self.wires[node].popleft()
        for batch, append in zip(sent.batches, sent.appends, strict=True):
            code, offset = self.carry_out(node, append, refusal)
            if code:
                self.delivery.on_refused(batch, Refusal(code), self.now_ms)
            else:
                self.delivery.on_delivered(batch, offset, -1)
            if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                self.learn()
        self.check()

    def carry_out(
        self, node: int, append: Append, refusal: ErrorCode | None = None
    ) -> tuple[ErrorCode, int]:
        if self.leaders[append.partition] != node:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
        if refusal is ErrorCode.REQUEST_TIMED_OUT:  # appended, but not replicated in time
            self.logs[append.partition].append(append)
        return (refusal, -1) if refusal is not None else self.logs[append.partition].append(append)

    def cut(self, node: int, *, after: int) -> None:
        """Break a connection after some of its requests were carried out, unanswered."""
        lost = list(self.wires[node])
        self.wires[node].clear()
        for sent in lost[:after]:
            for append in sent.appends:
                self.carry_out(node, append)
        self.zombies.extend(lost[after : after + 1])
        for sent in lost:
            for batch in sent.batches:
                self.delivery.on_refused(batch, Refusal(ErrorCode.NETWORK_EXCEPTION), self.now_ms)
        self.check()

    def raise_dead(self) -> None:
        """Carry out a request whose connection broke long ago."""
        if self.zombies:
            for append in self.zombies.popleft().appends:
                self.logs[append.partition].append(append)

    def settle(self) -> None:
        """Let everything work until nothing is left to do."""
        for _ in range(2000):
            has_sent = self.run()
            for node in NODES:
                self.serve(node)
            self.now_ms += 0.01
            if not has_sent and not any(self.wires.values()) and not self.accumulator.incomplete:
                return
        raise AssertionError(f"never done: {list(self.accumulator.incomplete)}")


def _append_of(batch: ProducerBatch) -> Append:
    header = parse_header(batch.build())
    values = [record.value or b"" for record in read_records(batch.build(), header)]
    producer = ProducerIdAndEpoch(header.producer_id, header.producer_epoch)
    return Append(batch.partition.partition, producer, header.base_sequence, values)


@contextmanager
def world(in_flight_max: int, codec: str = "none", *, grows: bool = False) -> Iterator[World]:
    made = World(in_flight_max, codec, grows=grows)
    try:
        yield made
    finally:
        made.loop.close()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, PARTITIONS - 1), st.integers(1, 4)),
        st.tuples(st.just("send on"), st.integers(0, PARTITIONS - 1), st.integers(1, 4)),
        st.tuples(st.just("poison"), st.integers(0, PARTITIONS - 1), st.just(0)),
        st.tuples(st.just("run"), st.integers(1, 3), st.just(0)),
        st.tuples(st.just("all served"), st.just(0), st.just(0)),
        st.tuples(st.just("serve"), st.sampled_from(NODES), st.just(0)),
        st.tuples(st.just("refuse"), st.sampled_from(NODES), st.integers(0, len(REFUSALS) - 1)),
        st.tuples(st.just("cut"), st.sampled_from(NODES), st.integers(0, 3)),
        st.tuples(st.just("dead"), st.just(0), st.just(0)),
        st.tuples(st.just("move"), st.integers(0, PARTITIONS - 1), st.sampled_from(NODES)),
        st.tuples(st.just("learn"), st.just(0), st.just(0)),
        st.tuples(st.just("late"), st.sampled_from([300, 600]), st.just(0)),
    ),
    max_size=80,
)


def act(made: World, kind: str, first: int, second: int) -> None:
    match kind:
        case "send" | "send on":
            for _ in range(second):
                made.send(first)
            if kind == "send on":
                made.run()
        case "poison":
            made.send(first, POISON)
        case "run":
            for _ in range(first):
                made.run()
        case "serve":
            made.serve(first)
        case "all served":
            for node in NODES:
                while made.wires[node]:
                    made.serve(node)
            made.run()
        case "refuse":
            made.serve(first, REFUSALS[second])
        case "cut":
            made.cut(first, after=second)
        case "dead":
            made.raise_dead()
        case "move":
            made.leaders[first] = second
        case "learn":
            made.learn()
        case "late":
            made.now_ms += first
    made.check()


@pytest.mark.seed_row("0.6")
@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(steps=STEPS, in_flight_max=st.integers(1, 5), grows=st.booleans())
def test_each_record_is_in_the_log_once_and_in_order(
    steps: list[tuple[str, int, int]], in_flight_max: int, grows: bool
) -> None:
    with world(in_flight_max, grows=grows) as made:
        for step in steps:
            act(made, *step)
        check_logs(made)


@pytest.mark.seed_row("2.1")
@pytest.mark.parametrize("seed", range(40))
def test_the_same_on_long_walks(seed: int) -> None:
    """Faults that need several others before them; one of a kind is rare in short lists."""
    random = Random(seed)
    kinds = [
        ("send on", 12),
        ("serve", 8),
        ("all served", 2),
        ("cut", 4),
        ("late", 3),
        ("refuse", 2),
        ("run", 4),
        ("dead", 2),
        ("move", 1),
        ("learn", 1),
        ("poison", 1),
    ]
    names, weights = zip(*kinds, strict=True)
    with world(random.randint(1, 5), grows=bool(seed % 2)) as made:
        for kind in random.choices(names, weights, k=400):
            match kind:
                case "serve" | "refuse" | "cut":
                    arguments = random.choice(NODES), random.randrange(len(REFUSALS))
                case "late":
                    arguments = random.choice([100, 300, 600]), 0
                case "move":
                    arguments = random.randrange(PARTITIONS), random.choice(NODES)
                case _:
                    arguments = random.randrange(PARTITIONS), random.randint(1, 4)
            act(made, kind, *arguments)
        check_logs(made)


def check_logs(made: World) -> None:
    made.learn()
    made.settle()
    made.raise_dead()
    for number, log in enumerate(made.logs):
        sent = [(value, future) for at, value, future in made.sent if at == number]
        in_log = set(log.values)
        assert log.values == [value for value, _ in sent if value in in_log], "once, in order"
        for value, future in sent:
            assert future.done()
            if future.exception() is None:
                assert value in in_log
                assert future.result().offset in (-1, log.values.index(value))
    assert made.accumulator.pool.free_bytes == made.accumulator.pool.total_bytes


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, codec=st.sampled_from(["gzip", "snappy", "lz4", "zstd"]), grows=st.booleans())
def test_without_lost_time_or_bad_records_all_of_them_arrive(
    steps: list[tuple[str, int, int]], codec: str, grows: bool
) -> None:
    with world(5, codec, grows=grows) as made:
        for step in steps:
            if step[0] not in ("late", "poison"):
                act(made, *step)
        made.learn()
        made.settle()
        for number, log in enumerate(made.logs):
            assert log.values == [value for at, value, _ in made.sent if at == number]
        assert all(future.exception() is None for _, _, future in made.sent)
