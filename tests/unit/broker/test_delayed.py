"""Waiting requests complete once: by their event, by their deadline, or when the node stops."""

from collections.abc import Callable

from odradek.broker.delayed import DONE_KEPT_MAX, DelayedOperation, DelayedOperations


class Wait(DelayedOperation):
    __slots__ = ("completed", "on_complete", "ready")

    def __init__(self, deadline_ms: int, *keys: str) -> None:
        super().__init__(deadline_ms, keys)
        self.ready = False
        self.completed = 0
        self.on_complete: Callable[[], None] = lambda: None

    def can_complete(self) -> bool:
        return self.ready

    def complete(self) -> None:
        self.completed += 1
        self.on_complete()


def test_completes_at_once_if_it_can() -> None:
    operations = DelayedOperations()
    wait = Wait(100, "a")
    wait.ready = True
    operations.wait(wait)
    assert (wait.completed, len(operations)) == (1, 0)


def test_an_event_completes_only_those_that_can() -> None:
    operations = DelayedOperations()
    first, second, other = Wait(100, "a"), Wait(100, "a"), Wait(100, "b")
    for wait in (first, second, other):
        operations.wait(wait)
    first.ready = other.ready = True
    operations.notify("a")
    assert [w.completed for w in (first, second, other)] == [1, 0, 0]
    operations.check_invariants()


def test_the_deadline_completes_what_is_left() -> None:
    operations = DelayedOperations()
    early, late = Wait(100, "a"), Wait(200, "a")
    operations.wait(late)
    operations.wait(early)
    assert operations.next_deadline_ms() == 100
    operations.tick(99)
    assert early.completed == 0
    operations.tick(100)
    assert (early.completed, late.completed) == (1, 0)
    assert operations.next_deadline_ms() == 200


def test_completes_once_however_many_keys_speak() -> None:
    operations = DelayedOperations()
    wait = Wait(100, "a", "b")
    operations.wait(wait)
    wait.ready = True
    operations.notify("a")
    operations.notify("b")
    operations.tick(1000)
    assert wait.completed == 1
    assert operations.next_deadline_ms() is None


def test_the_owner_hears_of_an_earlier_deadline() -> None:
    armed: list[int] = []
    operations = DelayedOperations(armed.append)
    for deadline_ms in (300, 100, 200):
        operations.wait(Wait(deadline_ms, "a"))
    assert armed == [300, 100]


def test_an_event_caused_by_completing_is_seen_after_it() -> None:
    operations = DelayedOperations()
    first, second = Wait(100, "a"), Wait(100, "b")
    operations.wait(first)
    operations.wait(second)

    def produce() -> None:
        second.ready = True
        operations.notify("b")
        assert second.completed == 0, "not while the first is half-way"

    first.on_complete = produce
    first.ready = True
    operations.notify("a")
    assert second.completed == 1


def test_stopping_answers_everybody() -> None:
    operations = DelayedOperations()
    waits = [Wait(100 * i, "a", str(i)) for i in range(5)]
    for wait in waits:
        operations.wait(wait)
    operations.complete_all()
    assert [w.completed for w in waits] == [1] * 5
    assert len(operations) == 0
    operations.check_invariants()


def test_an_operation_that_knows_by_itself_is_finished_once() -> None:
    operations = DelayedOperations()
    wait = Wait(100)
    operations.wait(wait)
    operations.finish(wait)
    operations.finish(wait)
    operations.tick(100)
    assert (wait.completed, len(operations), operations.next_deadline_ms()) == (1, 0, None)


def test_deadlines_of_what_is_done_do_not_pile_up() -> None:
    """A produce with acks=all has a deadline of half a minute, and is done in a millisecond."""
    operations = DelayedOperations()
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
