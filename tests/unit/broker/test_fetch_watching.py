"""A fetch within a session looks at what has changed, and is woken by what it waits for."""

import gc
from collections.abc import Iterator

import pytest

from odradek.broker.fetch_sessions import CachedPartition
from odradek.broker.handlers import fetch as fetch_handler
from odradek.broker.partition import Partition
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from odradek.replication.leadership import Broker as OtherBroker
from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection
from tests.storage_batches import BASE_TIME_MS, make_batch, make_marker
from tests.unit.broker.held_commits import Leadership, is_answered, partition_of, wait_until

PARTITIONS = 20
FOLLOWER = 7
BROKER_EPOCH = 70
VERSION = 17
LONG_MS = 120_000


class Session:
    """A client with a session over all partitions of ``t``."""

    def __init__(self, broker: Broker, follower_id: int = -1, isolation_level: int = 0) -> None:
        self.broker = broker
        self.connection = BrokerConnection(broker.port)
        self.topic_id = broker.node.broker.image.topics["t"].topic_id
        self._follower_id = follower_id
        self._isolation_level = isolation_level
        self.metadata = Leadership(broker)
        self.session_id = self.epoch = 0
        self.looked_at: list[int] = []
        self._count_looks()

    def _count_looks(self) -> None:
        real = fetch_handler._Fetch._read_partition

        def read(fetch, cached, *args, **kwargs):  # type: ignore[no-untyped-def]
            self.looked_at.append(cached.wanted.partition)
            return real(fetch, cached, *args, **kwargs)

        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(fetch_handler._Fetch, "_read_partition", read)

    def close(self) -> None:
        self._patch.undo()
        self.connection.close()

    def send(self, offsets: dict[int, int], max_wait_ms: int = 0, min_bytes: int = 1) -> None:
        self.looked_at.clear()
        wanted = [
            FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1 << 20)
            for number, offset in offsets.items()
        ]
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=self._follower_id, replica_epoch=BROKER_EPOCH),
            session_id=self.session_id,
            session_epoch=self.epoch,
            isolation_level=self._isolation_level,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=1 << 20,
            topics=[FetchTopic(topic_id=self.topic_id, partitions=wanted)] if wanted else [],
        )
        self.connection.send(request, VERSION)

    def receive(self) -> dict[int, PartitionData]:
        answer = self.connection.receive(FetchResponse, VERSION)
        assert answer.error_code == 0
        self.session_id, self.epoch = answer.session_id, self.epoch + 1
        return {
            each.partition_index: each for topic in answer.responses for each in topic.partitions
        }

    def ask(self, offsets: dict[int, int] | None = None) -> dict[int, PartitionData]:
        self.send(offsets or {})
        return self.receive()

    def settle(self) -> None:
        """Fetch everything until nothing is new."""
        self.ask(dict.fromkeys(range(PARTITIONS), 0))
        for _ in range(3):
            self.ask()
        assert self.ask() == {}

    def park(self) -> None:
        self.send({}, max_wait_ms=LONG_MS)
        wait_until(lambda: len(self.broker.node.broker.delayed) == 1, "the fetch waits")

    @property
    def is_answered(self) -> bool:
        """Whether the answer is there by now, and by the turn of the loop after it."""
        for _ in range(3):
            self.broker._call(lambda: None)
        return is_answered(self.connection)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(memory=True) as started:
        started.create_topic("t", PARTITIONS)
        yield started


@pytest.fixture
def consumer(broker: Broker) -> Iterator[Session]:
    session = Session(broker)
    yield session
    session.close()


@pytest.fixture
def follower(broker: Broker) -> Iterator[Session]:
    session = Session(broker, FOLLOWER)
    for number in range(PARTITIONS):
        session.metadata.share("t", [1, FOLLOWER], [1, FOLLOWER], number)
        leadership = partition(broker, number).leadership
        assert leadership is not None
        leadership._find_broker = lambda _: OtherBroker(BROKER_EPOCH, is_active=True)
    yield session
    session.close()


def partition(broker: Broker, number: int) -> Partition:
    return partition_of(broker.node.broker, TopicPartition("t", number))


def append(broker: Broker, number: int, records: bytearray | None = None) -> None:
    batch = records or make_batch([b"v"])
    broker._call(lambda: partition(broker, number).append(batch, now_ms=BASE_TIME_MS))


# What is looked at.


