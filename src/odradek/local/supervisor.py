"""The supervisor: the process of ``odradek up``, which starts the nodes of a cluster and ends them.

It carries out what other processes ask for (``commands``, ``operations``), tells what happens to
the nodes and what comes of it (``watch``), and starts none again by itself: who kills a node wants
to see what comes of it. It ends on SIGINT, SIGTERM or ``down``, after its nodes have.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar

from odradek.core.clock import Clock
from odradek.local.commands import CommandServer, Say
from odradek.local.cuts import Pair, held_ports
from odradek.local.errors import LocalClusterError
from odradek.local.events import EventLog
from odradek.local.folder import ClusterFolder, RunRecord
from odradek.local.layout import Layout, NodeLayout
from odradek.local.node_group import NodeGroup
from odradek.local.node_process import NodeProcess, NodeState
from odradek.local.operations import ONE_AT_A_TIME, OPERATIONS
from odradek.local.process_identity import identify
from odradek.local.watch import Watch

_STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

T = TypeVar("T")


class Supervisor:
    def __init__(
        self,
        folder: ClusterFolder,
        layout: Layout,
        clock: Clock,
        say: Say,
        on_ready: Callable[["Supervisor", float], None],
    ) -> None:
        """``say`` gets what happens, ``on_ready`` is called with the seconds that it took."""
        self.folder = folder
        self.layout = layout
        self.clock = clock
        self.events = EventLog(folder.events_file, clock, say)
        self.watch = Watch(self.askable, clock, self.events)
        self.cuts: set[Pair] = set()
        self._on_ready = on_ready
        self._stop_asked = asyncio.Event()
        self._is_ready = False
        self._under_way: str | None = None

    @property
    def pids(self) -> Mapping[int, int | None]:
        return {node.id: node.pid for node in self.nodes}

    async def run(self) -> None:
        """Run the cluster until it is to stop, and all its nodes have.

        Raises:
            LocalClusterError: A node does not start. Those that did have been stopped.
        """
        loop = asyncio.get_running_loop()
        for number in _STOP_SIGNALS:
            loop.add_signal_handler(number, self.ask_to_stop)
        self.nodes = NodeGroup(self.folder, self.layout.nodes, self._on_started, self._on_ended)
        self._server = CommandServer(self._carry_out)
        await self._server.start()
        watching: asyncio.Task[None] | None = None
        try:
            if await self._unless_stopped(self._start_all()):
                watching = asyncio.create_task(self.watch.run())
                await self._stop_asked.wait()
        finally:
            if watching is not None:
                watching.cancel()
            await self.stop_all()
            self.events.close()
            await self._server.stop()
            self.folder.remove_run()

    def ask_to_stop(self) -> None:
        self._stop_asked.set()

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Return what comes of some work; None if the cluster is to stop before it is over."""
        working = asyncio.create_task(work)
        stopping = asyncio.create_task(self._stop_asked.wait())
        try:
            await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
            return working.result() if working.done() else None
        finally:
            stopping.cancel()
            working.cancel()

    async def _start_all(self) -> bool:
        begun_ms = self.clock.monotonic_ms()
        await self._start_nodes()
        self._on_ready(self, (self.clock.monotonic_ms() - begun_ms) / 1000)
        return True

    async def _start_nodes(self) -> None:
        for node in self.nodes:
            self.nodes.start(node)
        await self.nodes.until_ready(self.nodes)
        self._is_ready = True
        self.write_run()

    async def stop_all(self) -> None:
        """Stop brokers, then controllers, which the brokers need to leave in good order."""
        if self.cuts:
            self.set_cuts(set())
        await self.nodes.stop([node for node in self.nodes if node.layout.is_broker])
        await self.nodes.stop([node for node in self.nodes if not node.layout.is_broker])

    def set_cuts(self, cuts: set[Pair]) -> None:
        """Let bytes from some nodes to others wait, and no other bytes any more."""
        self.cuts = cuts
        for node in self.nodes:
            if node.state.has_process:
                node.hold(held_ports(cuts, self.layout, node.id))

    async def replace_nodes(self, layout: Layout) -> None:
        """Go on with other nodes, or other data of the same ones; none runs."""
        self.layout, self._is_ready = layout, False
        self.nodes.replace(layout.nodes)
        self.watch.forget()
        await self._start_nodes()

    def askable(self) -> list[NodeLayout]:
        """Return the brokers that run, those that are cut off last; none while all start."""
        if not self._is_ready:
            return []
        apart = [node_id for pair in self.cuts for node_id in pair]
        running = [
            node.layout
            for node in self.nodes
            if node.layout.is_broker and node.state is NodeState.RUNNING
        ]
        return sorted(running, key=lambda node: apart.count(node.id))

    # What happens to nodes.

    def _on_started(self, node: NodeProcess) -> None:
        if self.cuts:
            node.hold(held_ports(self.cuts, self.layout, node.id))
        self.write_run()

    def _on_ended(self, node: NodeProcess, code: int) -> None:
        if node.state is NodeState.STOPPED:
            self.events.fault(f"node {node.id} stopped")
        else:
            self.events.fault(f"node {node.id} died ({_cause(code)})")
            self.watch.on_down([node.id])
            if node.layout.is_voter and not self.nodes.has_quorum:
                self.events.note(
                    "most controllers are down: no leader, topic or config can change until one"
                    " is back"
                )
        self.write_run()

    def write_run(self) -> None:
        """Write down which processes there are."""
        supervisor = identify(os.getpid())
        assert supervisor is not None
        nodes = {node.id: node.identity for node in self.nodes if node.identity is not None}
        record = RunRecord(supervisor, self._server.path, self._is_ready, nodes)
        self.folder.write_run(record)

    async def _carry_out(self, request: Mapping[str, Any], say: Say) -> Mapping[str, Any]:
        name = request["command"]
        if name not in OPERATIONS:
            raise LocalClusterError(f"the supervisor knows no command {name!r}: is it older?")

        async def work() -> Mapping[str, Any]:
            return await OPERATIONS[name](self, request, say) or {}

        if name in ONE_AT_A_TIME and self._under_way is not None:
            raise LocalClusterError(f"{self._under_way} is under way: wait until it is over")
        if name in ONE_AT_A_TIME:
            self._under_way = name
        try:
            done = await self._unless_stopped(work())
        finally:
            if name in ONE_AT_A_TIME:
                self._under_way = None
        if done is None:
            raise LocalClusterError("the cluster is going down")
        return done


def _cause(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
