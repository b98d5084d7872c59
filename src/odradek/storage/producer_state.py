"""What a log remembers of its producers: sequences, epochs, open transactions. Hot path.

A producer numbers its records per partition, so that a batch that is sent twice is found and one
that is missing is noticed. Both are judged by what the log holds, never by what a request said:
``find_duplicate`` and ``check`` change nothing, ``apply`` is called once the batch is in the log,
on the leader, on followers and when a log is read again after a restart. It takes what it is given:
a leader has already said yes to it.

A batch that is the same as one of the last five of its producer and epoch (first and last sequence)
is a duplicate, answered with the offsets it got the first time. All else is checked like this, in
this order (Kafka's rules and codes)::

    batch   from         refused when                                                   with
    data    all          the epoch is older than the last                               47
    data    CLIENT       the epoch is newer, and the sequence is not 0                  45
    data    CLIENT       the epoch is the last, and the sequence is not the next        45
    data    CLIENT       the producer is not known, the batch is of a transaction of
                         version 2, and the sequence is not 0                           45
    data    all          it is not transactional, and a transaction is open             48
    marker  all          the epoch is older than the last                               47
    marker  all          the epoch is the last, and the transaction is of version 2     47
    marker  all          the coordinator's epoch is older than the last                 52
    any     REPLICATION  never

    45 OUT_OF_ORDER_SEQUENCE_NUMBER · 47 INVALID_PRODUCER_EPOCH · 48 INVALID_TXN_STATE
    52 TRANSACTION_COORDINATOR_FENCED

After sequence 2^31 - 1 comes 0. Of a producer that is not known (new, expired, deleted with its
records) all else is accepted. In version 2 (KIP-890) the coordinator raises the epoch with each
marker, so a marker with the last epoch is a late one. Two are let through: when no transaction is
open it is sent again because the answer was lost, and epoch 32767 cannot be raised. Kafka no longer
uses DUPLICATE_SEQUENCE_NUMBER (46): a batch that is older than the last five gets 45.

A snapshot has only the last batch of each producer. A producer whose answers were lost in a restart
sends the batches before it again; refused with 45 it would raise its epoch and write them twice, as
it does with Kafka. So before such a refusal the log looks them up, once (``recall_duplicate``).

A transaction is *undecided* until its marker is applied and *unstable* until the high watermark has
passed the marker. Readers of committed data stop at the first unstable offset.

Benchmark: ``tests/unit/storage/test_producer_state_cost.py``.
"""

from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from operator import attrgetter
from pathlib import PurePath
from types import MappingProxyType
from typing import Final, NamedTuple

from odradek.core.errors import ApiError, CorruptionError, ErrorCode
from odradek.records.batch import (
    CONTROL_FLAG,
    NO_SEQUENCE,
    TRANSACTIONAL_FLAG,
    BatchHeader,
)
from odradek.records.control import ControlRecordType, EndTransactionMarker
from odradek.storage.disk import Disk
from odradek.storage.producer_snapshot import SnapshotEntry, SnapshotFiles, encode_snapshot

BATCHES_MAX: Final = 5
"""How many batches of a producer are remembered: clients have no more requests under way."""

LATE_TRANSACTION_BUFFER_MS: Final = 5 * 60_000
TRANSACTION_VERSION_UNKNOWN: Final = -1
PRODUCER_EPOCH_MAX: Final = 2**15 - 1

_SEQUENCE_MASK: Final = 2**31 - 1
_NO_COORDINATOR_EPOCH: Final = -1
_NO_OFFSET: Final = -1


class AppendOrigin(Enum):
    """Where the batches of an append come from, hence how far they are trusted."""

    CLIENT = "client"
    COORDINATOR = "coordinator"  # a group or transaction coordinator of this broker
    REPLICATION = "replication"  # a leader, which has checked them
    RAFT_LEADER = "raft leader"


_CLIENT: Final = AppendOrigin.CLIENT
_REPLICATION: Final = AppendOrigin.REPLICATION


