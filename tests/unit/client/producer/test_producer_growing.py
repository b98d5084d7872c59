"""Batches that are full and wait: one larger request for several, unless that is not wanted."""

from collections.abc import Callable

from odradek.client.producer.batch import ProducerBatch
from odradek.client.producer.delivery import Refusal
from odradek.core.errors import ErrorCode
from odradek.records import parse_header, read_records
from tests.unit.client.producer.producer_core import Core

MakeCore = Callable[..., Core]
BATCH_SIZE = 16_384
RECORD = b"x" * 1000
IN_A_BATCH = 16


def fill(core: Core, batches: int) -> None:
    for _ in range(batches * IN_A_BATCH):
        core.send(RECORD)


def counts(batches: list[ProducerBatch]) -> list[int]:
    return [each.count for each in batches]


def test_a_full_batch_that_was_not_sent_grows_up_to_four_times_its_size(
    make_core: MakeCore,
) -> None:
    core = make_core()
    fill(core, 6)
    queue = core.accumulator.topic("t").of(0)
    first, second = queue.batches
    assert 3 * BATCH_SIZE < first.size <= 4 * BATCH_SIZE
    assert first.reserved_bytes == 4 * BATCH_SIZE
    assert first.count + second.count == 6 * IN_A_BATCH
    taken = core.accumulator.pool.total_bytes - core.accumulator.pool.free_bytes
    assert taken == first.reserved_bytes + second.reserved_bytes
    core.accumulator.check_invariants()
    while batches := core.drain():
        core.delivery.on_delivered(batches[0], 0, -1)
    assert core.accumulator.pool.free_bytes == core.accumulator.pool.total_bytes


def test_it_is_ready_from_when_it_was_full_the_first_time(make_core: MakeCore) -> None:
    core = make_core(linger_ms=1000)
    fill(core, 1)
    assert not core.ready_nodes(0)
    fill(core, 1)
    assert len(core.accumulator.topic("t").of(0).batches) == 1
    assert core.ready_nodes(0) == {1}


def test_a_batch_on_its_way_takes_no_more(make_core: MakeCore) -> None:
    core = make_core()
    fill(core, 2)
    (sent,) = core.drain()
    count = sent.count
    fill(core, 1)
    assert parse_header(sent.build()).records_count == sent.count == count
    core.delivery.on_refused(sent, Refusal(ErrorCode.NOT_ENOUGH_REPLICAS), 0)
    queue = core.accumulator.topic("t").of(0)
    while len(queue.batches) > 1:
        queue.batches.pop()
    assert not core.accumulator.grow(queue), "its bytes are final"


def test_who_chose_a_size_gets_no_larger_batches(make_core: MakeCore) -> None:
    core = make_core(batch_size=BATCH_SIZE)
    fill(core, 3)
    sizes = [each.size for each in core.accumulator.topic("t").of(0).batches]
    assert len(sizes) > 2
    assert max(sizes) <= BATCH_SIZE


def test_without_memory_it_stays_as_it_is(make_core: MakeCore) -> None:
    core = make_core(buffer_memory=2 * BATCH_SIZE)
    fill(core, 1)
    queue = core.accumulator.topic("t").of(0)
    assert not queue.batches[0].try_append(0, None, RECORD, (), core.loop.create_future())
    assert core.accumulator.pool.try_reserve(BATCH_SIZE)
    assert not core.accumulator.grow(queue)
    core.accumulator.pool.release(BATCH_SIZE)
    assert core.accumulator.grow(queue)


def test_a_topic_that_takes_no_large_batches_gets_no_more(make_core: MakeCore) -> None:
    core = make_core(linger_ms=0)
    fill(core, 3)
    (large,) = core.drain()
    assert large.size > 2 * BATCH_SIZE
    core.delivery.on_refused(large, Refusal(ErrorCode.MESSAGE_TOO_LARGE), 0)
    fill(core, 3)
    found = 0
    while batches := core.drain():
        (batch,) = batches
        assert batch.size <= BATCH_SIZE
        records = list(read_records(batch.build(), parse_header(batch.build())))
        core.delivery.on_delivered(batch, found, -1)
        found += len(records)
    assert found == 6 * IN_A_BATCH
