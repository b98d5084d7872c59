"""Whether nodes can listen where they are to."""

import socket
from collections.abc import Iterable

from odradek.local.errors import LocalClusterError
from odradek.local.layout import HOST, NodeLayout


def check_ports(nodes: Iterable[NodeLayout]) -> None:
    """See that nobody listens where nodes are to listen.

    Raises:
        LocalClusterError: Somebody does.
    """
    for node in nodes:
        for port in node.ports:
            if not is_free(port):
                raise LocalClusterError(
                    f"port {port}, for node {node.id}, is in use: stop what listens there, or"
                    " choose another --base-port (with another --dir, if this cluster exists)"
                )


def is_free(port: int) -> bool:
    """Tell whether nobody listens on a port of this machine."""
    with socket.socket() as probe:
        # As servers do it: connections that are being forgotten do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