class BatchMetadata(NamedTuple):
    """A batch that is in the log, as its producer is told about it."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class CompletedTransaction(NamedTuple):
    """A transaction whose marker, at ``last_offset``, is in the log."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class ProducerState:
    """What is known of one producer. Only ``ProducerStates`` changes it."""

    __slots__ = (
        "_batches",
        "_is_cut",
        "coordinator_epoch",
        "current_txn_first_offset",
        "last_seen_ms",
        "last_sequence",
        "last_timestamp",
        "producer_epoch",
    )

    def __init__(self, producer_epoch: int) -> None:
        self.producer_epoch = producer_epoch
        self.coordinator_epoch = _NO_COORDINATOR_EPOCH
        self.last_sequence = NO_SEQUENCE
        self.last_timestamp = -1
        self.last_seen_ms = -1
        self.current_txn_first_offset: int | None = None
        # (first sequence, offset delta, first offset, timestamp), oldest first. A list of plain
        # tuples of the header's own ints: a deque takes 0.6 KB, a tuple with names 0.3 µs.
        self._batches: list[tuple[int, int, int, int]] = []
        self._is_cut = False  # it comes from a snapshot, and the log may have batches before these

    @property
    def batches(self) -> list[BatchMetadata]:
        """The last batches, oldest first."""
        return [_metadata(*batch) for batch in self._batches]

    @property
    def last_data_offset(self) -> int | None:
        """The offset of the last record that is not a marker, where that is known."""
        if not self._batches:
            return None
        _, delta, first_offset, _ = self._batches[-1]
        return first_offset + delta

    def to_entry(self, producer_id: int) -> SnapshotEntry:
        delta, last_offset = 0, _NO_OFFSET
        if self._batches:
            _, delta, first_offset, _ = self._batches[-1]
            last_offset = first_offset + delta
        open_at = self.current_txn_first_offset
        return SnapshotEntry(
            producer_id,
            self.producer_epoch,
            self.last_sequence,
            last_offset,
            delta,
            self.last_timestamp,
            self.coordinator_epoch,
            _NO_OFFSET if open_at is None else open_at,
        )

    @classmethod
    def from_entry(cls, entry: SnapshotEntry) -> "ProducerState":
        state = cls(entry.producer_epoch)
        state.coordinator_epoch = entry.coordinator_epoch
        state.last_timestamp = state.last_seen_ms = entry.timestamp
        if entry.current_txn_first_offset >= 0:
            state.current_txn_first_offset = entry.current_txn_first_offset
        if entry.last_offset >= 0:
            last, delta = entry.last_sequence, entry.offset_delta
            first = NO_SEQUENCE if last < 0 else (last - delta) & _SEQUENCE_MASK
            state.last_sequence = last
            state._batches.append((first, delta, entry.last_offset - delta, entry.timestamp))
            state._is_cut = first > 0
        return state


def _metadata(first_sequence: int, delta: int, first_offset: int, timestamp: int) -> BatchMetadata:
    last_sequence = (first_sequence + delta) & _SEQUENCE_MASK if first_sequence >= 0 else -1
    return BatchMetadata(
        first_sequence, last_sequence, first_offset, first_offset + delta, timestamp
    )


def _check_sequence(state: ProducerState, header: BatchHeader) -> None:
    sequence = header.base_sequence
    if header.producer_epoch != state.producer_epoch:
        if sequence:
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} starts epoch {header.producer_epoch} with sequence "
                f"{sequence}, not 0; its last epoch was {state.producer_epoch}",
            )
    elif sequence != (expected := (state.last_sequence + 1) & _SEQUENCE_MASK):
        raise ApiError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id} sent sequence {sequence}, expected is {expected}",
        )


def _check_first_sequence(header: BatchHeader) -> None:
    # With version 2 each transaction has an epoch of its own, so what comes first has sequence 0.
    if header.attributes & TRANSACTIONAL_FLAG and header.base_sequence:
        raise ApiError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"nothing is known of producer {header.producer_id}, which sent sequence "
            f"{header.base_sequence}; a transaction starts with 0",
        )


def _check_marker(
    state: ProducerState | None,
    header: BatchHeader,
    marker: EndTransactionMarker,
    transaction_version: int,
) -> None:
    if state is None:
        return
    epoch = header.producer_epoch
    sent_again = state.current_txn_first_offset is None or epoch == PRODUCER_EPOCH_MAX
    late = epoch == state.producer_epoch and transaction_version >= 2 and not sent_again
    if epoch < state.producer_epoch or late:
        raise _refuse_epoch(header, state)
    if marker.coordinator_epoch < state.coordinator_epoch:
        raise ApiError(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"marker for producer {header.producer_id} is from coordinator epoch "
            f"{marker.coordinator_epoch}, there was one from {state.coordinator_epoch}",
        )


