"""Memory that the machine has at hand, so that two brokers that write files pay the same for it.

A virtual machine whose balloon reports free pages gives free memory back to its host after two
seconds, in blocks of 2 MiB, and the host has to find it anew: 1.4 ms of CPU for a megabyte that
takes 0.2 ms to write. Who pays depends on who deletes when. We delete a topic's files at once, and
the broker whose turn is next finds them warm. Kafka keeps them for a minute
(``log.segment.delete.delay.ms``), and when it is our turn they are cold again.

So twice as much as is needed is touched, and every other piece given back. What is free then lies
between pieces in use: too small to be reported, and small enough to be used first.
"""

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

PIECE_BYTES: Final = 64 * 1024
FREE_MIB_MAX: Final = 3 * 1024
"""For what Kafka keeps for a minute, and for a JVM of the client."""
SHARE_MAX: Final = 8
"""Of what is available an eighth is warmed, which takes a quarter."""


@contextmanager
def warm_memory() -> Iterator[None]:
    """Let files and heaps up to ``FREE_MIB_MAX`` find warm memory for as long as this lasts."""
    free_bytes = min(FREE_MIB_MAX * 1024 * 1024, _available_bytes() // SHARE_MAX)
    with mmap.mmap(-1, 2 * free_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as held:
        for position in range(0, len(held), mmap.PAGESIZE):
            held[position] = 1
        for position in range(0, len(held) - PIECE_BYTES, 2 * PIECE_BYTES):
            held.madvise(mmap.MADV_DONTNEED, position, PIECE_BYTES)
        yield


def _available_bytes() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    (line,) = (each for each in lines if each.startswith("MemAvailable:"))
    return int(line.split()[1]) * 1024
