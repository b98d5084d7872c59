"""What a consumer reads and how far it is, without anybody to ask."""

import pytest

from odradek.client.consumer.records import RebalanceListener
from odradek.client.consumer.settings import EARLIEST, LATEST
from odradek.client.consumer.subscription import (
    Mode,
    PartitionState,
    Phase,
    Position,
    Subscription,
)
from odradek.core.ids import TopicPartition

A, B, C = (TopicPartition("t", number) for number in range(3))


def can_fetch(state: PartitionState) -> bool:
    return state.is_fetchable


@pytest.fixture
def subscription() -> Subscription:
    made = Subscription()
    made.assign([A, B])
    return made


def test_topics_and_partitions_do_not_go_together(subscription: Subscription) -> None:
    with pytest.raises(RuntimeError, match="unsubscribe first"):
        subscription.subscribe(["t"], None)
    with pytest.raises(RuntimeError, match="unsubscribe first"):
        subscription.subscribe_pattern(None)
    assert subscription.mode is Mode.ASSIGNED
    subscription.unsubscribe()
    subscription.subscribe(["t"], None)
    subscription.subscribe_pattern(None)  # both are the group's
    with pytest.raises(RuntimeError, match="unsubscribe first"):
        subscription.assign([A])


def test_a_topic_needs_a_name() -> None:
    with pytest.raises(ValueError, match="name"):
        Subscription().subscribe(["t", " "], None)


def test_what_stays_assigned_stays_where_it_is(subscription: Subscription) -> None:
    state = subscription.state(A)
    state.seek(Position(7))
    subscription.set_partitions([A, C])
    assert subscription.state(A) is state
    assert subscription.state(C).phase is Phase.UNKNOWN
    with pytest.raises(ValueError, match="not assigned"):
        subscription.state(B)
    subscription.check_invariants()


def test_what_comes_back_begins_anew(subscription: Subscription) -> None:
    old = subscription.state(A)
    version = old.version
    subscription.drop([A])
    subscription.set_partitions([A])
    assert subscription.find(A, version) is None, "what was asked for it before is stale"


def test_a_seek_makes_what_was_fetched_stale(subscription: Subscription) -> None:
    state = subscription.state(A)
    state.seek(Position(7))
    version = state.version
    state.advance(Position(8))
    assert subscription.find(A, version) is state, "reading on does not"
    state.seek(Position(8))
    assert subscription.find(A, version) is None
    subscription.check_invariants()


def test_a_reset_is_taken_only_if_it_is_still_wanted(subscription: Subscription) -> None:
    state = subscription.state(A)
    state.reset_to(EARLIEST)
    subscription.check_invariants()
    state.reset_to(LATEST)
    state.on_reset(EARLIEST, Position(0), 1)
    assert state.phase is Phase.RESETTING
    state.on_reset(LATEST, Position(9), 1)
    assert (state.phase, state.position) == (Phase.FETCHING, Position(9))
    state.on_reset(LATEST, Position(10), 1)
    assert state.position == Position(9)
    subscription.check_invariants()


def test_a_new_leader_has_to_validate_what_was_read(subscription: Subscription) -> None:
    state = subscription.state(A)
    state.seek(Position(7, epoch=2))
    state.on_leader_epoch(2)
    assert can_fetch(state), "it is the leader that it was read from"
    state.on_leader_epoch(3)
    assert state.phase is Phase.VALIDATING
    assert not can_fetch(state)
    state.on_validated(3)
    assert can_fetch(state)
    state.on_leader_epoch(3)
    assert can_fetch(state), "once is enough"
    state.on_leader_epoch(4)
    assert state.phase is Phase.VALIDATING
    state.seek(Position(1))
    state.on_validated(4)
    assert state.validated_epoch < 4, "that was about another position"
    subscription.check_invariants()


def test_without_an_epoch_there_is_nothing_to_validate(subscription: Subscription) -> None:
    state = subscription.state(A)
    state.seek(Position(7))
    state.on_leader_epoch(5)
    assert can_fetch(state)


def test_what_failed_waits_for_its_own_time(subscription: Subscription) -> None:
    first, second = subscription.state(A), subscription.state(B)
    first.on_failure(100.0)
    assert list(subscription.in_phase(Phase.UNKNOWN, 50.0)) == [second]
    assert subscription.next_retry_ms(50.0) == 100.0
    assert list(subscription.in_phase(Phase.UNKNOWN, 100.0)) == [first, second]
    assert subscription.next_retry_ms(100.0) is None
    first.on_success()
    assert first.failures == 0


def test_what_is_paused_or_held_is_not_fetched(subscription: Subscription) -> None:
    state = subscription.state(A)
    state.seek(Position(0))
    assert can_fetch(state)
    state.is_paused = True
    assert not can_fetch(state)
    state.is_paused, state.is_held = False, True
    assert not can_fetch(state)


def test_a_pattern_says_when_it_matches_something_else() -> None:
    subscription = Subscription()
    subscription.subscribe_pattern(RebalanceListener())
    assert subscription.match({"a", "b"})
    assert not subscription.match({"b", "a"})
    assert subscription.match(set())
