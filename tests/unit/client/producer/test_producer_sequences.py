"""Sequences: who may follow whom, and what an answer means for those behind."""

from collections.abc import Callable

import pytest

from odradek.client.producer.batch import ProducerBatch, ProducerIdAndEpoch
from odradek.client.producer.delivery import Refusal
from odradek.client.producer.sequences import EPOCH_MAX, Sequences
from odradek.client.producer.transaction import (
    Transaction,
    TransactionAbortedError,
    TransactionState,
)
from odradek.core.errors import ErrorCode
from tests.unit.client.producer.producer_core import PRODUCER, Core

MakeCore = Callable[..., Core]


@pytest.fixture
def core(make_core: MakeCore) -> Core:
    """Has had its first batch acknowledged, so that others may follow each other."""
    made = make_core(
        linger_ms=0, retry_backoff_ms=0, request_timeout_ms=10, delivery_timeout_ms=1000
    )
    made.new_batch()
    (first,) = made.drain()
    made.delivery.on_delivered(first, 0, -1)
    return made


def sequences_of(core: Core) -> Sequences:
    assert core.sequences is not None
    return core.sequences


def send_three(core: Core) -> list[ProducerBatch]:
    for number in range(3):
        core.new_batch(now_ms=number)
    return [core.drain()[0] for _ in range(3)]


def refuse(core: Core, batch: ProducerBatch, code: ErrorCode) -> None:
    core.delivery.on_refused(batch, Refusal(code, log_start_offset=0), 0)


def test_nothing_follows_the_first_batch_before_its_answer(make_core: MakeCore) -> None:
    core = make_core(linger_ms=0)
    core.new_batch()
    core.new_batch()
    (first,) = core.drain()
    assert core.drain() == []
    core.delivery.on_delivered(first, 0, -1)
    (second,) = core.drain()
    assert (first.base_sequence, second.base_sequence) == (0, 1)


def test_nothing_is_sent_without_a_producer_id(make_core: MakeCore) -> None:
    core = make_core(linger_ms=0)
    sequences_of(core).producer = ProducerIdAndEpoch(-1, -1)
    core.send()
    assert core.drain() == []


