"""What waits to be handed over: bounded, in turns, thrown away when it is stale."""

import pytest

from odradek.client.consumer.chunk import Chunk
from odradek.client.consumer.fetch_buffer import FetchBuffer
from odradek.client.consumer.subscription import PartitionState, Position, Subscription
from odradek.core.ids import TopicPartition
from odradek.records import BatchBuilder

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def subscription() -> Subscription:
    made = Subscription()
    made.assign([A, B])
    for state in made.partitions.values():
        state.seek(Position(0))
    return made


def chunk(state: PartitionState, offset: int, count: int = 2) -> Chunk:
    builder = BatchBuilder(base_offset=offset)
    for _ in range(count):
        builder.append(0, None, b"x" * 100)
    return Chunk(state.partition, memoryview(builder.build()), Position(offset))


def make(subscription: Subscription, chunks: int, per_partition: int) -> FetchBuffer:
    size = chunk(subscription.state(A), 0).size
    return FetchBuffer(
        subscription, bytes_max=chunks * size, partition_bytes_max=per_partition * size
    )


@pytest.mark.seed_row("2.4")
def test_a_partition_is_full_alone(subscription: Subscription) -> None:
    buffer = make(subscription, 3, 2)
    first, second = subscription.state(A), subscription.state(B)
    for offset in (0, 2):
        assert not buffer.is_full(first)
        buffer.add(first, chunk(first, offset))
    assert buffer.is_full(first)
    assert buffer.end(first).offset == 4
    assert not buffer.is_full(second)
    assert buffer.has_room()
    buffer.add(second, chunk(second, 0))
    assert not buffer.has_room()
    buffer.check_invariants()


def test_paused_partitions_make_room_for_others(subscription: Subscription) -> None:
    buffer = make(subscription, 2, 2)
    first = subscription.state(A)
    buffer.add(first, chunk(first, 0))
    buffer.add(first, chunk(first, 2))
    assert not buffer.has_room()
    first.is_paused = True
    assert buffer.has_room()
    assert buffer.end(first).offset == 0, "to be fetched again from where the application is"
    buffer.check_invariants()


def test_partitions_take_turns(subscription: Subscription) -> None:
    buffer = make(subscription, 9, 9)
    first, second = subscription.state(A), subscription.state(B)
    for state in (first, second):
        buffer.add(state, chunk(state, 0))
    turns = []
    for _ in range(4):
        state, _ = next(buffer.ready())
        turns.append(state)
    assert turns == [first, second, first, second]


def test_what_was_fetched_before_a_seek_is_not_handed_over(subscription: Subscription) -> None:
    buffer = make(subscription, 9, 9)
    first = subscription.state(A)
    buffer.add(first, chunk(first, 0))
    first.seek(Position(50))
    assert list(buffer.ready()) == []
    assert buffer.bytes == 0
    assert buffer.end(first).offset == 50


def test_what_belongs_to_others_now_is_let_go(subscription: Subscription) -> None:
    buffer = make(subscription, 9, 9)
    first, second = subscription.state(A), subscription.state(B)
    for state in (first, second):
        buffer.add(state, chunk(state, 0))
    subscription.drop([A])
    buffer.discard_stale()
    assert buffer.bytes == chunk(second, 0).size
    assert [state for state, _ in buffer.ready()] == [second]
    buffer.check_invariants()


def test_a_chunk_that_is_used_up_makes_room(subscription: Subscription) -> None:
    buffer = make(subscription, 1, 1)
    first = subscription.state(A)
    buffer.add(first, chunk(first, 0))
    assert not buffer.has_room()
    buffer.drop_first(first)
    assert buffer.has_room()
    assert buffer.end(first).offset == 2, "the end stays: nothing was thrown away"
    buffer.check_invariants()
