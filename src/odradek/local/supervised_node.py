"""A node as a child of the supervisor: ``python -m odradek.local.supervised_node PROPERTIES``.

It is ``odradek serve`` but for its stdin, which the supervisor holds open: when that ends, because
the supervisor is gone in whatever way, the node stops as on SIGTERM. So a supervisor that was
killed leaves nothing behind. Lines on stdin say which other nodes are cut off (``gate``). On stdout
it has one line for each listener that serves.
"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from odradek.broker.event_log import logging_to
from odradek.core.errors import OdradekError
from odradek.local.gate import Gate, gated_loop
from odradek.node.node import Node
from odradek.node.serving import load_config, run

READ_BYTES = 1 << 12


def main() -> None:
    gate = Gate()

    def new_loop() -> asyncio.AbstractEventLoop:
        loop = gated_loop(gate)
        _read_orders(loop, gate)
        return loop

    def on_ready(_: str, port: int) -> None:
        print(port, flush=True)

    with logging_to(sys.stderr, "human", "info"):
        try:
            loaded = load_config(Path(sys.argv[1]), ())
            run(Node(loaded.config), loaded, on_ready, new_loop=new_loop)
        except (OdradekError, OSError) as error:
            print(f"Error: {error}", file=sys.stderr)
            sys.exit(1)


def _read_orders(loop: asyncio.AbstractEventLoop, gate: Gate) -> None:
    stdin = sys.stdin.fileno()
    unread = b""

    def on_stdin() -> None:
        nonlocal unread
        chunk = os.read(stdin, READ_BYTES)
        if not chunk:
            loop.remove_reader(stdin)
            os.kill(os.getpid(), signal.SIGTERM)
            return
        *lines, unread = (unread + chunk).split(b"\n")
        for line in lines:
            held = json.loads(line)["hold"]
            gate.hold({int(port): directions for port, directions in held.items()})

    loop.add_reader(stdin, on_stdin)


if __name__ == "__main__":
    main()
