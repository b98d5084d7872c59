"""Takes logs out of use: their folder is renamed, and removed ``file.delete.delay.ms`` later.

Strays, of which nobody knows why they are there, are renamed too, and kept. All of it works where
the disk is full.
"""

from pathlib import PurePath
from random import Random

from odradek.core.ids import TopicPartition
from odradek.storage.disk import Disk
from odradek.storage.log_directory import LogDirectory, StoredLog
from odradek.storage.log_folders import FolderKind, new_folder_name
from odradek.storage.log_upkeep import LogUpkeep
from odradek.storage.log_work import release_files
from odradek.storage.stored_logs import StoredLogs


class LogDeletion:
    def __init__(self, disk: Disk, logs: StoredLogs, upkeep: LogUpkeep, random: Random) -> None:
        self._disk = disk
        self._logs = logs
        self._upkeep = upkeep
        self._random = random

    def delete(self, partition: TopicPartition, kind: FolderKind) -> bool:
        """Take out all logs of a partition, those that could not be opened too.

        Return whether there were any.
        """
        found = False
        for logs in (self._logs.future, self._logs.current):
            stored = logs.get(partition)
            if stored is not None and stored.directory.is_online:
                found = True
                with stored.directory.guard:
                    self.discard(stored, kind)
            elif stored is not None:
                # Its folder stays. A later topic of this name has a log elsewhere meanwhile, and
                # when the directory is back, the id in this one says that it is a stray.
                found = True
                self._logs.drop(stored)
        for directory in self._logs.directories:
            if partition in directory.failed:
                found = True
                with directory.guard:
                    folder = directory.failed[partition].folder
                    self._rename_away(directory, folder, partition, kind, 0)
                    del directory.failed[partition]
        return found

    def discard(self, stored: StoredLog, kind: FolderKind) -> None:
        """Take out one log; within a guard of its directory."""
        log, directory = stored.log, stored.directory
        if directory.cleaner is not None:
            directory.cleaner.abandon(log.partition)
        release_files(log)
        delay_ms = log.config.file_delete_delay_ms
        self._rename_away(directory, log.folder, log.partition, kind, delay_ms)
        self._logs.drop(stored)
        self._upkeep.checkpoint_soon(directory)

    def _rename_away(
        self,
        directory: LogDirectory,
        folder: PurePath,
        partition: TopicPartition,
        kind: FolderKind,
        delay_ms: int,
    ) -> None:
        target = folder.with_name(new_folder_name(partition, kind, self._random))
        self._disk.rename(folder, target)
        directory.on_renamed_away(partition)
        if kind is FolderKind.DELETE:
            self._upkeep.remove_later(directory, target, delay_ms)
