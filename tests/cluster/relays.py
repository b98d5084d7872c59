"""A network between processes that tests can cut in one direction, without privileges.

Each listener has one relay, whose port is what its node advertises. A relay finds out which process
connects to it (``socket_owner``), so that it knows the ordered pair of nodes whose bytes it moves.
What happens to bytes from ``a`` to ``b``:

``cut(a, b)``      they wait, on connections of either side; new connections of ``a`` to ``b`` are
                   taken and lead nowhere. The other direction goes on. Nothing is lost: after
                   ``heal`` they arrive, as TCP's repetitions would.
``refuse(a, b)``   connections of ``a`` to ``b`` are reset, present and new.
``heal``           undoes both.

Processes that are no node of the cluster, clients of tests among them, are CLIENT.
"""

import asyncio
import contextlib
import socket
import struct
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self, TypeVar

from tests.cluster.socket_owner import find_owner
from tests.interop.ports import HOST, free_ports

CLIENT = -1
CHUNK_BYTES = 1 << 16
CALL_SECONDS_MAX = 60

Pair = tuple[int, int]
R = TypeVar("R")


class _Link:
    """One connection through a relay: from ``source`` to ``target``, bytes in both directions."""

    def __init__(self, writer: asyncio.StreamWriter, source: int, target: int) -> None:
        self.source = source
        self.target = target
        self._writers = [writer]

    def add(self, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)

    def reset(self) -> None:
        for writer in self._writers:
            end = writer.get_extra_info("socket")
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    def close(self) -> None:
        for writer in self._writers:
            writer.close()


class Relays:
    """All relays of a cluster, on a thread of their own; ``with`` ends them."""

    def __init__(self, pids: Callable[[], Mapping[int, int]]) -> None:
        """``pids`` gives the node of each process that runs now, by its pid."""
        self._pids = pids
        self._open: dict[Pair, asyncio.Event] = defaultdict(_opened)
        self._refused: set[Pair] = set()
        self.carried: Counter[Pair] = Counter()
        """Bytes from one node to another, so far."""
        self._links: set[_Link] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="relays", daemon=True)
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        """Of connections that were taken; a task that is cancelled early never sees its own."""

    def add(self, node: int, port: int) -> int:
        """Return the port of a new relay in front of a port of ``node``."""
        (relay_port,) = free_ports(1)

        async def serve() -> None:
            def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                self._writers.add(writer)
                task = self._loop.create_task(self._relay(node, port, reader, writer))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

            self._servers.append(await asyncio.start_server(on_connection, HOST, relay_port))

        asyncio.run_coroutine_threadsafe(serve(), self._loop).result(CALL_SECONDS_MAX)
        return relay_port

    def cut(self, source: int, target: int) -> None:
        self._call(lambda: self._open[source, target].clear())

    def refuse(self, source: int, target: int) -> None:
        def reset() -> None:
            self._refused.add((source, target))
            for link in list(self._links):
                if (link.source, link.target) == (source, target):
                    link.reset()

        self._call(reset)

    def isolate(self, node: int, others: Mapping[int, object]) -> None:
        """Cut both directions between a node and the others."""
        for other in others:
            if other != node:
                self.cut(node, other)
                self.cut(other, node)

    def heal(self) -> None:
        def open_all() -> None:
            self._refused.clear()
            for event in self._open.values():
                event.set()

        self._call(open_all)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        async def close() -> None:
            for server in self._servers:
                server.close()
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for writer in self._writers:
                writer.transport.abort()  # what a cut holds back is never written
            closed = [writer.wait_closed() for writer in self._writers]
            await asyncio.gather(*closed, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(close(), self._loop).result(CALL_SECONDS_MAX)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_SECONDS_MAX)
        self._loop.close()

    def _call(self, work: Callable[[], R]) -> R:
        async def run() -> R:
            return work()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(CALL_SECONDS_MAX)

    async def _relay(
        self,
        target: int,
        port: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        source = self._find_source(writer)
        link = _Link(writer, source, target)
        self._links.add(link)
        try:
            if (source, target) in self._refused:
                link.reset()
                return
            await self._open[source, target].wait()
            far_reader, far_writer = await asyncio.open_connection(HOST, port)
            self._writers.add(far_writer)
            link.add(far_writer)
            await asyncio.gather(
                self._pump(reader, far_writer, (source, target)),
                self._pump(far_reader, writer, (target, source)),
            )
        except OSError:
            link.reset()  # nothing listens behind it: as without a relay
        finally:
            link.close()
            self._links.discard(link)

    def _find_source(self, writer: asyncio.StreamWriter) -> int:
        _, peer_port = writer.get_extra_info("peername")
        _, own_port = writer.get_extra_info("sockname")
        nodes = self._pids()
        pid = find_owner(peer_port, own_port, nodes)
        return CLIENT if pid is None else nodes[pid]

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pair: Pair
    ) -> None:
        while chunk := await reader.read(CHUNK_BYTES):
            await self._open[pair].wait()
            self.carried[pair] += len(chunk)
            writer.write(chunk)
            await writer.drain()
        await self._open[pair].wait()  # the end of a stream is a message, too
        with contextlib.suppress(OSError):
            writer.write_eof()


def _opened() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event