def test_retries_go_one_at_a_time_under_their_old_sequences(core: Core) -> None:
    first, second, third = send_three(core)
    before = [each.base_sequence for each in (first, second, third)]
    refuse(core, first, ErrorCode.NOT_ENOUGH_REPLICAS)
    for each in (second, third):
        refuse(core, each, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    for expected in (first, second, third):
        assert core.drain() == [expected]
        assert core.drain() == []
        core.delivery.on_delivered(expected, 0, -1)
    assert [each.base_sequence for each in (first, second, third)] == before == [1, 2, 3]
    assert sequences_of(core).producer == PRODUCER


def test_a_gap_begins_a_new_epoch_when_all_have_answered(core: Core) -> None:
    first, second, third = send_three(core)
    refuse(core, first, ErrorCode.INVALID_RECORD)
    core.delivery.resolve_sequences()
    assert sequences_of(core).producer == PRODUCER, "two are on the wire"
    refuse(core, second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    refuse(core, third, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    core.delivery.resolve_sequences()
    assert sequences_of(core).producer == ProducerIdAndEpoch(7, 1)
    assert [second.base_sequence, third.base_sequence] == [0, 1]
    assert second.producer == third.producer == ProducerIdAndEpoch(7, 1)
    assert core.drain() == [second]


def test_a_batch_given_up_in_doubt_is_resolved_by_the_next(core: Core) -> None:
    first, second, third = send_three(core)
    core.delivery.expire(1000)
    assert first.is_done
    core.new_batch(now_ms=1000)
    assert core.drain() == [], "what became of the first is not known"
    core.delivery.on_delivered(second, 2, -1)
    core.delivery.on_delivered(third, 3, -1)
    core.delivery.resolve_sequences()
    (fourth,) = core.drain()
    assert (fourth.base_sequence, fourth.producer) == (4, PRODUCER)


def test_a_batch_given_up_that_never_arrived_begins_a_new_epoch(core: Core) -> None:
    _, *others = send_three(core)
    core.delivery.expire(1000)
    for each in others:
        refuse(core, each, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    core.delivery.resolve_sequences()
    assert sequences_of(core).producer == ProducerIdAndEpoch(7, 1)
    assert [each.base_sequence for each in others] == [0, 1]


def test_all_given_up_begins_a_new_epoch(core: Core) -> None:
    send_three(core)
    core.delivery.expire(2000)
    core.delivery.resolve_sequences()
    core.new_batch(now_ms=2000)
    (batch,) = core.drain(2000)
    assert (batch.producer, batch.base_sequence) == (ProducerIdAndEpoch(7, 1), 0)


def test_after_the_last_epoch_comes_another_id(core: Core) -> None:
    sequences = sequences_of(core)
    sequences.producer = ProducerIdAndEpoch(7, EPOCH_MAX)
    core.new_batch()
    (batch,) = core.drain()
    refuse(core, batch, ErrorCode.UNKNOWN_PRODUCER_ID)
    core.delivery.resolve_sequences()
    assert sequences.needs_producer_id
    assert core.drain() == []
    sequences.set_producer(ProducerIdAndEpoch(8, 0))
    assert core.drain() == [batch]
    assert (batch.producer, batch.base_sequence) == (ProducerIdAndEpoch(8, 0), 0)


def test_sequences_go_on_at_zero_after_the_largest(core: Core) -> None:
    state = sequences_of(core).of(core.accumulator.topic("t").of(0).partition)
    state.next_sequence, state.last_acked_sequence = 2**31 - 2, 2**31 - 3
    core.send()
    core.send()
    core.send()
    (wide,) = core.drain()
    assert (wide.base_sequence, wide.last_sequence) == (2**31 - 2, 0)
    core.delivery.on_delivered(wide, 0, -1)
    core.new_batch()
    (following,) = core.drain()
    assert following.base_sequence == 1
    refuse(core, following, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    core.delivery.resolve_sequences()
    assert sequences_of(core).producer.epoch == 1, "it was the next one, so there is a gap"


def test_other_partitions_take_the_new_epoch_when_they_have_nothing_under_way(
    make_core: MakeCore,
) -> None:
    core = make_core(linger_ms=0)
    core.set_leaders({0: 1, 1: 1})
    core.new_batch(0)
    core.new_batch(1)
    bad, slow = core.drain()
    refuse(core, bad, ErrorCode.INVALID_RECORD)
    core.delivery.resolve_sequences()
    core.new_batch(1)
    assert core.drain() == []
    core.delivery.on_delivered(slow, 0, -1)
    (after,) = core.drain()
    assert (after.producer.epoch, after.base_sequence) == (1, 0)


def fail_the_second_of_three(core: Core) -> tuple[ProducerBatch, ProducerBatch]:
    """The first may be in the log, the third certainly is not."""
    first, bad, last = send_three(core)
    refuse(core, first, ErrorCode.REQUEST_TIMED_OUT)
    refuse(core, bad, ErrorCode.INVALID_RECORD)
    refuse(core, last, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    core.delivery.resolve_sequences()
    return first, last


def test_what_was_sent_before_a_refused_batch_is_tried_under_its_old_number(core: Core) -> None:
    first, last = fail_the_second_of_three(core)
    assert core.drain() == [first]
    assert (first.producer.epoch, first.base_sequence) == (0, 1)
    core.delivery.resolve_sequences()
    assert core.drain() == []
    core.delivery.on_delivered(first, 1, -1)
    core.delivery.resolve_sequences()
    assert core.drain() == [last]
    assert (last.producer.epoch, last.base_sequence) == (1, 0)


def test_a_batch_that_is_not_in_the_log_goes_over_to_the_new_epoch(core: Core) -> None:
    first, last = fail_the_second_of_three(core)
    core.drain()
    refuse(core, first, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    core.delivery.resolve_sequences()
    assert core.drain() == [first]
    assert (first.producer.epoch, first.base_sequence) == (1, 0)
    core.delivery.on_delivered(first, 1, -1)
    assert core.drain() == [last]
    assert (last.producer.epoch, last.base_sequence) == (1, 1)


def test_a_late_answer_to_an_old_epoch_is_not_taken_for_one_to_the_new(core: Core) -> None:
    first, _, _ = send_three(core)
    core.delivery.expire(2000)
    core.delivery.resolve_sequences()
    core.new_batch(now_ms=2000)
    (new,) = core.drain(2000)
    core.delivery.on_delivered(first, 1, -1)
    state = sequences_of(core).of(new.partition)
    assert state.last_acked_sequence == -1


@pytest.mark.parametrize("is_on_wire", [True, False])
def test_an_abort_that_drops_a_sent_batch_asks_for_an_epoch_before_version_2(
    make_core: MakeCore, is_on_wire: bool
) -> None:
    transaction = Transaction("tx")
    transaction.state = TransactionState.IN_TRANSACTION
    core = make_core(linger_ms=0, transaction=transaction, transactional_id="tx")
    future = core.send()
    (batch,) = core.drain()
    if not is_on_wire:
        refuse(core, batch, ErrorCode.NOT_ENOUGH_REPLICAS)
    transaction.start_abort()
    core.delivery.on_transaction_lost()
    if is_on_wire:
        assert not future.done()
        refuse(core, batch, ErrorCode.NOT_ENOUGH_REPLICAS)
    assert isinstance(future.exception(), TransactionAbortedError)
    assert transaction.needs_epoch
    assert not core.accumulator.incomplete
