"""A node with a fault that a test must see: ``python planted_node.py FAULT server.properties``.

The product has no such switch; the fault is put into this process only.
"""

import asyncio
import errno
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePath
from typing import Any, Final

from odradek.broker.fetcher import Fetcher
from odradek.broker.partition import Outcome, Partition
from odradek.cli.main import main
from odradek.coordinator.result import Result
from odradek.coordinator.transaction.shard import TransactionShard
from odradek.core.clock import Instant
from odradek.core.errors import ErrorCode
from odradek.storage.disk import OsDisk, OsFile

FOLLOWERS_LATE_SECONDS: Final = 0.05
BROKEN_SUFFIX: Final = ".broken"


def acknowledge_early() -> None:
    """Answer acks=all as soon as the leader has the record, and its followers get it later.

    They are slowed down so that few kills are enough: on one machine they have a record within a
    millisecond, and a kill would have to hit that.
    """
    fetch_on = Fetcher._on_taken

    def fetch_later(self: Fetcher, _outcome: None) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(FOLLOWERS_LATE_SECONDS, fetch_on, self, None)

    def when_committed(self: Partition, offset: int, outcome: Outcome) -> None:
        outcome(ErrorCode.NONE)

    Partition.when_committed = when_committed  # type: ignore[method-assign]
    Fetcher._on_taken = fetch_later  # type: ignore[method-assign]


def forget_markers() -> None:
    """Bring no markers for what a coordinator finds decided when it loads."""
    load = TransactionShard.on_loaded

    def on_loaded(self: TransactionShard, now: Instant) -> Iterator[Result]:
        yield from load(self, now)
        self.take_markers()

    TransactionShard.on_loaded = on_loaded  # type: ignore[method-assign]


def fail_disks() -> None:
    """Have a log directory fail with EIO from when a file ``<directory>.broken`` is there."""

    def check(path: PurePath) -> None:
        if any(os.path.exists(f"{folder}{BROKEN_SUFFIX}") for folder in path.parents):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    def checked(method: Callable[..., Any], *, is_disk: bool) -> Callable[..., Any]:
        def call(owner: Any, *args: Any, **named: Any) -> Any:
            check(args[0] if is_disk else owner.path)
            return method(owner, *args, **named)

        return call

    for name in ("read", "write", "truncate", "sync"):
        setattr(OsFile, name, checked(getattr(OsFile, name), is_disk=False))
    for name in ("open", "read", "rename", "remove", "make_folder", "sync_file", "sync_folder"):
        setattr(OsDisk, name, checked(getattr(OsDisk, name), is_disk=True))


FAULTS: Final[Mapping[str, Callable[[], None]]] = {
    "acknowledge-early": acknowledge_early,
    "failing-disks": fail_disks,
    "forget-markers": forget_markers,
}


if __name__ == "__main__":
    FAULTS[sys.argv[1]]()
    sys.argv = ["odradek", "serve", sys.argv[2]]
    main()
