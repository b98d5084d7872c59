"""Which logs a node has: for a partition the current one and, while it moves, a future one."""

from collections.abc import Iterator, Sequence
from typing import Final

from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import TopicPartition
from odradek.storage.log import Log
from odradek.storage.log_directory import LogDirectory, StoredLog

LOGS_MAX: Final = 200_000


class StoredLogs:
    def __init__(self, directories: Sequence[LogDirectory]) -> None:
        self.directories = directories
        self.current: dict[TopicPartition, StoredLog] = {}
        self.future: dict[TopicPartition, StoredLog] = {}

    def __iter__(self) -> Iterator[StoredLog]:
        yield from self.current.values()
        yield from self.future.values()

    def __len__(self) -> int:
        return len(self.current) + len(self.future)

    def of(self, partition: TopicPartition) -> list[StoredLog]:
        """Return the logs of a partition: none, one, or two while it moves."""
        found = (self.current.get(partition), self.future.get(partition))
        return [each for each in found if each is not None]

    def find(self, partition: TopicPartition, *, is_future: bool) -> Log | None:
        """Return a log that can be used, None if there is none on this node.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR: its directory is offline, or it could not be opened.
        """
        stored = (self.future if is_future else self.current).get(partition)
        if stored is None:
            self.refuse_failed(partition, is_future=is_future)
            return None
        if not stored.directory.is_online:
            raise stored.directory.refusal()
        return stored.log

    def get(self, partition: TopicPartition, *, is_future: bool = False) -> StoredLog:
        """Return a log and where it is, even if that is offline.

        Raises:
            ApiError: UNKNOWN_TOPIC_OR_PARTITION; KAFKA_STORAGE_ERROR: it could not be opened.
        """
        stored = (self.future if is_future else self.current).get(partition)
        if stored is None:
            self.refuse_failed(partition, is_future=is_future)
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{partition}: no log on this node"
            )
        return stored

    def refuse_failed(self, partition: TopicPartition, *, is_future: bool) -> None:
        """Raise KAFKA_STORAGE_ERROR if there is such a log and it could not be opened."""
        for directory in self.directories:
            failed = directory.failed.get(partition)
            if failed is not None and failed.is_future == is_future:
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, failed.reason)

    def refuse_if_offline(self, partition: TopicPartition) -> None:
        """Raise KAFKA_STORAGE_ERROR if a log may be in a directory that nobody can look into."""
        offline = [str(each.path) for each in self.directories if not each.is_online]
        if offline:
            raise ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{partition} may be in {', '.join(offline)}, which is offline",
            )

    def refuse_if_too_many(self) -> None:
        if len(self) >= LOGS_MAX:
            raise ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"a node can have {LOGS_MAX} logs; start another node",
            )

    def add(self, stored: StoredLog) -> None:
        partition = stored.log.partition
        (self.future if stored.is_future else self.current)[partition] = stored
        stored.directory.logs[partition] = stored

    def drop(self, stored: StoredLog) -> None:
        partition = stored.log.partition
        del stored.directory.logs[partition]
        logs = self.future if stored.is_future else self.current
        if logs.get(partition) is stored:
            del logs[partition]

    def promote(self, stored: StoredLog) -> None:
        """Make a future log the current one; what was that is found by its directory only."""
        partition = stored.log.partition
        stored.is_future = False
        del self.future[partition]
        self.current[partition] = stored

    def check_invariants(self) -> None:
        for logs, is_future in ((self.current, False), (self.future, True)):
            for partition, stored in logs.items():
                assert stored.log.partition == partition
                assert stored.is_future == is_future
                assert stored.directory.logs[partition] is stored
                assert stored.log.folder.parent == stored.directory.path
        assert len(self) == sum(len(directory.logs) for directory in self.directories)
        for directory in self.directories:
            assert not directory.logs.keys() & directory.failed.keys()
