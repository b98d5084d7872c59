"""The record batches of one partition in one fetch response, handed out piece by piece (hot path).

Batches are opened one at a time, when their turn comes: what is never asked for is never decoded.
With ``read_committed`` records of aborted transactions are left out: the broker says from which
offset on which producer's records are void, and the producer's next abort marker ends that.

Benchmark: ``bench/client_consumer.py``.
"""

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from odradek.client.consumer.errors import RecordDeserializationError
from odradek.client.consumer.extensions import Deserialize
from odradek.client.consumer.records import ConsumerRecord
from odradek.client.consumer.subscription import Position
from odradek.core.errors import CorruptionError
from odradek.core.ids import TopicPartition
from odradek.records import (
    BatchHeader,
    ControlRecordType,
    is_partial,
    magic_at,
    parse_header,
    read_records,
    verify_crc,
)
from odradek.records.control import decode_control_key
from odradek.records.legacy import convert_to_v2

if TYPE_CHECKING:
    from odradek.records.arrow import PartitionRecords

_MAGIC_V2: Final = 2
_OVERHEAD: Final = 12
_new = tuple.__new__


class AbortedFilter:
    """Knows whose records are void, as batches go by in their order."""

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        """``aborted`` has producer ids and the first offset of what they took back."""
        self._coming = deque(sorted(aborted, key=lambda each: each[1]))
        self._void: set[int] = set()

    def copy(self) -> "AbortedFilter":
        other = AbortedFilter(self._coming)
        other._void = set(self._void)
        return other

    def is_wanted(self, data: memoryview, header: BatchHeader) -> bool:
        while self._coming and self._coming[0][1] <= header.last_offset:
            self._void.add(self._coming.popleft()[0])
        if header.is_control:
            if header.producer_id in self._void and _is_abort(data, header):
                self._void.discard(header.producer_id)
            return False
        return not (header.is_transactional and header.producer_id in self._void)


def _is_abort(data: memoryview, header: BatchHeader) -> bool:
    record = next(read_records(data, header), None)
    return record is not None and decode_control_key(record.key) is ControlRecordType.ABORT


class _Batch(NamedTuple):
    data: memoryview
    header: BatchHeader
    next_position: int


