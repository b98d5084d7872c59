"""Ports for servers that start later, or start again: nobody takes them meanwhile.

They lie below those that the kernel hands out by itself, to connections of clients and to servers
that want any port. Those are thousands within one run of the tests, and one of them on the port of
a broker that is being started anew, or is not up yet, would fail a test that has nothing to do with
it. Among processes of tests a lock keeps each to its own, until the process ends: byte n of a file
stands for port n, so that hundreds of ports cost a process one descriptor.
"""

import fcntl
import os
import random
import tempfile
from functools import cache
from pathlib import Path
from typing import IO, Final

from odradek.local.ports import is_free

HOST: Final = "127.0.0.1"
# Linux hands out 32768-60999, macOS 49152-65535.
_FIRST: Final = 20_000
_END: Final = 32_000
_TRIES_MAX: Final = 1_000

_reserved: set[int] = set()


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on, this process's own from now on."""
    chance, ports = random.SystemRandom(), set[int]()
    for _ in range(_TRIES_MAX):
        if len(ports) == count:
            return sorted(ports)
        port = chance.randrange(_FIRST, _END)
        if is_free(port) and reserve(port):
            ports.add(port)
    raise RuntimeError(f"no {count} free ports between {_FIRST} and {_END}")


def reserve(port: int) -> bool:
    """Make a port this process's own; False if it is another's, or this one's already."""
    if port in _reserved:  # to the kernel a process is never in its own way
        return False
    try:
        fcntl.lockf(_locks(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    _reserved.add(port)
    return True


@cache
def _locks() -> IO[bytes]:
    """Open the file for good: closing it anywhere in this process would give up every port."""
    path = Path(tempfile.gettempdir()) / f"odradek-ports-{os.getuid()}.locks"
    return path.open("ab")
