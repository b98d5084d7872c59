"""The supervisor: the process of ``odradek up``, which starts the nodes of a cluster and ends them.

It carries out what other processes ask for (``commands``), tells what happens to the nodes, and
starts none again by itself: who kills a node wants to see what comes of it. It ends on SIGINT,
SIGTERM or ``down``, after its nodes have, and when none of them is left running at the start.

It runs on asyncio's own loop: SIGCHLD, by which it learns that a node ended, is libuv's in uvloop.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Final

from odradek.core.clock import Clock
from odradek.local.commands import CommandServer, Say
from odradek.local.errors import LocalClusterError
from odradek.local.events import EventLog
from odradek.local.folder import ClusterFolder, RunRecord
from odradek.local.layout import Layout
from odradek.local.node_process import NodeProcess, NodeState
from odradek.local.process_identity import identify

START_SECONDS_MAX: Final = 120
STOP_SECONDS_MAX: Final = 30
HURRY_SECONDS: Final = 0.2


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
        self.events = EventLog(folder.events_file, clock, say)
        self._clock = clock
        self._say = say
        self._on_ready = on_ready
        self._nodes = {node.id: NodeProcess(node, folder) for node in layout.nodes}
        self._changed = asyncio.Event()
        """Set whenever the state of a node may be another."""
        self._stop_asked = asyncio.Event()
        self._is_ready = False

    @property
    def pids(self) -> Mapping[int, int | None]:
        return {node.id: node.pid for node in self._nodes.values()}

    async def run(self) -> None:
        """Run the cluster until it is to stop, and all its nodes have.

        Raises:
            LocalClusterError: A node does not start. Those that did have been stopped.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._stop_asked.set)
        loop.add_signal_handler(signal.SIGCHLD, self._reap)
        self._server = CommandServer(self._carry_out)
        await self._server.start()
        try:
            await self._start_all()
            await self._stop_asked.wait()
        finally:
            await self._stop_all()
            self.events.close()
            await self._server.stop()
            self.folder.remove_run()

    # Starting.

    async def _start_all(self) -> None:
        begun_ms = self._clock.monotonic_ms()
        for node in self._nodes.values():
            self._start(node)
        if await self._until_ready(self._nodes.values()):
            self._is_ready = True
            self._write_run()
            self._on_ready(self, (self._clock.monotonic_ms() - begun_ms) / 1000)

    def _start(self, node: NodeProcess) -> None:
        node.start()
        loop = asyncio.get_running_loop()
        descriptor = node.stdout.fileno()

        def on_output() -> None:
            if not node.on_output():
                loop.remove_reader(descriptor)
            self._changed.set()

        loop.add_reader(descriptor, on_output)
        self._write_run()

    async def _until_ready(self, nodes: Iterable[NodeProcess]) -> bool:
        """Wait until nodes serve; False if the cluster is to stop meanwhile.

        Raises:
            LocalClusterError: One ended, or takes too long.
        """
        waited = list(nodes)

        def is_over() -> bool:
            for node in waited:
                if not node.state.has_process:
                    problem = f"node {node.id} ended while starting"
                    raise LocalClusterError(f"{problem}: {node.last_words()}")
            return all(node.state is NodeState.RUNNING for node in waited)

        if await self._until(is_over, START_SECONDS_MAX):
            return not self._stop_asked.is_set()
        late = ", ".join(str(each.id) for each in waited if each.state is NodeState.STARTING)
        raise LocalClusterError(
            f"not ready within {START_SECONDS_MAX} s: node {late}; see `odradek local logs`"
        )

    async def _until(
        self, is_over: Callable[[], bool], seconds_max: float, *, also_stopping: bool = False
    ) -> bool:
        """Wait for a state of nodes, or to be stopped; False if time is up."""

        async def wait() -> None:
            while not is_over() and (also_stopping or not self._stop_asked.is_set()):
                self._changed.clear()
                stopping = asyncio.ensure_future(self._stop_asked.wait())
                changed = asyncio.ensure_future(self._changed.wait())
                watched = {changed} if also_stopping else {changed, stopping}
                try:
                    await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    stopping.cancel()
                    changed.cancel()

        try:
            await asyncio.wait_for(wait(), seconds_max)
        except TimeoutError:
            return False
        return True

    def _write_run(self) -> None:
        supervisor = identify(os.getpid())
        assert supervisor is not None
        nodes = {
            node.id: node.identity for node in self._nodes.values() if node.identity is not None
        }
        record = RunRecord(supervisor, self._server.path, self._is_ready, nodes)
        self.folder.write_run(record)

    # Ending.

    def _reap(self) -> None:
        for node in self._nodes.values():
            code = node.reap()
            if code is None:
                continue
            what = "stopped" if node.state is NodeState.STOPPED else f"died ({_cause(code)})"
            self.events.fault(f"node {node.id} {what}")
            self._write_run()
        self._changed.set()

    async def _stop_all(self) -> None:
        """Stop brokers, then controllers, which the brokers need to leave in good order."""
        brokers = [node for node in self._nodes.values() if node.layout.is_broker]
        others = [node for node in self._nodes.values() if not node.layout.is_broker]
        for group in (brokers, others):
            await self._stop(group)

    async def _stop(self, nodes: Iterable[NodeProcess]) -> None:
        running = [node for node in nodes if node.state.has_process]
        for node in running:
            node.stop()
        hurrying = asyncio.create_task(self._hurry(running))
        try:
            if await self._until_ended(running):
                return
            for node in running:
                if node.state.has_process:
                    late = f"node {node.id} did not stop within {STOP_SECONDS_MAX} s: SIGKILL"
                    self.events.fault(late)
                    node.kill()
            await self._until_ended(running)
        finally:
            hurrying.cancel()

    async def _until_ended(self, nodes: Iterable[NodeProcess]) -> bool:
        def is_over() -> bool:
            return not any(node.state.has_process for node in nodes)

        return await self._until(is_over, STOP_SECONDS_MAX, also_stopping=True)

    async def _hurry(self, nodes: Iterable[NodeProcess]) -> None:
        """Ask nodes a second time when nobody is left who could permit them to leave."""
        while True:
            await asyncio.sleep(HURRY_SECONDS)
            if not self._has_quorum():
                for node in nodes:
                    if node.state.has_process:
                        node.stop()

    def _has_quorum(self) -> bool:
        controllers = [each.state for each in self._nodes.values() if each.layout.is_voter]
        return 2 * sum(state.has_process for state in controllers) > len(controllers)

    # Commands.

    async def _carry_out(self, request: Mapping[str, Any], say: Say) -> Mapping[str, Any]:
        name = request["command"]
        commands: Mapping[str, Callable[[Mapping[str, Any], Say], Coroutine[Any, Any, Any]]] = {
            "processes": self._processes,
            "down": self._down,
        }
        if name not in commands:
            raise LocalClusterError(f"the supervisor knows no command {name!r}: is it older?")
        done = await commands[name](request, say)
        return done or {}

    async def _processes(self, _: Mapping[str, Any], __: Say) -> Mapping[str, Any]:
        nodes = {
            str(node.id): {"state": node.state.value, "pid": node.pid}
            for node in self._nodes.values()
        }
        return {"nodes": nodes, "isReady": self._is_ready}

    async def _down(self, _: Mapping[str, Any], __: Say) -> None:
        self._stop_asked.set()


def _cause(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