def test_a_fetch_looks_at_what_has_changed_and_at_nothing_else(
    broker: Broker, consumer: Session
) -> None:
    consumer.settle()
    assert consumer.looked_at == []
    append(broker, 3)
    append(broker, 5)
    assert set(consumer.ask()) == {3, 5}
    assert consumer.looked_at == [3, 5]
    assert set(consumer.ask({3: 1})) == {5}, "which is asked for again, and told again"
    assert consumer.looked_at == [3, 5]
    consumer.ask({5: 1})
    assert consumer.ask() == {}
    assert consumer.looked_at == []


def test_a_follower_looks_at_what_has_changed_too(broker: Broker, follower: Session) -> None:
    follower.settle()
    assert follower.looked_at == []
    append(broker, 3)
    told = follower.ask()
    assert (set(told), told[3].high_watermark) == ({3}, 0)
    assert follower.ask({3: 1})[3].high_watermark == 0, "it moves because of this fetch"
    assert follower.ask()[3].high_watermark == 1
    follower.ask()
    assert follower.ask() == {}
    assert follower.looked_at == []


def test_a_follower_that_is_not_in_sync_is_looked_at_each_time(
    follower: Session,
) -> None:
    follower.metadata.share("t", [1, FOLLOWER], [1], 3)
    follower.settle()
    assert follower.looked_at == [3]


def test_a_change_of_leadership_is_looked_at(broker: Broker, consumer: Session) -> None:
    consumer.settle()
    Leadership(broker).give("t", FOLLOWER, 3)
    consumer.ask()
    assert consumer.looked_at == [3]


def test_deleted_records_and_retention_are_told(broker: Broker, consumer: Session) -> None:
    append(broker, 3)
    consumer.ask(dict.fromkeys(range(PARTITIONS), 0) | {3: 1})
    for _ in range(3):
        consumer.ask()
    broker._call(lambda: partition(broker, 3).log.advance_log_start_offset(1))
    told = consumer.ask()
    assert {number: each.log_start_offset for number, each in told.items()} == {3: 1}


def test_another_isolation_looks_at_everything(consumer: Session) -> None:
    consumer.settle()
    consumer._isolation_level = 1
    consumer.ask()
    assert consumer.looked_at == list(range(PARTITIONS))


def test_what_finds_no_room_in_a_response_is_not_forgotten(
    broker: Broker, consumer: Session
) -> None:
    consumer.settle()
    for number in (3, 5, 7):
        append(broker, number, make_batch([b"x" * 1_000_000]))
    told: list[int] = []
    for _ in range(3):  # the last one has no news by the second time, and still its records
        offsets = {told[-1]: 1} if told else {}
        told += [number for number, each in consumer.ask(offsets).items() if each.records]
    assert sorted(told) == [3, 5, 7]


def test_a_session_that_ends_watches_nothing_any_more(broker: Broker, consumer: Session) -> None:
    consumer.settle()
    assert broker._call(lambda: len(partition(broker, 3)._watches)) == 1
    consumer.epoch = 0
    consumer.ask({0: 0})
    watching = [
        broker._call(lambda each=each: len(partition(broker, each)._watches))  # type: ignore[misc]
        for each in range(PARTITIONS)
    ]
    assert sum(watching) <= 1


def test_a_fetch_without_a_session_watches_while_it_waits(
    broker: Broker, consumer: Session
) -> None:
    consumer.epoch = -1
    consumer.send({3: 0, 4: 0}, max_wait_ms=LONG_MS, min_bytes=1)
    wait_until(lambda: len(broker.node.broker.delayed) == 1, "the fetch waits")
    append(broker, 4)
    assert [number for number, each in consumer.receive().items() if each.records] == [4]
    assert broker._call(lambda: partition(broker, 3)._watches) == {}


# What wakes whom.


def test_a_consumer_is_woken_by_the_high_watermark_and_a_follower_by_the_end_of_the_log(
    broker: Broker, follower: Session
) -> None:
    follower.settle()
    consumer = Session(broker)
    consumer.settle()
    follower.park()
    consumer.send({}, max_wait_ms=LONG_MS)
    wait_until(lambda: len(broker.node.broker.delayed) == 2, "both wait")
    append(broker, 3)
    assert set(follower.receive()) == {3}
    assert not consumer.is_answered
    follower.send({3: 1}, max_wait_ms=LONG_MS)
    assert set(consumer.receive()) == {3}
    assert not follower.is_answered, "the high watermark alone is no reason (KAFKA-9731)"
    append(broker, 4)
    told = follower.receive()
    assert (set(told), told[3].high_watermark) == ({3, 4}, 1)
    consumer.close()


