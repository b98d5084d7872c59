"""When batches are ready, in which order they go, and what happens to those that come back."""

from collections.abc import Callable

import pytest

from odradek.client.errors import BrokerError, KafkaTimeoutError
from odradek.client.producer.accumulator import NEVER
from odradek.client.producer.delivery import Refusal
from odradek.core.errors import ErrorCode
from odradek.records import parse_header, read_records
from tests.unit.client.producer.producer_core import Core

MakeCore = Callable[..., Core]


@pytest.mark.seed_row("4.7")
def test_a_batch_is_ready_when_it_has_lingered(make_core: MakeCore) -> None:
    core = make_core(linger_ms=5)
    core.send(now_ms=100)
    ready = core.accumulator.ready(core.metadata, 104)
    assert not ready.nodes
    assert ready.next_check_ms == 105
    assert core.ready_nodes(105) == {1}


@pytest.mark.seed_row("4.7")
def test_a_batch_is_ready_when_it_is_full(make_core: MakeCore) -> None:
    core = make_core(linger_ms=1000, batch_size=500)
    for _ in range(4):
        core.send(b"x" * 100)
        assert core.ready_nodes(0) == (set() if _ < 3 else {1})


def test_a_hurry_and_a_sender_without_memory_wait_for_nothing(make_core: MakeCore) -> None:
    core = make_core(linger_ms=1000, buffer_memory=16_384)
    core.send()
    assert not core.ready_nodes(0)
    core.accumulator.hurry(+1)
    assert core.ready_nodes(0) == {1}
    core.accumulator.hurry(-1)
    assert not core.ready_nodes(0)
    core.accumulator.pool.wait(16_384, lambda: None)
    assert core.ready_nodes(0) == {1}


def test_a_partition_without_a_leader_is_named(make_core: MakeCore) -> None:
    core = make_core(linger_ms=0)
    core.set_leaders({0: -1})
    core.send()
    ready = core.accumulator.ready(core.metadata, 1)
    assert (ready.nodes, ready.leaderless, ready.next_check_ms) == ({}, {"t"}, NEVER)


def test_a_ready_partition_takes_its_leaders_others_along(make_core: MakeCore) -> None:
    core = make_core(linger_ms=1000)
    core.set_leaders({0: 1, 1: 1, 2: 2})
    core.send(partition=0, now_ms=0)
    core.send(partition=1, now_ms=900)
    core.send(partition=2, now_ms=900)
    assert [each.partition.partition for each in core.drain(1000, node=1)] == [0, 1]
    assert core.drain(1000, node=2) == []


def test_a_request_has_a_size_and_the_next_begins_with_who_had_no_room(
    make_core: MakeCore,
) -> None:
    core = make_core(linger_ms=0, max_request_size=1000)
    core.set_leaders({0: 1, 1: 1, 2: 1})
    for partition in (0, 1, 2, 0, 1, 2):
        core.new_batch(partition)
        core.send(b"x" * 350, partition)
    order = [[each.partition.partition for each in core.drain()] for _ in range(2)]
    assert order == [[0, 1], [2]]  # without an answer no partition may go on


def test_what_is_sent_again_goes_before_what_came_later(make_core: MakeCore) -> None:
    core = make_core(linger_ms=0, enable_idempotence=False)
    for _ in range(4):
        core.new_batch()
    sent = [core.drain()[0] for _ in range(3)]
    for batch in sent:  # answers come in order, and so do failures
        core.delivery.on_refused(batch, Refusal(ErrorCode.NETWORK_EXCEPTION), 0)
    again = [core.drain()[0].order for _ in range(4)]
    assert again == sorted(again)


def test_a_batch_backs_off_longer_each_time_unless_the_leader_moved(make_core: MakeCore) -> None:
    core = make_core(linger_ms=0, retry_backoff_ms=100, retry_backoff_max_ms=1000)
    core.send()
    waits = []
    for _ in range(5):
        (batch,) = core.drain()
        core.delivery.on_refused(batch, Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER), 0, 0)
        waits.append(batch.not_before_ms)
        assert not core.ready_nodes(batch.not_before_ms - 1)
        assert core.ready_nodes(batch.not_before_ms + 1) == {1}
    for wait, expected in zip(waits, (100, 200, 400, 800, 1000), strict=True):
        assert 0.8 * expected <= wait <= 1.2 * expected
    core.set_leaders({0: 2}, epoch=1)
    assert core.ready_nodes(0) == {2}