def _refuse_epoch(header: BatchHeader, state: ProducerState) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"producer {header.producer_id} sent epoch {header.producer_epoch}, "
        f"there was a batch or marker with {state.producer_epoch}",
    )


def _apply_marker(
    state: ProducerState, header: BatchHeader, marker: EndTransactionMarker
) -> CompletedTransaction | None:
    state.coordinator_epoch = marker.coordinator_epoch
    first_offset, state.current_txn_first_offset = state.current_txn_first_offset, None
    if first_offset is None:
        return None  # no batch came before the marker: readers need not know of it
    is_aborted = marker.type == ControlRecordType.ABORT
    return CompletedTransaction(header.producer_id, first_offset, header.base_offset, is_aborted)


class ProducerStates:
    """The producers and transactions of one log, and their snapshots in its folder.

    ``snapshots`` is read when this is made; the state is empty until ``truncate_and_reload``.
    """

    def __init__(
        self,
        disk: Disk,
        folder: PurePath,
        *,
        producer_id_expiration_ms: int,
        transaction_timeout_ms_max: int,
    ) -> None:
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self.transaction_timeout_ms_max = transaction_timeout_ms_max
        self.map_end_offset = 0
        """All batches before this offset have been applied."""
        self.snapshots = SnapshotFiles(disk, folder)
        self._last_snapshot_offset = 0
        self._producers: dict[int, ProducerState] = {}
        # Both are in the order of their keys, because a log grows at its end.
        self._open: dict[int, int] = {}  # first offset: producer id
        self._unreplicated: dict[int, int] = {}  # offset of the marker: first offset
        self._first_unreplicated_offset: int | None = None

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        """Return what became of this batch if it is in the log already. For clients only."""
        state = self._producers.get(header.producer_id)
        if state is None or state.producer_epoch != header.producer_epoch:
            return None
        sequence, delta = header.base_sequence, header.last_offset_delta
        for batch in state._batches:
            # Batches of a coordinator have no sequence; none of them is like another.
            if batch[0] == sequence and batch[1] == delta and sequence >= 0:
                return _metadata(*batch)
        return None

    def recall_before(self, header: BatchHeader) -> int | None:
        """Return the offset before which the log may hold this batch without it being known here.

        None: it does not.
        """
        state = self._producers.get(header.producer_id)
        if state is None or not state._is_cut or state.producer_epoch != header.producer_epoch:
            return None
        return state._batches[0][2]

    def recall(self, producer_id: int, earlier: Sequence[BatchHeader]) -> None:
        """Take note of batches, oldest first, that are in the log before those that are known.

        Only as many are kept as would be known without the restart, and only without a gap.
        """
        state = self._producers[producer_id]
        state._is_cut = False
        batches = state._batches
        for header in reversed(earlier):
            next_sequence = (header.base_sequence + header.last_offset_delta + 1) & _SEQUENCE_MASK
            if len(batches) == BATCHES_MAX or next_sequence != batches[0][0]:
                break
            first, delta = header.base_sequence, header.last_offset_delta
            batches.insert(0, (first, delta, header.base_offset, header.max_timestamp))

    def check(
        self,
        header: BatchHeader,
        origin: AppendOrigin,
        marker: EndTransactionMarker | None = None,
        *,
        transaction_version: int = TRANSACTION_VERSION_UNKNOWN,
    ) -> None:
        """Raise ApiError if the batch may not follow what is in the log; see the module's rules.

        ``marker`` is what a control batch holds, None where compaction has emptied it. The
        transaction version is that of the request, and must be known for markers.
        """
        if origin is _REPLICATION:
            return
        state = self._producers.get(header.producer_id)
        if header.attributes & CONTROL_FLAG:
            if marker is not None:
                assert transaction_version >= 0, "the coordinator says which rule its markers obey"
                _check_marker(state, header, marker, transaction_version)
            return
        if state is None:
            if transaction_version >= 2 and origin is _CLIENT:
                _check_first_sequence(header)
            return
        if header.producer_epoch < state.producer_epoch:
            raise _refuse_epoch(header, state)
        if origin is _CLIENT:
            _check_sequence(state, header)
        if (
            state.current_txn_first_offset is not None
            and not header.attributes & TRANSACTIONAL_FLAG
        ):
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} has a transaction open since offset "
                f"{state.current_txn_first_offset}; end it before writing outside of one",
            )

    def apply(
        self, header: BatchHeader, now_ms: int, marker: EndTransactionMarker | None = None
    ) -> CompletedTransaction | None:
        """Take note of a batch that is in the log now.

        If it ends a transaction, that stays open until ``complete`` is called: the transaction
        index comes first.

        ``now_ms`` is when the batch was appended, 0 where that is not known because the log is
        being read again. A producer that sends old timestamps is not idle (Kafka takes it for
        one and forgets its sequences).
        """
        base_offset, delta = header.base_offset, header.last_offset_delta
        producer_id, epoch = header.producer_id, header.producer_epoch
        next_offset = base_offset + delta + 1
        assert producer_id >= 0
        assert next_offset > self.map_end_offset, "applied before"
        self.map_end_offset = next_offset
        if header.attributes & CONTROL_FLAG and marker is None:
            return None

        state = self._producers.get(producer_id)
        if state is None:
            state = self._producers[producer_id] = ProducerState(epoch)
        elif state.producer_epoch != epoch:
            state.producer_epoch = epoch
            state.last_sequence = NO_SEQUENCE
            state._batches.clear()
            state._is_cut = False
        state.last_timestamp = timestamp = header.max_timestamp
        state.last_seen_ms = timestamp if timestamp > now_ms else now_ms
        if marker is not None:
            return _apply_marker(state, header, marker)

        sequence = header.base_sequence
        state.last_sequence = (sequence + delta) & _SEQUENCE_MASK if sequence >= 0 else NO_SEQUENCE
        batches = state._batches
        if len(batches) == BATCHES_MAX:
            del batches[0]
        batches.append((sequence, delta, base_offset, timestamp))
        if header.attributes & TRANSACTIONAL_FLAG and state.current_txn_first_offset is None:
            state.current_txn_first_offset = base_offset
            self._open[base_offset] = producer_id
        return None

    def update_map_end_offset(self, offset: int) -> None:
        """Say that the batches before ``offset`` without a producer id need no applying."""
        self.map_end_offset = offset

    def last_stable_offset(self, completed: CompletedTransaction) -> int:
        """Return what the last stable offset will be, replication aside, once it is completed."""
        for first_offset, producer_id in self._open.items():
            if producer_id != completed.producer_id:
                return first_offset
        return completed.last_offset + 1

    def complete(self, completed: CompletedTransaction) -> None:
        """Close a transaction; it stays unstable until its marker is replicated."""
        producer_id = self._open.pop(completed.first_offset, None)
        assert producer_id == completed.producer_id, f"{completed} was never open"
        self._unreplicated[completed.last_offset] = completed.first_offset
        first = self._first_unreplicated_offset
        if first is None or completed.first_offset < first:
            self._first_unreplicated_offset = completed.first_offset

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        """Take note that all before ``high_watermark`` is replicated."""
        if not self._unreplicated:
            return
        replicated = []
        for last_offset in self._unreplicated:
            if last_offset >= high_watermark:
                break
            replicated.append(last_offset)
        if replicated:
            for last_offset in replicated:
                del self._unreplicated[last_offset]
            self._first_unreplicated_offset = min(self._unreplicated.values(), default=None)

    @property
    def first_undecided_offset(self) -> int | None:
        """The first offset of the oldest transaction that has no marker yet."""
        return next(iter(self._open), None)

    @property
    def first_unstable_offset(self) -> int | None:
        """As undecided, or with a marker that is not replicated yet."""
        undecided, unreplicated = self.first_undecided_offset, self._first_unreplicated_offset
        if undecided is None or unreplicated is None:
            return unreplicated if undecided is None else undecided
        return min(undecided, unreplicated)

    def late_transactions(self, now_ms: int) -> int:
        """Count open transactions that their coordinator should have ended long ago."""
        before_ms = now_ms - self.transaction_timeout_ms_max - LATE_TRANSACTION_BUFFER_MS
        states = map(self._producers.get, self._open.values())
        return sum(state is not None and 0 < state.last_seen_ms < before_ms for state in states)

    def find(self, producer_id: int) -> ProducerState | None:
        return self._producers.get(producer_id)

    @property
    def active_producers(self) -> Mapping[int, ProducerState]:
        """The known producers by id; a view, so copy it before anything is appended."""
        return MappingProxyType(self._producers)

    @property
    def is_empty(self) -> bool:
        return not self._producers and not self._unreplicated

    def remove_expired(self, now_ms: int) -> int:
        """Forget producers that wrote nothing for long; return how many there were."""
        expired = [i for i, state in self._producers.items() if self._is_expired(state, now_ms)]
        for producer_id in expired:
            del self._producers[producer_id]
        return len(expired)

    def _is_expired(self, state: ProducerState, now_ms: int) -> bool:
        return (
            state.current_txn_first_offset is None
            and now_ms - state.last_seen_ms >= self.producer_id_expiration_ms
        )

    def on_log_start_offset_incremented(self, offset: int) -> None:
        """Take note that all before ``offset`` is gone; producers stay known until they expire."""
        self.on_high_watermark_updated(offset)
        self.map_end_offset = max(self.map_end_offset, offset)
        latest = self.snapshots.latest
        self._last_snapshot_offset = offset if latest is None else latest

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Forget everything, on disk too."""
        self._clear()
        for snapshot in self.snapshots.offsets:
            self.snapshots.delete(snapshot)
        self.snapshots.sync_removals()
        self._last_snapshot_offset = 0
        self.map_end_offset = offset

    def truncate_and_reload(self, log_start_offset: int, log_end_offset: int, now_ms: int) -> None:
        """Go back to the newest usable snapshot that is not past the end of the log.

        The caller then applies the batches from ``map_end_offset`` to ``log_end_offset``. If the
        state is that of ``log_end_offset`` already it is kept. All that is before the end is taken
        to be replicated.
        """
        self.snapshots.delete_outside(log_start_offset, log_end_offset)
        if log_end_offset == self.map_end_offset:
            self.on_log_start_offset_incremented(log_start_offset)
        else:
            self._clear()
            self._load_latest(log_start_offset, now_ms)
        self.snapshots.sync_removals()

    def _load_latest(self, log_start_offset: int, now_ms: int) -> None:
        offset = log_start_offset
        while (latest := self.snapshots.latest) is not None:
            try:
                self._load(latest, now_ms)
            except CorruptionError:
                self.snapshots.delete(latest)
            else:
                offset = latest
                break
        self.map_end_offset = self._last_snapshot_offset = offset

    def _load(self, offset: int, now_ms: int) -> None:
        entries = self.snapshots.read(offset)
        entries.sort(key=attrgetter("current_txn_first_offset"))
        for entry in entries:
            state = ProducerState.from_entry(entry)
            if entry.current_txn_first_offset >= 0:
                self._open[entry.current_txn_first_offset] = entry.producer_id
            elif self._is_expired(state, now_ms):
                continue
            self._producers[entry.producer_id] = state

    def _clear(self) -> None:
        self._producers = {}
        self._open = {}
        self._unreplicated = {}
        self._first_unreplicated_offset = None

    def take_snapshot(self, *, sync: bool = True) -> PurePath | None:
        """Write what is known at ``map_end_offset``, unless that has been done.

        Without ``sync`` the caller may sync the returned path later, or never: a snapshot that a
        crash damages is not used.
        """
        offset = self.map_end_offset
        if offset <= self._last_snapshot_offset:
            return None
        data = encode_snapshot([state.to_entry(i) for i, state in self._producers.items()])
        path = self.snapshots.write(offset, data, sync=sync)
        self._last_snapshot_offset = offset
        return path

    def delete_snapshot_at(self, offset: int) -> None:
        self.snapshots.delete(offset)

    def remove_stray_snapshots(self, segment_base_offsets: Collection[int]) -> None:
        self.snapshots.remove_strays(segment_base_offsets)

    def move_to(self, folder: PurePath) -> None:
        """Take note that the log's folder has another name now."""
        self.snapshots.folder = folder

    def check_invariants(self) -> None:
        """Assert what must hold between any two calls."""
        for producer_id, state in self._producers.items():
            assert len(state._batches) <= BATCHES_MAX
            ends = [first + delta for _, delta, first, _ in state._batches]
            assert ends == sorted(set(ends))
            assert all(end < self.map_end_offset for end in ends)
            known = state.batches[-1].last_sequence if state._batches else NO_SEQUENCE
            assert state.last_sequence == known
            open_at = state.current_txn_first_offset
            assert open_at is None or self._open[open_at] == producer_id
        assert list(self._open) == sorted(self._open)
        assert all(0 <= first < self.map_end_offset for first in self._open)
        assert list(self._unreplicated) == sorted(self._unreplicated)
        first = min(self._unreplicated.values(), default=None)
        assert self._first_unreplicated_offset == first