class Chunk:
    """Hands out its records in order; ``position`` is that of the next one."""

    __slots__ = (
        "_behind",
        "_check_crcs",
        "_data",
        "_deserialize",
        "_filter",
        "_position",
        "_ready",
        "_ready_next",
        "_spare",
        "end",
        "partition",
        "size",
    )

    def __init__(
        self,
        partition: TopicPartition,
        data: memoryview,
        start: Position,
        *,
        aborted: Iterable[tuple[int, int]] | None = None,
        check_crcs: bool = True,
        deserialize: Deserialize | None = None,
    ) -> None:
        """``aborted`` is None where everything is wanted.

        Raises:
            CorruptionError: The bytes are not batches.
        """
        self.partition = partition
        self._data, self.end = _whole_batches(data, start)
        self._behind = start
        self.size = len(data)
        self._position = 0
        self._spare: deque[memoryview] = deque()
        self._ready: list[ConsumerRecord] = []
        self._ready_next = 0
        self._filter = None if aborted is None else AbortedFilter(aborted)
        self._check_crcs = check_crcs
        self._deserialize = deserialize

    @property
    def is_empty(self) -> bool:
        """Whether nothing whole was in it."""
        return not self._data

    def take(self, count_max: int) -> list[ConsumerRecord]:
        """Return the next records, fewer than asked for only at the end or before a fault.

        Raises:
            CorruptionError: The next batch is not what its writer wrote.
            RecordDeserializationError: The next record is not what the application thinks.
        """
        taken: list[ConsumerRecord] = []
        while len(taken) < count_max:
            try:
                if self._ready_next >= len(self._ready) and not self._open_next():
                    break
                end = self._ready_next + count_max - len(taken)
                if self._deserialize is not None:
                    self._take_deserialized(taken, end, self._deserialize)
                    continue
            except (CorruptionError, RecordDeserializationError):
                if taken:  # these are good; the fault is found again next time
                    break
                raise
            taken += self._ready[self._ready_next : end]
            self._ready_next = end
        return taken

    def _take_deserialized(
        self, taken: list[ConsumerRecord], end: int, deserialize: Deserialize
    ) -> None:
        for record in self._ready[self._ready_next : end]:
            taken.append(deserialize(record))
            self._ready_next += 1

    @property
    def is_used_up(self) -> bool:
        is_open = self._ready_next < len(self._ready) or self._spare
        return not is_open and self._position >= len(self._data)

    @property
    def position(self) -> Position:
        """Where the next record is, or what comes after the last one that is wanted."""
        if self._ready_next < len(self._ready):
            return Position(self._ready[self._ready_next].offset, self._behind.epoch)
        return self._behind

    def _open_next(self) -> bool:
        """Decode the next batch that is wanted; False if there is none."""
        while (batch := self._next_batch()) is not None:
            data, header, next_position = batch
            if self._check_crcs:
                verify_crc(data, header)
            start_offset = self._behind.offset
            records: list[ConsumerRecord] = []
            if self._is_wanted(data, header) and header.next_offset > start_offset:
                topic, partition = self.partition
                timestamp_type = header.timestamp_type
                records = [
                    _new(ConsumerRecord, (topic, partition, *each, timestamp_type))
                    for each in read_records(data, header)
                ]
                if records and records[0].offset < start_offset:
                    records = [each for each in records if each.offset >= start_offset]
            self._step_over(header, next_position)
            if records:
                self._ready, self._ready_next = records, 0
                return True
        return False

    def _is_wanted(self, data: memoryview, header: BatchHeader) -> bool:
        if self._filter is not None:
            return self._filter.is_wanted(data, header)
        return not header.is_control

    def _step_over(self, header: BatchHeader, next_position: int) -> None:
        offset, epoch = self._behind
        epoch = max(epoch, header.partition_leader_epoch)
        self._behind = Position(max(header.next_offset, offset), epoch)
        self._position = next_position

    def _next_batch(self) -> _Batch | None:
        if self._spare:
            data = memoryview(self._spare.popleft())
            return _Batch(data, parse_header(data), self._position)
        if self._position >= len(self._data):
            return None
        if magic_at(self._data, self._position) == _MAGIC_V2:
            header = parse_header(self._data, self._position)
            return _Batch(self._data, header, header.end_position)
        end = _entry_end(self._data, self._position)
        converted = convert_to_v2(self._data[self._position : end])
        self._spare.extend(memoryview(each) for each in converted)
        self._position = end
        return self._next_batch()

    def columns(self) -> "tuple[PartitionRecords, AbortedFilter | None]":
        """Return all that is left as batches, for ``odradek.records.arrow``; takes nothing.

        The filter has to see every batch that the table is made of.
        """
        from odradek.records.arrow import PartitionRecords

        # A batch that is half handed out is behind us: from the start then, by offset.
        is_open = self._ready_next < len(self._ready) or self._spare
        data = self._data[0 if is_open else self._position :]
        part = PartitionRecords(*self.partition, data, self.position.offset)
        return part, None if self._filter is None else self._filter.copy()


def _entry_end(data: memoryview, position: int) -> int:
    return position + _OVERHEAD + int.from_bytes(data[position + 8 : position + 12], "big")


def _whole_batches(data: memoryview, start: Position) -> tuple[memoryview, Position]:
    """Return the batches that are whole and the position after the last of them."""
    position, size = 0, len(data)
    end_offset, epoch = start
    while position < size and not is_partial(data, position):
        if magic_at(data, position) == _MAGIC_V2:
            header = parse_header(data, position)
            end_offset = max(end_offset, header.next_offset)
            epoch = max(epoch, header.partition_leader_epoch)
            position = header.end_position
        else:
            offset = int.from_bytes(data[position : position + 8], "big", signed=True)
            end_offset = max(end_offset, offset + 1)
            position = _entry_end(data, position)
    return data[:position], Position(end_offset, epoch)
