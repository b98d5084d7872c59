"""A table's rows as batches: what its one future tells, whatever becomes of the batches."""

import asyncio
from collections.abc import Callable

import pyarrow as pa
import pytest

from odradek.client.errors import BrokerError, KafkaError, KafkaTimeoutError
from odradek.client.producer import OffsetRange, RowsMetadata, RowsNotDeliveredError
from odradek.client.producer.batch import ProducerBatch
from odradek.client.producer.delivery import Refusal
from odradek.client.producer.row_batch import RowSpan, RowsReceipt
from odradek.core.errors import ErrorCode
from odradek.records import HEADER_BYTES, CompressionType, parse_header, read_records
from odradek.records.arrow import align_columns, encoder_for
from tests.unit.client.producer.producer_core import PRODUCER, Core

MakeCore = Callable[..., Core]


def order_of(*rows: int) -> memoryview:
    return memoryview(pa.array(rows, pa.int64()).buffers()[1]).cast("B").cast("q")


class Table:
    """Rows of which some go to partition 0 and some to 1, in batches of a few."""

    def __init__(self, core: Core, places: dict[int, list[int]], per_batch: int = 100) -> None:
        self.core = core
        rows = sum(map(len, places.values()))
        self.future: asyncio.Future[RowsMetadata] = core.loop.create_future()
        self.receipt = RowsReceipt("t", rows, self.future)
        (columns,) = align_columns(pa.array([b"%d" % row for row in range(rows)]))
        for partition, numbers in places.items():
            for start in range(0, len(numbers), per_batch):
                some = numbers[start : start + per_batch]
                encoder = encoder_for(columns, 1000, pa.array(some, pa.int64()))
                encoded = encoder.encode(0, 10_000, HEADER_BYTES)
                queue = core.accumulator.topic("t").of(partition)
                span = RowSpan(0, order_of(*some), 0)
                size = len(encoded.buffer)
                assert core.accumulator.pool.try_reserve(size)
                core.accumulator.append_rows(queue, encoded, span, self.receipt, size, 0)
        self.receipt.on_handed_over()

    def failure(self) -> RowsNotDeliveredError:
        error = self.future.exception()
        assert isinstance(error, RowsNotDeliveredError)
        return error


def values(batch: ProducerBatch) -> list[bytes | None]:
    records = batch.build()
    return [record.value for record in read_records(records, parse_header(records))]


def test_rows_are_ready_at_once_and_carry_who_sends_them(make_core: MakeCore) -> None:
    core = make_core(linger_ms=1000)
    Table(core, {0: [2, 0, 1]})
    (batch,) = core.drain(now_ms=0)
    header = parse_header(batch.build())
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (*PRODUCER, 0)
    assert header.records_count == batch.count == 3
    assert values(batch) == [b"2", b"0", b"1"]


def test_one_future_tells_where_all_rows_are(make_core: MakeCore) -> None:
    core = make_core()
    core.set_leaders({0: 1, 1: 1})
    table = Table(core, {0: [0, 2, 4], 1: [1, 3]}, per_batch=1)
    offsets = {0: [10, 12, 11], 1: [5, 6]}  # others wrote in between, and answers crossed
    while batches := core.drain():
        for batch in batches:
            assert not table.future.done()
            offset = offsets[batch.partition.partition].pop(0)
            core.delivery.on_delivered(batch, offset, -1)
    ranges = {0: (OffsetRange(10, 13),), 1: (OffsetRange(5, 7),)}
    assert table.future.result() == RowsMetadata("t", 5, ranges)
    assert core.accumulator.pool.free_bytes == core.accumulator.pool.total_bytes
    core.accumulator.check_invariants()


def test_offsets_that_do_not_follow_each_other_are_told_apart(make_core: MakeCore) -> None:
    core = make_core()
    table = Table(core, {0: [0, 1]}, per_batch=1)
    for offset in (3, 9):
        (batch,) = core.drain()
        core.delivery.on_delivered(batch, offset, -1)
    assert table.future.result().partitions == {0: (OffsetRange(3, 4), OffsetRange(9, 10))}


def test_without_acks_rows_are_delivered_nobody_knows_where(make_core: MakeCore) -> None:
    core = make_core(acks="0", enable_idempotence=False)
    table = Table(core, {0: [0, 1]})
    (batch,) = core.drain()
    core.delivery.on_delivered(batch, -1, -1)
    assert table.future.result() == RowsMetadata("t", 2, {0: ()})


