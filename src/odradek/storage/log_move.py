"""Moves replicas between the log directories of a node, while they are in use.

A second, *future* log is filled from the current one as a follower's would be, a piece at each
tick; when it has all, it is flushed by a thread, and what came meanwhile is copied and synced in
one go with the swap (``LogStore.replace_current_with_future``). Appends go to the current log until
then and to the other from then on; nobody notices, but ``on_moved`` must tell who holds the log.

Before the swap the owner is asked (``may_swap``). In a cluster the controller must know first where
the replica is going to be (KIP-858): if it learned that afterwards, a directory that fails in
between would take the partition with it, and nobody would lead it elsewhere.

What happens to the current log meanwhile happens to the future one too: it is cut first when that
is to be cut; oldest records that are gone are skipped, or dropped at the end. Compaction goes on;
what it removes is copied or not, and a replica is right with either.

After a clean stop ``resume`` goes on where it was. After a crash it starts over: the future log may
hold records that the current one has lost, and others would take their offsets. A move whose
directory fails is left for the next start. A crash during the swap leaves two whole logs.

Of all moves together one piece is copied at each tick, and none before ``copies_from_ms``: so the
owner keeps to ``replica.alter.log.dirs.io.max.bytes.per.second``.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from odradek.core.errors import ApiError, CorruptionError, ErrorCode
from odradek.core.ids import TopicPartition, Uuid
from odradek.storage.log import Log
from odradek.storage.log_directory import LogDirectory, StoredLog
from odradek.storage.log_upkeep import AT_ONCE_MS, NEVER_MS
from odradek.storage.log_work import Work
from odradek.storage.scan import peek_batch

if TYPE_CHECKING:
    from odradek.storage.log_store import LogStore

PIECE_BYTES: Final = 1 << 20
"""Copied in a few milliseconds, in which nobody is served."""

SWAP_BYTES_MAX: Final = PIECE_BYTES
"""What may be left to sync while everybody waits."""

FLUSHES_MAX: Final = 5
"""After so many a producer is faster than the disk; then the swap takes as long as it takes."""


class LogMoves:
    def __init__(
        self,
        store: "LogStore",
        current: Mapping[TopicPartition, StoredLog],
        future: Mapping[TopicPartition, StoredLog],
    ) -> None:
        self.on_moved: Callable[[TopicPartition, Log], None] = lambda _partition, _log: None
        """Called with the log that is the current one from now on."""
        self.may_swap: Callable[[TopicPartition, Uuid], bool] = lambda _partition, _directory: True
        """Says whether a log may move into the directory now; if not, ``go_on`` is called later."""
        self.on_given_up: Callable[[TopicPartition], None] = lambda _partition: None
        """Called when a move has ended without a swap: the replica is where it was."""
        self.on_copied: Callable[[int], None] = lambda _count: None
        """Called with the bytes of each piece."""
        self.copies_from_ms: Callable[[], int | None] = lambda: None
        """Says when the next piece may be copied, by the clock of deadlines; None is now."""
        self._store = store
        self._current = current
        self._future = future
        # With how often each was flushed; the next one to work on comes first.
        self._moves: dict[TopicPartition, int] = {}
        self._waiting: set[TopicPartition] = set()
        """Of these, those that may not swap yet."""

    def __len__(self) -> int:
        return len(self._moves)

    # What others want.

    def start(self, partition: TopicPartition, directory: LogDirectory, now_ms: int) -> None:
        """Begin to move a replica into ``directory``; back, if it is on its way to another.

        A replica that is not here yet will be made in that directory.

        Raises:
            ApiError: REPLICA_NOT_AVAILABLE: it is not here; KAFKA_STORAGE_ERROR; or
                INVALID_TOPIC_EXCEPTION because the name of a future folder would be too long.
        """
        self._store.check_future_name(partition)
        if not directory.is_online:
            raise directory.refusal()
        if self._store.get(partition) is None:
            self._store.prefer(partition, directory)
            raise ApiError(ErrorCode.REPLICA_NOT_AVAILABLE, f"{partition} is not on this node")
        future = self._future.get(partition)
        if future is not None and future.directory is not directory:
            self._store.abandon_future(partition)
            self._give_up(partition)
        if self._current[partition].directory is directory:
            return
        if partition not in self._future:
            self._create(partition, directory, now_ms)
        self._moves.setdefault(partition, 0)

    def _create(self, partition: TopicPartition, directory: LogDirectory, now_ms: int) -> None:
        offline = [str(each.path) for each in self._store.directories if not each.is_online]
        if offline:  # there may be a future log of this partition already
            raise ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{', '.join(offline)} is offline; mend that first"
            )
        assert directory.directory_id is not None, "it is online"
        self._store.create_future(partition, directory.directory_id, now_ms)

    def resume(self, partition: TopicPartition, now_ms: int) -> None:
        """Go on with a move that the last stop interrupted, if there is one."""
        future, current = self._future.get(partition), self._current.get(partition)
        if future is None or current is None or partition in self._moves:
            return
        self._moves[partition] = 0
        was_clean = [each.directory.clean_shutdown is not None for each in (current, future)]
        if not all(was_clean):
            self._attempt(partition, now_ms, self._start_over)

    def before_truncation(
        self, partition: TopicPartition, offset: int, now_ms: int, *, fully: bool
    ) -> None:
        """Cut a future log before the current one is cut, so that it has nothing that one lacks."""
        if partition not in self._future:
            return
        store = self._store
        cut = store.truncate_fully_and_start_at if fully else store.truncate_to
        self._attempt(partition, now_ms, lambda at, now: cut(at, offset, now, is_future=True))

    def target_of(self, partition: TopicPartition) -> LogDirectory | None:
        """Return where a replica is being moved to; None if it stays."""
        future = self._future.get(partition)
        return None if future is None or partition not in self._moves else future.directory

    def go_on(self, partition: TopicPartition) -> bool:
        """Ask again whether a log may swap; return whether it waits for that."""
        is_waiting = partition in self._waiting
        self._waiting.discard(partition)
        return is_waiting

    # From time to time.

    def next_deadline_ms(self) -> int:
        if not any(self._is_due(partition) for partition in self._moves):
            return NEVER_MS
        return self.copies_from_ms() or AT_ONCE_MS

    def tick(self, now_ms: int) -> list[Work]:
        """Copy a piece, or end a move; return what is to be done in threads before that."""
        work: list[Work] = []
        self._look_at_waiting()
        if self._moves and self.copies_from_ms() is not None:
            return work
        for partition in list(self._moves):
            if not self._is_due(partition):
                continue
            self._moves[partition] = self._moves.pop(partition)  # the others first
            self._attempt(partition, now_ms, lambda at, now: work.extend(self._step(at, now)))
            break
        return work

    def _look_at_waiting(self) -> None:
        """Give up moves that cannot end any more."""
        for partition in list(self._waiting):
            logs = (self._current.get(partition), self._future.get(partition))
            if not all(each is not None and each.directory.is_online for each in logs):
                self._give_up(partition)

    def _give_up(self, partition: TopicPartition) -> None:
        self._waiting.discard(partition)
        if self._moves.pop(partition, None) is not None:
            self.on_given_up(partition)

    def _is_due(self, partition: TopicPartition) -> bool:
        return partition not in self._waiting and not self._is_flushing(partition)

    def _is_flushing(self, partition: TopicPartition) -> bool:
        future = self._future.get(partition)
        return future is not None and future.is_flushing

    def _attempt(
        self,
        partition: TopicPartition,
        now_ms: int,
        step: Callable[[TopicPartition, int], object],
    ) -> None:
        """Do a step of a move, and give the move up if it fails."""
        try:
            step(partition, now_ms)
        except ApiError:  # a directory is offline; the next start resumes
            self._give_up(partition)
        except CorruptionError as error:
            self._store.report(f"{partition} cannot be moved: {error}")
            with suppress(ApiError):
                self._store.abandon_future(partition)
            self._give_up(partition)

    def _step(self, partition: TopicPartition, now_ms: int) -> list[Work]:
        current, future = self._current.get(partition), self._future.get(partition)
        if current is None or future is None:  # deleted meanwhile
            del self._moves[partition]
            return []
        if self._copy(partition, current, future, now_ms):
            return []
        flushes = self._moves[partition]
        if _unflushed_bytes(future.log) > SWAP_BYTES_MAX and flushes < FLUSHES_MAX:
            self._moves[partition] = flushes + 1
            work = self._store.plan_flush(partition, is_future=True)
            return [] if work is None else [work]
        directory_id = future.directory.directory_id
        if directory_id is not None and not self.may_swap(partition, directory_id):
            self._waiting.add(partition)
            return []
        self._finish(partition, current, future, now_ms)
        return []

    def _start_over(self, partition: TopicPartition, now_ms: int) -> None:
        start = self._current[partition].log.log_start_offset
        self._store.truncate_fully_and_start_at(partition, start, now_ms, is_future=True)

    def _copy(
        self, partition: TopicPartition, current: StoredLog, future: StoredLog, now_ms: int
    ) -> bool:
        """Copy the next piece; return whether there may be more."""
        source, target = current.log, future.log
        if not source.log_start_offset <= target.log_end_offset <= source.log_end_offset:
            self._start_over(partition, now_ms)
        with current.directory.guard:
            records = source.read(target.log_end_offset, bytes_max=PIECE_BYTES).records
        if not records:
            return False
        first = peek_batch(records)
        if first.base_offset < target.log_end_offset:
            if target.log_end_offset > target.log_start_offset:
                raise CorruptionError(f"{target.log_end_offset} is within a batch")
            # The log starts within a batch, which comes as a whole; its start is set at the end.
            self._store.truncate_fully_and_start_at(
                partition, first.base_offset, now_ms, is_future=True
            )
        with future.directory.writing_guard:
            appended = target.append_as_follower(records, now_ms=now_ms)
        assert appended is not None, "a read gives a whole batch at least"
        self.on_copied(len(records))
        return target.log_end_offset < source.log_end_offset

    def _finish(
        self, partition: TopicPartition, current: StoredLog, future: StoredLog, now_ms: int
    ) -> None:
        source, target = current.log, future.log
        with future.directory.guard:
            if target.log_end_offset < source.log_end_offset:
                # Compaction removed the last records; their offsets must not be given out again.
                target.roll(now_ms, base_offset=source.log_end_offset)
                target.log_end_offset = source.log_end_offset
            target.update_high_watermark(source.high_watermark)
            target.advance_log_start_offset(source.log_start_offset)
            target.flush()
            # Where the log starts was durable in the old directory and must be in the new one, or
            # a crash could bring deleted records back. So with the gap above, by recovery point.
            future.directory.write_checkpoints()
        del self._moves[partition]
        try:
            self._store.replace_current_with_future(partition, now_ms)
        except ApiError:
            if partition in self._future:
                raise
            # Only the old directory failed: the replica is in the new one.
        self.on_moved(partition, self._current[partition].log)


def _unflushed_bytes(log: Log) -> int:
    if log.recovery_point >= log.log_end_offset:
        return 0
    return log.bytes_from(max(log.recovery_point, log.log_start_offset))
