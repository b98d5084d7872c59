"""A node with a fault that a test must see: ``python planted_node.py FAULT server.properties``.

The product has no such switch; the fault is put into this process only.
"""

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from odradek.broker.fetchers import Fetcher
from odradek.broker.partition import Outcome, Partition
from odradek.cli.main import main
from odradek.coordinator.result import Result
from odradek.coordinator.transaction.shard import TransactionShard
from odradek.core.clock import Instant
from odradek.core.errors import ErrorCode

FOLLOWERS_LATE_SECONDS: Final = 0.05


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


FAULTS: Final[Mapping[str, Callable[[], None]]] = {
    "acknowledge-early": acknowledge_early,
    "forget-markers": forget_markers,
}


if __name__ == "__main__":
    FAULTS[sys.argv[1]]()
    sys.argv = ["odradek", "serve", sys.argv[2]]
    main()
