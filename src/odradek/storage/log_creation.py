"""Logs that are made together wait for the disk together.

A log that is made alone is synced as it is made: its ``partition.metadata``, the names in its
folder, and the name of its folder in the log directory. Within ``LogStore.creating`` that is put
off to the end, where threads wait side by side: a file system commits at once what all of them wait
for (50 logs on ext4: 40 ms instead of 400). With ``LogStore.plan_creation`` the end can be on
another thread, and whoever owns the logs uses them only afterwards.

Each log still goes through the same steps in the same order, so a crash leaves no more than it
leaves of a log that is made alone: a folder without an id, or none.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePath
from typing import Final

from odradek.core.ids import Uuid
from odradek.storage.disk import Disk, OsDisk
from odradek.storage.log_dir_files import draft_partition_metadata, publish_partition_metadata
from odradek.storage.log_directory import LogDirectory

THREADS_MAX: Final = 8


class LogCreation:
    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._drafts: dict[LogDirectory, list[PurePath]] = {}
        self._errors: dict[LogDirectory, OSError] = {}

    def add(self, directory: LogDirectory, folder: PurePath, topic_id: Uuid) -> None:
        """Write a log's id, to be made durable with its folder at the end."""
        draft = draft_partition_metadata(self._disk, folder, topic_id)
        self._drafts.setdefault(directory, []).append(draft)

    def forget(self, directory: LogDirectory, folder: PurePath) -> None:
        """Make no more of a log that could not be made."""
        drafts = self._drafts.get(directory, [])
        drafts[:] = [each for each in drafts if each.parent != folder]

    @property
    def is_waiting(self) -> bool:
        """Whether ``run`` will wait for a disk: then it is better done on another thread."""
        return bool(self._drafts) and isinstance(self._disk, OsDisk) and self._disk.syncs

    def finish(self) -> None:
        """Make everything durable, here and now."""
        self.run()
        self.done(None)

    def run(self) -> None:
        """Make everything durable; in any thread, once, and ``done`` afterwards."""
        for directory, drafts in self._drafts.items():
            if directory.is_online:
                try:
                    self._make_durable(directory, drafts)
                except OSError as error:
                    self._errors[directory] = error

    def done(self, error: BaseException | None) -> None:
        """Take note of the outcome, on the owner's thread; ``error`` is what ``run`` raised.

        A directory in which it failed is offline now.
        """
        if error is not None:
            raise error
        for directory, failure in self._errors.items():
            directory.fail(failure)  # of a sync, after which nobody knows; full or not

    def _make_durable(self, directory: LogDirectory, drafts: Sequence[PurePath]) -> None:
        self._for_each(self._disk.sync_file, drafts)
        for draft in drafts:
            publish_partition_metadata(self._disk, draft)
        self._for_each(self._disk.sync_folder, [draft.parent for draft in drafts])
        # Not by ``directory.sync_names``: what was renamed meanwhile need not be durable.
        self._disk.sync_folder(directory.path)

    def _for_each(self, sync: Callable[[PurePath], None], todo: Sequence[PurePath]) -> None:
        if len(todo) > 1 and isinstance(self._disk, OsDisk) and self._disk.syncs:
            with ThreadPoolExecutor(min(THREADS_MAX, len(todo))) as threads:
                list(threads.map(sync, todo))
            return
        for path in todo:
            sync(path)
