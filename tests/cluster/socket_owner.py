"""Which process is at the other end of a connection on loopback; Linux only, without privileges.

Nodes learn addresses from configs and from each other's answers, so an address alone does not show
which of them connects. The kernel lists its sockets with their inodes, and a process lists the
inodes that it has open.
"""

import os
from collections.abc import Iterable
from pathlib import Path

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")


def find_owner(local_port: int, remote_port: int, pids: Iterable[int]) -> int | None:
    """Return which of the processes has the connection from ``local_port`` to ``remote_port``."""
    inode = _find_inode(local_port, remote_port)
    if inode is None:
        return None
    wanted = f"socket:[{inode}]"
    return next((pid for pid in pids if _has_open(pid, wanted)), None)


def _find_inode(local_port: int, remote_port: int) -> str | None:
    ends = f":{local_port:04X}", f":{remote_port:04X}"
    for table in _TABLES:
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[1].endswith(ends[0]) and fields[2].endswith(ends[1]):
                return fields[9]
    return None


def _has_open(pid: int, wanted: str) -> bool:
    folder = f"/proc/{pid}/fd"
    try:
        descriptors = os.listdir(folder)
    except OSError:  # it has ended
        return False
    return any(_target(f"{folder}/{each}") == wanted for each in descriptors)


def _target(link: str) -> str:
    try:
        return os.readlink(link)
    except OSError:  # closed since it was listed
        return ""
