"""Which process is at the other end of a connection on loopback; Linux only, without privileges.

Nodes learn addresses from configs and from each other's answers, so an address alone does not show
which of them connects. The kernel knows the inode of each socket, and a process lists the inodes
that it has open.

The kernel is asked for one socket (``sock_diag``). Its tables in ``/proc/net`` have all of the
machine's: on a busy one a relay that reads them for every connection falls behind, its clients
give up and connect again, and that has no end. They are for kernels that do not answer.
"""

import errno
import os
import socket
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.interop.ports import HOST

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_NETLINK_SOCK_DIAG: Final = 4
_SOCK_DIAG_BY_FAMILY: Final = 20
_NLM_F_REQUEST: Final = 1
_HEAD: Final = struct.Struct("=IHHII")
"""length, type, flags, sequence, port id"""
_QUESTION: Final = struct.Struct("=BBBBI")
"""family, protocol, extensions, padding, states"""
_ENDS: Final = struct.Struct("!HH16s16s")
"""source and target port, source and target address"""
_ANY_INTERFACE_ANY_COOKIE: Final = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)
_ENDS_AT: Final = _HEAD.size + 4
_INODE_AT: Final = _ENDS_AT + _ENDS.size + len(_ANY_INTERFACE_ANY_COOKIE) + 16


def find_owner(local_port: int, remote_port: int, pids: Iterable[int]) -> int | None:
    """Return which of the processes has the connection from ``local_port`` to ``remote_port``."""
    inode = find_inode(local_port, remote_port)
    if inode is None:
        inode = find_inode_in_tables(local_port, remote_port)
    if not inode:
        return None
    wanted = f"socket:[{inode}]"
    return next((pid for pid in pids if _has_open(pid, wanted)), None)


def find_inode(local_port: int, remote_port: int) -> int | None:
    """Ask the kernel for one socket; 0 if it knows none, None if it does not answer."""
    address = socket.inet_aton(HOST)
    question = _QUESTION.pack(socket.AF_INET, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF)
    ends = _ENDS.pack(local_port, remote_port, address, address)
    body = question + ends + _ANY_INTERFACE_ANY_COOKIE
    head = _HEAD.pack(_HEAD.size + len(body), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG) as kernel:
            kernel.send(head + body)
            answer = kernel.recv(4096)
    except OSError:
        return None
    _, kind, *_ = _HEAD.unpack_from(answer)
    if kind == _SOCK_DIAG_BY_FAMILY:
        found = _ENDS.unpack_from(answer, _ENDS_AT)[:2]
        (inode,) = struct.unpack_from("=I", answer, _INODE_AT)
        return int(inode) if found == (local_port, remote_port) else 0  # else one that listens
    (code,) = struct.unpack_from("=i", answer, _HEAD.size)
    return 0 if code == -errno.ENOENT else None


def find_inode_in_tables(local_port: int, remote_port: int) -> int:
    """Look for one socket among all that there are; 0 if it is not there."""
    ends = f":{local_port:04X}", f":{remote_port:04X}"
    for table in _TABLES:
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[1].endswith(ends[0]) and fields[2].endswith(ends[1]):
                return int(fields[9])
    return 0


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
