"""The processes of a cluster's nodes: started, waited for, stopped, and noticed when they end.

It needs asyncio's own loop: SIGCHLD, by which it learns that a node ended, is libuv's in uvloop.
"""

import asyncio
import signal
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from odradek.local.errors import LocalClusterError
from odradek.local.folder import ClusterFolder
from odradek.local.layout import NodeLayout
from odradek.local.node_process import NodeProcess, NodeState

START_SECONDS_MAX: Final = 120
STOP_SECONDS_MAX: Final = 30
HURRY_SECONDS: Final = 0.2


class NodeGroup:
    def __init__(
        self,
        folder: ClusterFolder,
        nodes: Iterable[NodeLayout],
        on_started: Callable[[NodeProcess], None],
        on_ended: Callable[[NodeProcess, int], None],
    ) -> None:
        """``on_ended`` gets the exit code, negative for a signal."""
        self._folder = folder
        self._nodes = {node.id: NodeProcess(node, folder) for node in nodes}
        self._on_started = on_started
        self._on_ended = on_ended
        self._changed = asyncio.Event()
        """Set whenever the state of a node may be another."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self._reap)

    def __iter__(self) -> Iterator[NodeProcess]:
        return iter(self._nodes.values())

    def find(self, node_id: int) -> NodeProcess:
        """Return a node.

        Raises:
            LocalClusterError: There is none with this id.
        """
        if node_id not in self._nodes:
            ids = ", ".join(map(str, self._nodes))
            raise LocalClusterError(f"there is no node {node_id}; the nodes are {ids}")
        return self._nodes[node_id]

    def add(self, node: NodeLayout) -> NodeProcess:
        self._nodes[node.id] = NodeProcess(node, self._folder)
        return self._nodes[node.id]

    def replace(self, nodes: Iterable[NodeLayout]) -> None:
        assert not any(node.state.has_process for node in self)
        self._nodes = {node.id: NodeProcess(node, self._folder) for node in nodes}

    def forget(self, node_id: int) -> None:
        del self._nodes[node_id]

    @property
    def has_quorum(self) -> bool:
        """Whether a majority of the first voters has processes."""
        states = [node.state for node in self if node.layout.is_voter]
        return 2 * sum(state.has_process for state in states) > len(states)

    def start(self, node: NodeProcess) -> None:
        """Start a node and do not wait for it.

        Raises:
            LocalClusterError: It runs.
        """
        node.start()
        loop = asyncio.get_running_loop()
        descriptor = node.stdout.fileno()

        def on_output() -> None:
            if not node.on_output():
                loop.remove_reader(descriptor)
            self._changed.set()

        loop.add_reader(descriptor, on_output)
        self._on_started(node)

    async def until_ready(self, nodes: Iterable[NodeProcess]) -> None:
        """Wait until nodes serve.

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

        if not await self.until(is_over, START_SECONDS_MAX):
            late = [str(each.id) for each in waited if each.state is not NodeState.RUNNING]
            raise LocalClusterError(
                f"not ready within {START_SECONDS_MAX} s: node {', '.join(late)};"
                " see `odradek local logs`"
            )

    async def stop(self, nodes: Iterable[NodeProcess]) -> None:
        """Stop nodes, and kill those that do not."""
        running = [node for node in nodes if node.state.has_process]
        for node in running:
            node.stop()
        hurrying = asyncio.create_task(self._hurry(running))
        try:
            if not await self._until_ended(running):
                for node in running:
                    if node.state.has_process:
                        node.kill()
                await self._until_ended(running)
        finally:
            hurrying.cancel()

    async def until(self, is_over: Callable[[], bool], seconds_max: float) -> bool:
        """Wait for a state of the nodes; False if time is up."""

        async def wait() -> None:
            while not is_over():
                self._changed.clear()
                await self._changed.wait()

        try:
            await asyncio.wait_for(wait(), seconds_max)
        except TimeoutError:
            return False
        return True

    async def _until_ended(self, nodes: Iterable[NodeProcess]) -> bool:
        return await self.until(
            lambda: not any(node.state.has_process for node in nodes), STOP_SECONDS_MAX
        )

    async def _hurry(self, nodes: Iterable[NodeProcess]) -> None:
        """Ask nodes a second time when nobody is left who could permit them to leave."""
        while True:
            await asyncio.sleep(HURRY_SECONDS)
            if not self.has_quorum:
                for node in nodes:
                    if node.state.has_process:
                        node.stop()

    def _reap(self) -> None:
        for node in self:
            code = node.reap()
            if code is not None:
                asyncio.get_running_loop().remove_reader(node.stdout.fileno())
                node.close_pipes()
                self._on_ended(node, code)
        self._changed.set()