def test_who_reads_committed_waits_for_the_end_of_the_transaction(broker: Broker) -> None:
    reader = Session(broker, isolation_level=1)
    reader.settle()
    reader.park()
    batch = make_batch([b"v"], producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
    append(broker, 3, batch)
    assert not reader.is_answered
    from odradek.storage.producer_state import AppendOrigin

    marker = make_marker(9, 0, commit=True)
    broker._call(
        lambda: partition(broker, 3).append(marker, BASE_TIME_MS, AppendOrigin.COORDINATOR)
    )
    assert set(reader.receive()) == {3}
    reader.close()


def test_a_fetch_that_waits_is_told_of_records_that_go(broker: Broker, consumer: Session) -> None:
    append(broker, 4)
    consumer.ask(dict.fromkeys(range(PARTITIONS), 0) | {4: 1})
    consumer.ask()
    consumer.park()
    consumer.metadata.give("t", FOLLOWER, 4)
    assert not consumer.is_answered, "consumers may read from followers"
    broker._call(lambda: partition(broker, 4).truncate_to(0, BASE_TIME_MS))
    assert consumer.receive()[4].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_follower_that_waits_is_told_of_another_leader(broker: Broker, follower: Session) -> None:
    follower.settle()
    follower.park()
    follower.metadata.give("t", FOLLOWER, 4)
    assert follower.receive()[4].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_all_appends_of_a_turn_wake_a_fetch_once(broker: Broker, consumer: Session) -> None:
    consumer.settle()
    consumer.park()

    def append_all() -> None:
        for number in range(PARTITIONS):
            partition(broker, number).append(make_batch([b"v"]), now_ms=BASE_TIME_MS)

    broker._call(append_all)
    assert set(consumer.receive()) == set(range(PARTITIONS))


def test_what_a_parked_fetch_reads_is_looked_up_once(
    broker: Broker, follower: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower.settle()
    found: list[int] = []
    real = fetch_handler._Fetch.find

    def find(fetch: fetch_handler._Fetch, cached: CachedPartition) -> Partition:
        found.append(cached.wanted.partition)
        return real(fetch, cached)

    monkeypatch.setattr(fetch_handler._Fetch, "find", find)
    follower.send({2: 0}, max_wait_ms=LONG_MS)
    wait_until(lambda: len(broker.node.broker.delayed) == 1, "the fetch waits")
    append(broker, 2)
    assert follower.receive()[2].records
    assert found == [2]


def test_a_fetch_that_was_answered_leaves_nothing_behind(broker: Broker, consumer: Session) -> None:
    """Its deadline may be minutes away, and the operation is kept until then."""
    consumer.settle()
    before = kept_fetches()  # brokers of other tests may be alive in this process
    for offset in range(20):
        consumer.send({0: offset}, max_wait_ms=LONG_MS)
        wait_until(lambda: len(broker.node.broker.delayed) == 1, "the fetch waits")
        append(broker, 0)
        assert consumer.receive()[0].records
    assert kept_fetches() <= before + 1


def kept_fetches() -> int:
    gc.collect()
    return sum(isinstance(each, fetch_handler._Fetch) for each in gc.get_objects())


# What a leader knows of a follower.


def test_a_follower_that_is_idle_is_caught_up_until_its_last_fetch(
    broker: Broker, follower: Session
) -> None:
    follower.settle()
    leadership = partition(broker, 3).leadership
    assert leadership is not None
    state = leadership.followers[FOLLOWER]
    before_ms = state.last_caught_up_ms
    clock = broker.node.broker.clock
    wait_until(lambda: clock.monotonic_ms() > before_ms + 2, "time passes")
    asked_ms = clock.monotonic_ms()
    follower.ask()
    assert state.last_caught_up_ms == before_ms, "it need not be looked at"
    append(broker, 3)
    assert state.last_caught_up_ms >= asked_ms
    assert state.log_end_offset == 0


def test_a_session_that_ends_says_until_when_its_follower_was_caught_up(
    broker: Broker, follower: Session
) -> None:
    follower.settle()
    leadership = partition(broker, 3).leadership
    assert leadership is not None
    state = leadership.followers[FOLLOWER]
    before_ms = state.last_caught_up_ms
    clock = broker.node.broker.clock
    wait_until(lambda: clock.monotonic_ms() > before_ms + 2, "time passes")
    asked_ms = clock.monotonic_ms()
    follower.ask()
    follower.epoch = 0
    follower.ask({0: 0})
    assert state.last_caught_up_ms >= asked_ms
