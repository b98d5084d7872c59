"""Which log directory a new log goes to."""

from collections.abc import Sequence
from typing import Final

from odradek.core.ids import TopicPartition, Uuid
from odradek.storage.log_directory import LogDirectory

PREFERENCES_MAX: Final = 10_000


class LogPlacement:
    def __init__(self, directories: Sequence[LogDirectory]) -> None:
        self._directories = directories
        self._preferred: dict[TopicPartition, LogDirectory] = {}

    def prefer(self, partition: TopicPartition, directory: LogDirectory) -> None:
        """Remember where a log is to be made, should it be made and the directory be online."""
        if len(self._preferred) < PREFERENCES_MAX:
            self._preferred[partition] = directory

    def take_places(
        self, partition: TopicPartition, directory_id: Uuid | None
    ) -> list[LogDirectory]:
        """Return the directories to try for a new current log, in this order."""
        preferred = self._preferred.pop(partition, None)
        if directory_id is None and preferred is not None and preferred.is_writable:
            return [preferred]
        # Not beside a future log, which is there if the directory of the current one failed.
        return [each for each in self.places(directory_id) if partition not in each.logs]

    def places(self, directory_id: Uuid | None) -> list[LogDirectory]:
        """Return the directories to try for a new log, the one with the fewest logs first.

        One that is cordoned is left out if there is another. The controller may have placed a
        replica here a moment before the last one was cordoned.
        """
        writable = [directory for directory in self._directories if directory.is_writable]
        if directory_id is None:
            free = [directory for directory in writable if not directory.is_cordoned]
            return sorted(free or writable, key=lambda directory: len(directory.logs))
        return [directory for directory in writable if directory.directory_id == directory_id]
