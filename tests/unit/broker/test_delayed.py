"""Waiting requests complete once: by their event, by their deadline, or when the node stops."""

from collections.abc import Callable

from odradek.broker.delayed import (
    DONE_KEPT_MAX,
    LOOKED_AT_MAX,
    DelayedOperation,
    DelayedOperations,
)


class Wait(DelayedOperation):
    __slots__ = ("completed", "on_complete", "ready")

    def __init__(self, deadline_ms: int) -> None:
        super().__init__(deadline_ms)
        self.ready = False
        self.completed = 0
        self.on_complete: Callable[[], None] = lambda: None

    def can_complete(self) -> bool:
        return self.ready

    def complete(self) -> None:
        self.completed += 1
        self.on_complete()


def test_completes_at_once_if_it_can() -> None:
    operations = DelayedOperations(call_soon=lambda _: None)
    wait = Wait(100)
    wait.ready = True
    operations.wait(wait)
    assert (wait.completed, len(operations)) == (1, 0)


def test_of_those_that_are_woken_only_those_complete_that_can() -> None:
    turns: list[Callable[[], None]] = []
    operations = DelayedOperations(call_soon=turns.append)
    first, second, asleep = Wait(100), Wait(100), Wait(100)
    for wait in (first, second, asleep):
        operations.wait(wait)
    first.ready = asleep.ready = True
    operations.wake(first)
    operations.wake(second)
    assert first.completed == 0, "not before the next turn"
    assert len(turns) == 1
    turns.pop()()
    assert [w.completed for w in (first, second, asleep)] == [1, 0, 0]
    operations.wake(second)
    assert len(turns) == 1
    operations.check_invariants()


def test_what_is_woken_often_in_a_turn_is_looked_at_once() -> None:
    operations = DelayedOperations(call_soon=lambda _: None)
    looks: list[None] = []

    class Counted(Wait):
        def can_complete(self) -> bool:
            looks.append(None)
            return False

    wait = Counted(100)
    operations.wait(wait)
    for _ in range(10):
        operations.wake(wait)
    operations.look()
    assert len(looks) == 2, "once when it came, and once now"


def test_many_that_are_woken_take_several_turns() -> None:
    turns: list[Callable[[], None]] = []
    operations = DelayedOperations(call_soon=turns.append)
    waits = [Wait(100) for _ in range(LOOKED_AT_MAX + 1)]
    for wait in waits:
        operations.wait(wait)
        wait.ready = True
        operations.wake(wait)
    turns.pop()()
    assert sum(wait.completed for wait in waits) == LOOKED_AT_MAX
    turns.pop()()
    assert sum(wait.completed for wait in waits) == LOOKED_AT_MAX + 1
    assert turns == []


def test_the_deadline_completes_what_is_left() -> None:
    operations = DelayedOperations(call_soon=lambda _: None)
    early, late = Wait(100), Wait(200)
    operations.wait(late)
    operations.wait(early)
    assert operations.next_deadline_ms() == 100
    operations.tick(99)
    assert early.completed == 0
    operations.tick(100)
    assert (early.completed, late.completed) == (1, 0)
    assert operations.next_deadline_ms() == 200


def test_completes_once_however_often_it_is_woken() -> None:
    operations = DelayedOperations(call_soon=lambda _: None)
    wait = Wait(100)
    operations.wait(wait)
    wait.ready = True
    operations.wake(wait)
    operations.look()
    operations.wake(wait)
    operations.look()
    operations.tick(1000)
    assert wait.completed == 1
    assert operations.next_deadline_ms() is None


def test_the_owner_hears_of_an_earlier_deadline() -> None:
    armed: list[int] = []
    operations = DelayedOperations(armed.append, lambda _: None)
    for deadline_ms in (300, 100, 200):
        operations.wait(Wait(deadline_ms))
    assert armed == [300, 100]


def test_an_event_caused_by_completing_is_seen_after_it() -> None:
    operations = DelayedOperations(call_soon=lambda _: None)
    first, second = Wait(100), Wait(100)
    operations.wait(first)
    operations.wait(second)

    def produce() -> None:
        second.ready = True
        operations.wake(second)
        assert second.completed == 0, "not while the first is half-way"

    first.on_complete = produce
    first.ready = True
    operations.wake(first)
    operations.look()
    operations.look()
    assert second.completed == 1


def test_stopping_answers_everybody() -> None:
    operations = DelayedOperations(call_soon=lambda _: None)
    waits = [Wait(100 * i) for i in range(5)]
    for wait in waits:
        operations.wait(wait)
    operations.complete_all()
    assert [w.completed for w in waits] == [1] * 5
    assert len(operations) == 0
    operations.check_invariants()


def test_an_operation_that_knows_by_itself_is_finished_once() -> None:
    operations = DelayedOperations(call_soon=lambda _: None)
    wait = Wait(100)
    operations.wait(wait)
    operations.finish(wait)
    operations.finish(wait)
    operations.tick(100)
    assert (wait.completed, len(operations), operations.next_deadline_ms()) == (1, 0, None)


def test_deadlines_of_what_is_done_do_not_pile_up() -> None:
    """A produce with acks=all has a deadline of half a minute, and is done in a millisecond."""
    operations = DelayedOperations(call_soon=lambda _: None)
    lasting = [Wait(5_000_000 + number) for number in range(10)]
    for wait in lasting:
        operations.wait(wait)
    for number in range(10 * DONE_KEPT_MAX):
        wait = Wait(1_000_000 - number)
        operations.wait(wait)
        operations.finish(wait)
        assert len(operations._deadlines) <= 2 * len(operations) + DONE_KEPT_MAX
    operations.check_invariants()
    operations.tick(5_000_003)
    assert [wait.completed for wait in lasting] == [1] * 4 + [0] * 6
    operations.check_invariants()