def test_a_refused_batch_names_its_rows_and_where_the_others_are(make_core: MakeCore) -> None:
    core = make_core()
    core.set_leaders({0: 1, 1: 1})
    table = Table(core, {0: [0, 3], 1: [1, 2]})
    refused, taken = sorted(core.drain(), key=lambda batch: batch.partition)
    core.delivery.on_refused(refused, Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED), 0)
    assert not table.future.done()
    core.delivery.on_delivered(taken, 7, -1)
    error = table.failure()
    assert error.rows == [0, 3]
    assert error.delivered == RowsMetadata("t", 2, {1: (OffsetRange(7, 9),)})
    assert isinstance(error.__cause__, BrokerError)
    assert not error.retriable
    assert "2 of 4 rows" in str(error)


def test_a_record_that_a_broker_names_is_the_reason(make_core: MakeCore) -> None:
    core = make_core()
    table = Table(core, {0: [0, 1]})
    (batch,) = core.drain()
    refusal = Refusal(ErrorCode.INVALID_RECORD, "bad batch", by_record={1: "no key"})
    core.delivery.on_refused(batch, refusal, 0)
    assert "no key" in str(table.failure())


def test_a_batch_too_large_for_the_broker_is_split_and_all_of_it_arrives(
    make_core: MakeCore,
) -> None:
    core = make_core(batch_size=150)
    table = Table(core, {0: [3, 1, 0, 2]})
    (batch,) = core.drain()
    core.delivery.on_refused(batch, Refusal(ErrorCode.MESSAGE_TOO_LARGE), 0)
    found: list[bytes | None] = []
    sequences: list[int] = []
    while batches := core.drain():
        (part,) = batches
        found += values(part)
        sequences.append(parse_header(part.build()).base_sequence)
        core.delivery.on_delivered(part, part.base_sequence, -1)
    assert found == [b"3", b"1", b"0", b"2"]
    assert len(sequences) > 1
    assert table.future.result().partitions == {0: (OffsetRange(0, 4),)}
    assert core.accumulator.pool.free_bytes == core.accumulator.pool.total_bytes


def test_parts_know_their_own_rows(make_core: MakeCore) -> None:
    core = make_core(batch_size=100)
    table = Table(core, {0: [5, 3, 1, 0, 2, 4]})
    (batch,) = core.drain()
    core.delivery.on_refused(batch, Refusal(ErrorCode.MESSAGE_TOO_LARGE), 0)
    taken = 0
    for _ in range(2):
        (part,) = core.drain()
        core.delivery.on_delivered(part, taken, -1)
        taken += part.count
    core.delivery.give_up_all(KafkaTimeoutError("too late"))
    assert 1 < taken < 6
    assert table.failure().rows == sorted([5, 3, 1, 0, 2, 4][taken:])
    assert table.failure().retriable


def test_rows_that_were_never_handed_over_count_as_not_delivered(make_core: MakeCore) -> None:
    core = make_core()
    receipt = RowsReceipt("t", 3, core.loop.create_future())
    receipt.on_begun()
    receipt.on_handed_over(KafkaTimeoutError("no memory"))
    assert not receipt.future.done()
    receipt.on_delivered(0, 4, RowSpan(0, None, 1), 1)
    error = receipt.future.exception()
    assert isinstance(error, RowsNotDeliveredError)
    assert error.rows == [0, 2]


def test_a_retry_keeps_sequence_and_bytes(make_core: MakeCore) -> None:
    core = make_core(retry_backoff_ms=1)
    table = Table(core, {0: [0, 1]})
    (batch,) = core.drain()
    before = bytes(batch.build())
    core.delivery.on_refused(batch, Refusal(ErrorCode.NOT_ENOUGH_REPLICAS), 0)
    (again,) = core.drain()
    assert again is batch
    assert bytes(batch.build()) == before
    core.delivery.on_delivered(batch, 0, -1)
    assert table.future.result().rows == 2


def test_whoever_gave_up_waiting_is_in_nobodys_way(make_core: MakeCore) -> None:
    core = make_core()
    table = Table(core, {0: [0, 1]}, per_batch=1)
    table.future.cancel()
    for _ in range(2):
        (batch,) = core.drain()
        core.delivery.on_delivered(batch, 0, -1)
    assert not core.accumulator.incomplete


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd", "snappy"])
def test_rows_are_compressed_as_records_are(make_core: MakeCore, codec: str) -> None:
    core = make_core(compression_type=codec)
    Table(core, {0: list(range(90))})
    (batch,) = core.drain()
    header = parse_header(batch.build())
    assert header.attributes & 7 == CompressionType[codec.upper()]
    assert values(batch) == [b"%d" % number for number in range(90)]


def test_errors_are_of_the_clients_tree() -> None:
    assert issubclass(RowsNotDeliveredError, KafkaError)
