"""What to sync so that the records of a log survive a crash; planned by ``Log.plan_flush``."""

import errno
from contextlib import suppress
from pathlib import PurePath
from typing import NamedTuple

from odradek.storage.disk import Disk
from odradek.storage.index_file import IndexFile
from odradek.storage.space_reserve import FULL_ERRORS
from odradek.storage.transaction_index import TransactionIndex


class UnsyncedIndex(NamedTuple):
    """An index with changes that may not be on disk yet."""

    file: IndexFile | TransactionIndex
    changes: int
    """How many there are so far; there may be more when it is synced."""


class FlushPlan(NamedTuple):
    """Files to sync, by name, from any thread."""

    disk: Disk
    folder: PurePath | None
    paths: list[PurePath]
    indexes: list[UnsyncedIndex]
    """Those that are among ``paths``."""
    end_offset: int
    name_changes: int
    truncations: int
    epoch_changes: int | None = None
    """Those of the leader epochs, whose file is among ``paths`` then."""

    def run(self) -> None:
        """Sync them all.

        Raises:
            OSError: Nobody knows what is on stable storage. That it was for want of space makes no
                difference, so this is never what a write says to a full disk.
        """
        try:
            for path in self.paths:
                with suppress(FileNotFoundError):  # deleted meanwhile, by retention or truncation
                    self.disk.sync_file(path)
            if self.folder is not None:
                self.disk.sync_folder(self.folder)
        except OSError as error:
            if error.errno not in FULL_ERRORS:
                raise
            raise OSError(errno.EIO, f"fsync: {error.strerror}", error.filename) from error
