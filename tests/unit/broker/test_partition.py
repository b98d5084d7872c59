"""One place commits, in order, and answers each that waits exactly once."""

from collections.abc import Callable, Iterator

import pytest

from odradek.broker import partition as partition_module
from odradek.broker.commit_wait import CommitWait
from odradek.broker.delayed import DelayedOperations
from odradek.broker.partition import Partition
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from odradek.replication.leadership import Registration
from odradek.testing.broker import Broker
from tests.storage_batches import BASE_TIME_MS, make_batch
from tests.unit.broker.held_commits import partition_of

NONE = ErrorCode.NONE
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
MANY = 5_000
Test = Callable[[Partition], None]


@pytest.fixture
def on_loop() -> Iterator[Callable[[Test], None]]:
    """Runs a test on the loop of a broker, with a partition whose commits are held."""
    with Broker(topics=["t"], memory=True) as broker:
        led = partition_of(broker.node.broker, TopicPartition("t", 0))
        broker.hold_commits("t")

        def run(test: Test) -> None:
            def checked() -> None:
                test(led)
                led.check_invariants()

            broker._call(checked)

        yield run


def append(led: Partition, count: int = 1) -> None:
    for _ in range(count):
        led.append(make_batch([b"v"]), now_ms=BASE_TIME_MS)


def test_waiters_are_answered_in_the_order_of_their_offsets(
    on_loop: Callable[[Test], None],
) -> None:
    def test(led: Partition) -> None:
        answered: list[tuple[int, ErrorCode]] = []
        append(led, 4)
        for offset in (1, 3, 2, 4):  # the third is a duplicate's: it waits with the one before
            led.when_committed(offset, lambda code, at=offset: answered.append((at, code)))  # type: ignore[misc]
        led.advance_high_watermark(2)
        assert answered == [(1, NONE)]
        led.advance_high_watermark(3)
        assert answered == [(1, NONE), (3, NONE), (2, NONE)]
        led.advance_high_watermark(4)
        assert answered[-1] == (4, NONE)
        led.when_committed(1, lambda code: answered.append((0, code)))
        assert answered[-1] == (0, NONE), "what is committed need not be waited for"

    on_loop(test)


def test_the_high_watermark_of_a_leader_never_goes_back(on_loop: Callable[[Test], None]) -> None:
    def test(led: Partition) -> None:
        append(led, 3)
        led.advance_high_watermark(3)
        led.advance_high_watermark(1)
        assert led.log.high_watermark == 3

    on_loop(test)


def test_waiters_that_bring_appends_do_not_pile_up_on_the_stack(
    on_loop: Callable[[Test], None],
) -> None:
    def test(led: Partition) -> None:
        answered = []

        def answer(code: ErrorCode) -> None:
            answered.append(code)
            append(led)  # the next request of the connection, alone: committed at once
            led.advance_high_watermark(led.log.log_end_offset)

        append(led, 1)
        for number in range(MANY):
            led.when_committed(1, lambda code, _number=number: answer(code))  # type: ignore[misc]
        led.advance_high_watermark(1)
        assert answered == [NONE] * MANY
        assert led.log.high_watermark == led.log.log_end_offset == MANY + 1

    on_loop(test)


def test_a_coordinator_is_called_after_each_move_and_not_inside_another(
    on_loop: Callable[[Test], None],
) -> None:
    def test(led: Partition) -> None:
        seen: list[int] = []
        depth = 0

        def advanced() -> None:
            nonlocal depth
            assert depth == 0
            depth += 1
            seen.append(led.log.high_watermark)
            if len(seen) < 3:
                append(led)
                led.advance_high_watermark(led.log.log_end_offset)
            depth -= 1

        append(led)
        led.on_advanced = advanced
        led.advance_high_watermark(1)
        assert seen == [1, 2, 3]
        led.on_advanced = None

    on_loop(test)


def test_who_resigns_answers_all_and_takes_no_more(on_loop: Callable[[Test], None]) -> None:
    def test(led: Partition) -> None:
        answered: list[ErrorCode] = []
        append(led)
        led.when_committed(1, answered.append)
        led.resign(led.leader_epoch + 1)
        led.when_committed(1, lambda code: answered.append(code))
        assert answered == [NOT_LEADER, NOT_LEADER]
        epoch = led.leader_epoch + 1
        led.lead(Registration(epoch, partition_epoch=9, replicas=(1,), isr=(1,)))
        assert led.leadership is not None
        assert led.leadership.epoch_start_offset == 1

    on_loop(test)


def test_there_are_only_so_many_waiters(
    on_loop: Callable[[Test], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_module, "WAITERS_MAX", 1)

    def test(led: Partition) -> None:
        answered: list[ErrorCode] = []
        append(led)
        led.when_committed(1, answered.append)
        led.when_committed(1, lambda code: answered.append(code))
        assert answered == [ErrorCode.REQUEST_TIMED_OUT]
        led.advance_high_watermark(1)
        assert answered[1:] == [NONE]

    on_loop(test)


def test_who_has_given_up_leaves_nothing_behind(on_loop: Callable[[Test], None]) -> None:
    def test(led: Partition) -> None:
        answered: list[list[ErrorCode]] = []
        delayed = DelayedOperations()
        append(led)
        CommitWait(delayed, 50, [(led, 1), (led, 1)], answered.append)
        assert (len(led._waiters), len(delayed)) == (2, 1)
        delayed.tick(50)
        assert answered == [[ErrorCode.REQUEST_TIMED_OUT] * 2]
        assert (len(led._waiters), len(delayed)) == (0, 0)
        led.advance_high_watermark(1)
        assert len(answered) == 1

    on_loop(test)
