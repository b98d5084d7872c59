"""What to sync so that the records of a log survive a crash; planned by ``Log.plan_flush``."""

from pathlib import PurePath
from typing import NamedTuple

from odradek.storage.disk import Disk


class FlushPlan(NamedTuple):
    """Files to sync, by name, from any thread."""

    disk: Disk
    folder: PurePath | None
    paths: list[PurePath]
    end_offset: int
    name_changes: int
    truncations: int

    def run(self) -> None:
        for path in self.paths:
            try:
                self.disk.sync_file(path)
            except FileNotFoundError:
                continue  # deleted meanwhile, by retention or truncation
        if self.folder is not None:
            self.disk.sync_folder(self.folder)
