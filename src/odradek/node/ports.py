"""The real ports of a node: the machine's clock, disk, sockets and threads."""

import os
from collections.abc import Callable
from random import Random

from odradek.broker.clock import SystemClock
from odradek.core.clock import Clock
from odradek.net.network import Network
from odradek.net.sockets import SocketNetwork
from odradek.node.work import WorkThreads
from odradek.quorum.node_ports import NodePorts
from odradek.storage.disk import Disk, OsDisk


def real_ports(
    *,
    clock: Clock | None = None,
    random: Random | None = None,
    secret_bytes: Callable[[int], bytes] | None = None,
    disk: Disk | None = None,
    network: Network | None = None,
) -> NodePorts:
    """Return the ports of this machine, but for those that are given."""
    return NodePorts(
        clock=clock or SystemClock(),
        random=random or Random(),  # noqa: S311  # ids, jitter; nothing secret
        secret_bytes=secret_bytes or os.urandom,
        disk=disk or OsDisk(),
        network=network or SocketNetwork(),
        make_workers=WorkThreads,
    )
