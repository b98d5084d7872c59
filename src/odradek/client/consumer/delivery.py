"""Hands over what was fetched: as lists, one by one, or as a table (hot path).

A position moves when its record is handed over. One by one, that is worked out only when somebody
asks: until then it is an index into a list. Benchmark: ``bench/client_consumer.py``.
"""

from types import ModuleType
from typing import TYPE_CHECKING, Final

from odradek.client.consumer.chunk import Chunk
from odradek.client.consumer.errors import CorruptRecordError, RecordDeserializationError
from odradek.client.consumer.extensions import ConsumerInterceptors, RecordsByPartition
from odradek.client.consumer.fetch_buffer import FetchBuffer
from odradek.client.consumer.metrics import ConsumerMetrics
from odradek.client.consumer.records import AnyRecord
from odradek.client.consumer.subscription import PartitionState, Position, Subscription
from odradek.core.errors import CorruptionError
from odradek.core.ids import TopicPartition
from odradek.records import BatchHeader

if TYPE_CHECKING:
    import pyarrow as pa

_NOTHING: Final[list[AnyRecord]] = []


class Delivery:
    def __init__(
        self,
        buffer: FetchBuffer,
        subscription: Subscription,
        *,
        records_max: int,
        check_crcs: bool = True,
        interceptors: ConsumerInterceptors | None = None,
        metrics: ConsumerMetrics | None = None,
    ) -> None:
        self._buffer = buffer
        self._metrics = metrics
        self._interceptors = interceptors
        self._subscription = subscription
        self._records_max = records_max
        self._check_crcs = check_crcs
        self.has_made_room = False
        """Whether something was used up since this was last set to False."""
        # What goes out one by one.
        self._pending = _NOTHING
        self._next = 0
        self._state: PartitionState | None = None
        self._version = 0
        self._end = Position(0)

    # Lists.

    def take(self, records_max: int | None = None) -> RecordsByPartition:
        """Return what is there, by partition, not more than so many records.

        Raises:
            CorruptRecordError: The next batch of some partition is not sound.
            RecordDeserializationError: A deserializer failed.
        """
        left = self._records_max if records_max is None else records_max
        taken = self._take_pending(left)
        left -= sum(map(len, taken.values()))
        is_progress = True
        while left > 0 and is_progress:
            is_progress = False
            for state, chunk in self._buffer.ready():
                if left <= 0:
                    break
                records = self._take_from(state, chunk, left, has_others=bool(taken))
                if records is None:
                    continue
                is_progress = True
                left -= len(records)
                if records:
                    taken.setdefault(state.partition, []).extend(records)
        return taken

    def _take_from(
        self, state: PartitionState, chunk: Chunk, left: int, *, has_others: bool
    ) -> list[AnyRecord] | None:
        """Take from one chunk; None if it is not sound, and others are to be handed over first."""
        try:
            records = chunk.take(left)
        except CorruptionError as error:
            if has_others:
                return None
            offset = chunk.position.offset
            raise CorruptRecordError(state.partition, offset, str(error)) from error
        except RecordDeserializationError:
            if has_others:
                return None
            raise
        state.advance(chunk.position)
        is_used_up = chunk.is_used_up
        if is_used_up:
            self._buffer.drop_first(state)
            self.has_made_room = True
        if self._metrics is not None:
            size = chunk.size if is_used_up else 0
            self._metrics.on_consumed(state.partition.topic, len(records), size)
        if self._interceptors is not None:
            records = self._interceptors.on_consume(state.partition, records)
        return records

    # One by one.

    def next_ready(self) -> AnyRecord | None:
        """Return the next record of those that were taken for this; None if they are used up."""
        index = self._next
        if index < len(self._pending):
            self._next = index + 1
            return self._pending[index]
        return None

    def next_record(self) -> AnyRecord | None:
        """Return the next record that is there, if there is one.

        Raises:
            CorruptRecordError: As with ``take``.
        """
        return self.next_ready() or self._refill()

    def _refill(self) -> AnyRecord | None:
        self.settle()
        self._forget_pending()
        for state, chunk in self._buffer.ready():
            before = state.position
            records = self._take_from(state, chunk, self._records_max, has_others=False)
            if records:
                assert state.position is not None
                self._pending, self._next = records, 1
                self._state, self._version, self._end = state, state.version, state.position
                assert before is not None
                state.advance(before)
                return records[0]
        return None

    def settle(self) -> None:
        """Bring the position to where the application is."""
        state = self._state
        if state is None or self._subscription.find(state.partition, self._version) is not state:
            return
        if self._next < len(self._pending):
            state.advance(Position(self._pending[self._next].offset, self._end.epoch))
        else:
            state.advance(self._end)

    def let_go(self, partition: TopicPartition) -> None:
        """Take back what is not handed over yet: the partition is paused, or goes away."""
        state = self._state
        if state is None or state.partition != partition:
            return
        self.settle()
        is_rest = self._next < len(self._pending)
        self._forget_pending()
        if is_rest and self._subscription.find(partition, self._version) is state:
            assert state.position is not None
            validated_epoch = state.validated_epoch
            state.seek(state.position)  # to be fetched again
            state.validated_epoch = validated_epoch

    def drop_stale(self) -> None:
        """Let go of what belongs to a partition that is gone or has moved."""
        state = self._state
        if state and self._subscription.find(state.partition, self._version) is not state:
            self._forget_pending()

    def _forget_pending(self) -> None:
        self._pending, self._next, self._state = _NOTHING, 0, None

    def _take_pending(self, records_max: int) -> RecordsByPartition:
        """Return what is left of records that went out one by one."""
        state = self._state
        self.settle()
        if state is None:
            return {}
        if self._subscription.find(state.partition, self._version) is not state:
            self._forget_pending()
            return {}
        records = self._pending[self._next : self._next + records_max]
        self._next += len(records)
        self.settle()
        if self._next >= len(self._pending):
            self._forget_pending()
        return {state.partition: records} if records else {}

    # Tables.

    def take_table(self, bytes_max: int) -> "pa.Table | None":
        """Return what is there as one table, chunk by chunk up to about so many bytes.

        Raises:
            CorruptRecordError: As with ``take``.
            ImportError: There is no pyarrow.
        """
        arrow = _import_arrow()
        if self._state is not None:
            self.let_go(self._state.partition)
        tables: list[pa.Table] = []
        size, is_progress = 0, True
        while size < bytes_max and is_progress:
            is_progress = False
            for state, chunk in self._buffer.ready():
                if size >= bytes_max:
                    break
                table = self._table_of(arrow, state, chunk, has_others=bool(tables))
                if table is None:
                    continue
                is_progress = True
                size += chunk.size
                if table.num_rows:
                    tables.append(table)
        if not tables:
            return None
        return arrow.pa.concat_tables(tables)

    def _table_of(
        self, arrow: ModuleType, state: PartitionState, chunk: Chunk, *, has_others: bool
    ) -> "pa.Table | None":
        part, aborted = chunk.columns()
        data = memoryview(part.records)

        def is_wanted(header: BatchHeader) -> bool:
            return aborted is None or aborted.is_wanted(data, header)

        try:
            table = arrow.to_table(
                [part], include_headers=True, check_crc=self._check_crcs, batch_filter=is_wanted
            )
        except CorruptionError as error:
            if has_others:
                return None
            offset = chunk.position.offset
            raise CorruptRecordError(state.partition, offset, str(error)) from error
        state.advance(chunk.end)
        self._buffer.drop_first(state)
        self.has_made_room = True
        if self._metrics is not None:
            self._metrics.on_consumed(state.partition.topic, table.num_rows, chunk.size)
        return table

    def empty_table(self) -> "pa.Table":
        arrow = _import_arrow()
        return arrow.SCHEMA_WITH_HEADERS.empty_table()


def _import_arrow() -> ModuleType:
    try:
        from odradek.records import arrow
    except ImportError as error:
        raise ImportError("poll_arrow needs pyarrow: pip install odradek[arrow]") from error
    return arrow