def test_one_request_at_a_time_means_one_batch_of_a_partition_anywhere(
    make_core: MakeCore,
) -> None:
    core = make_core(linger_ms=0, enable_idempotence=False, max_in_flight_requests_per_connection=1)
    core.new_batch()
    core.new_batch()
    (first,) = core.drain()
    core.set_leaders({0: 2})
    assert core.drain(node=2) == []
    core.delivery.on_delivered(first, 0, -1)
    assert len(core.drain(node=2)) == 1


def test_too_large_batches_are_halved_until_they_fit(make_core: MakeCore) -> None:
    core = make_core(linger_ms=0, batch_size=1000)
    futures = [core.send(b"%0100d" % number) for number in range(6)]
    sizes: list[int] = []
    found: list[bytes | None] = []
    while batches := core.drain():
        (batch,) = batches
        sizes.append(batch.count)
        if batch.count > 1:
            core.delivery.on_refused(batch, Refusal(ErrorCode.MESSAGE_TOO_LARGE), 0)
            continue
        header = parse_header(batch.build())
        assert header.base_sequence == len(found)
        found += [each.value for each in read_records(batch.build(), header)]
        core.delivery.on_delivered(batch, len(found) - 1, -1)
        core.accumulator.check_invariants()
    assert found == [b"%0100d" % number for number in range(6)]
    assert sizes[0] == 6
    assert max(sizes[1:]) < 6
    assert [each.result().offset for each in futures] == list(range(6))
    assert core.accumulator.pool.free_bytes == core.accumulator.pool.total_bytes


def test_a_flush_waits_for_the_parts_of_a_split_batch(make_core: MakeCore) -> None:
    core = make_core(linger_ms=0, batch_size=1000)
    for _ in range(4):
        core.send(b"x" * 100)
    done = core.loop.create_future()
    core.accumulator.flush(done)
    (whole,) = core.drain()
    core.delivery.on_refused(whole, Refusal(ErrorCode.MESSAGE_TOO_LARGE), 0)
    while batches := core.drain():
        assert not done.done()
        core.delivery.on_delivered(batches[0], 0, -1)
    assert done.done()


def test_what_waits_too_long_fails_and_says_why(make_core: MakeCore) -> None:
    core = make_core(linger_ms=0, request_timeout_ms=10, delivery_timeout_ms=1000)
    future = core.send(now_ms=0)
    (batch,) = core.drain(1)
    core.delivery.on_refused(batch, Refusal(ErrorCode.NOT_ENOUGH_REPLICAS), 2)
    assert core.accumulator.next_expiry_ms() == 1000
    core.delivery.expire(999)
    assert not future.done()
    core.delivery.expire(1000)
    with pytest.raises(KafkaTimeoutError) as late:
        future.result()
    assert str(late.value) == (
        "t-0: 1 records were not delivered within 1000 ms, last refused with NOT_ENOUGH_REPLICAS"
        " (start the replicas that are not in sync, which `odradek local status --bootstrap-server"
        " HOST:PORT` names, or wait until they have caught up)"
    )
    assert core.accumulator.pool.free_bytes == core.accumulator.pool.total_bytes


def test_memory_of_a_batch_that_expires_on_the_wire_is_free_when_it_is_back(
    make_core: MakeCore,
) -> None:
    core = make_core(linger_ms=0, request_timeout_ms=10, delivery_timeout_ms=1000)
    future = core.send()
    (batch,) = core.drain()
    core.delivery.expire(1000)
    assert future.done()
    assert core.accumulator.pool.free_bytes < core.accumulator.pool.total_bytes
    core.delivery.on_delivered(batch, 0, -1)
    assert core.accumulator.pool.free_bytes == core.accumulator.pool.total_bytes
    assert isinstance(future.exception(), KafkaTimeoutError)


def test_records_that_a_broker_names_have_their_own_error(make_core: MakeCore) -> None:
    core = make_core(linger_ms=0)
    futures = [core.send() for _ in range(3)]
    (batch,) = core.drain()
    refusal = Refusal(ErrorCode.INVALID_RECORD, "of the batch", by_record={1: "no key"})
    core.delivery.on_refused(batch, refusal, 0)
    errors = [each.exception() for each in futures]
    assert all(isinstance(each, BrokerError) for each in errors)
    assert "no key" in str(errors[1])
    assert "another record" in str(errors[0])
    assert errors[0] is errors[2]


def test_retries_are_counted(make_core: MakeCore) -> None:
    core = make_core(linger_ms=0, retries=2, retry_backoff_ms=0)
    future = core.send()
    for _ in range(3):
        assert not future.done()
        (batch,) = core.drain()
        core.delivery.on_refused(batch, Refusal(ErrorCode.NOT_ENOUGH_REPLICAS), 0)
    assert isinstance(future.exception(), BrokerError)
