"""What a node gets of the machine that it runs on: time, chance, disk, network, threads.

A node makes none of these itself, so that a simulator can own them all. The event loop is a port as
well: a node uses the running one, and a simulated loop has the same methods.
"""

from collections.abc import Callable
from random import Random
from typing import NamedTuple, Protocol

from odradek.core.clock import Clock
from odradek.net.network import Network
from odradek.storage.disk import Disk


class Workers(Protocol):
    """Where work goes that waits for the disk, or computes without the interpreter's lock."""

    def run(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        """Run ``work`` elsewhere; call ``done`` on the loop with what it raised, or None."""

    async def wait_until_idle(self) -> None:
        """Wait for what is under way, and for what comes of it."""

    async def stop(self) -> None: ...


MakeWorkers = Callable[[int, str], Workers]
"""Makes as many workers at most, with a name for people who look at threads."""


class NodePorts(NamedTuple):
    clock: Clock
    random: Random
    """For ids and jitter; what must not be guessed comes from ``secret_bytes``."""
    secret_bytes: Callable[[int], bytes]
    disk: Disk
    network: Network
    make_workers: MakeWorkers
