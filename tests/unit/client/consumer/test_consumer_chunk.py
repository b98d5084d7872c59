"""Chunks of fetch responses: what is handed out, what is left out, and from where to go on."""

from collections.abc import Iterable

import pytest

from odradek.client.consumer.chunk import Chunk
from odradek.client.consumer.subscription import Position
from odradek.core.errors import CorruptionError
from odradek.core.ids import TopicPartition
from odradek.records import (
    BatchBuilder,
    CompressionType,
    ControlRecordType,
    EndTransactionMarker,
    Record,
    build_end_transaction_marker,
)
from odradek.records.arrow import to_table
from odradek.records.legacy import build_message_set

PARTITION = TopicPartition("t", 3)


def batch(base_offset: int, count: int, *, epoch: int = 0, producer_id: int = -1) -> bytes:
    is_transactional = producer_id >= 0
    builder = BatchBuilder(
        base_offset=base_offset,
        partition_leader_epoch=epoch,
        producer_id=producer_id,
        producer_epoch=0 if is_transactional else -1,
        base_sequence=0 if is_transactional else -1,
        transactional=is_transactional,
    )
    for number in range(count):
        builder.append(7, b"k", b"%d" % (base_offset + number))
    return bytes(builder.build())


def marker(offset: int, producer_id: int, kind: ControlRecordType) -> bytes:
    return bytes(
        build_end_transaction_marker(
            EndTransactionMarker(kind, 0),
            timestamp=7,
            producer_id=producer_id,
            producer_epoch=0,
            base_offset=offset,
        )
    )


def chunk(data: bytes, start: int = 0, aborted: Iterable[tuple[int, int]] | None = None) -> Chunk:
    return Chunk(PARTITION, memoryview(data), Position(start), aborted=aborted)


def offsets(made: Chunk, count: int = 1000) -> list[int]:
    return [record.offset for record in made.take(count)]


def table_offsets(made: Chunk) -> list[int]:
    part, aborted = made.columns()
    data = memoryview(part.records)
    table = to_table([part], batch_filter=lambda h: aborted is None or aborted.is_wanted(data, h))
    found: list[int] = table.column("offset").to_pylist()
    return found


def test_records_know_where_they_come_from() -> None:
    (record,) = chunk(batch(5, 1)).take(1)
    assert record[:7] == ("t", 3, 5, 7, b"k", b"5", ())
    assert record.topic_partition == PARTITION


def test_a_chunk_is_handed_out_in_pieces_across_batches() -> None:
    made = chunk(batch(0, 3) + batch(3, 3))
    taken = [offsets(made, 2) for _ in range(4)]
    assert taken == [[0, 1], [2, 3], [4, 5], []]
    assert made.is_used_up


def test_the_position_is_that_of_the_next_record() -> None:
    made = chunk(batch(0, 3, epoch=4) + batch(10, 2, epoch=5))
    assert made.position == Position(0)
    made.take(1)
    assert made.position == Position(1, 4)
    made.take(2)
    assert made.position == Position(3, 4), "what comes after the batch, whatever that is"
    made.take(1)
    assert made.position == Position(11, 5)
    assert made.end == Position(12, 5)


def test_offsets_before_the_one_asked_for_are_left_out() -> None:
    made = chunk(batch(0, 3) + batch(3, 3), start=4)
    assert table_offsets(made) == [4, 5]
    assert offsets(made) == [4, 5]


def test_a_batch_that_is_cut_short_is_for_the_next_fetch() -> None:
    made = chunk(batch(0, 3) + batch(3, 3)[:-1])
    assert made.end.offset == 3
    assert offsets(made) == [0, 1, 2]
    assert chunk(batch(0, 3)[:40]).is_empty


def test_control_batches_are_stepped_over() -> None:
    data = batch(0, 2, producer_id=9) + marker(2, 9, ControlRecordType.COMMIT)
    nothing: list[tuple[int, int]] = []
    for aborted in (None, nothing):
        made = chunk(data, aborted=aborted)
        assert offsets(made) == [0, 1]
        assert made.position.offset == made.end.offset == 3


ABORTED = (
    batch(0, 2, producer_id=1)  # aborted
    + batch(2, 2, producer_id=2)  # committed
    + marker(4, 1, ControlRecordType.ABORT)
    + batch(5, 2, producer_id=1)  # the same producer's next transaction
    + marker(7, 2, ControlRecordType.COMMIT)
    + marker(8, 1, ControlRecordType.COMMIT)
    + batch(9, 1)  # of nobody's transaction
    + batch(10, 1, producer_id=1)  # aborted
    + marker(11, 1, ControlRecordType.ABORT)
)
WANTED = [2, 3, 5, 6, 9]


def test_aborted_transactions_are_left_out_and_no_others() -> None:
    aborted = [(1, 10), (1, 0)]
    made = chunk(ABORTED, aborted=aborted)
    assert table_offsets(made) == WANTED
    assert offsets(made) == WANTED
    assert made.position.offset == 12


@pytest.mark.parametrize("taken", range(6))
def test_a_table_goes_on_where_records_stopped(taken: int) -> None:
    made = chunk(ABORTED, aborted=[(1, 0), (1, 10)])
    assert offsets(made, taken) == WANTED[:taken]
    assert table_offsets(made) == WANTED[taken:]
    assert offsets(made) == WANTED[taken:], "making a table takes nothing"


def test_damage_is_found_when_its_turn_comes() -> None:
    damaged = bytearray(batch(2, 2))
    damaged[-1] ^= 1
    made = chunk(batch(0, 2) + bytes(damaged) + batch(4, 1))
    assert offsets(made) == [0, 1], "what comes before it is good"
    for _ in range(2):
        with pytest.raises(CorruptionError):
            made.take(10)
    assert made.position.offset == 2


def test_checksums_are_not_looked_at_if_one_does_not_want_that() -> None:
    damaged = bytearray(batch(0, 1))
    damaged[17] ^= 1  # the checksum itself
    made = Chunk(PARTITION, memoryview(damaged), Position(0), check_crcs=False)
    assert offsets(made) == [0]


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.GZIP])
@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_old_formats_are_read(magic: int, codec: CompressionType) -> None:
    records = [Record(n, 7 if magic else -1, b"k", b"%d" % n) for n in range(4)]
    data = bytes(build_message_set(records, magic=magic, codec=codec)) + batch(4, 2)
    made = chunk(data, start=1)
    assert made.end.offset == 6
    assert table_offsets(made) == [1, 2, 3, 4, 5]
    assert offsets(made, 2) == [1, 2]
    assert table_offsets(made) == [3, 4, 5]
    assert offsets(made) == [3, 4, 5]
