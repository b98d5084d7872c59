"""A machine of a simulated cluster: a disk, a clock, and a process that comes and goes on it."""

import asyncio
import errno
from collections.abc import Callable, Generator
from typing import Any, Final, Protocol

from odradek.control.controller_host import Active
from odradek.control.controller_server import ControllerServer
from odradek.controller.controller import Controller
from odradek.core.config import BrokerConfig
from odradek.core.ids import Uuid
from odradek.node.loop_watch import LoopWatch
from odradek.node.node import Node
from odradek.node.ports import real_ports
from odradek.quorum.committed_loader import RunSteps
from odradek.quorum.metadata_quorum import MetadataQuorum
from odradek.quorum.node_ports import NodePorts
from odradek.testing.disk import SimulatedCrash, SimulatedDisk
from odradek.testing.simulation import World
from tests.simulation.cluster.layout import Formatting, Layout, Place, make_config

STOP_SECONDS_MAX: Final = 60.0
"""When an operator loses patience with a process that shall stop, and kills it."""


class AnyNode(Protocol):
    """A whole node, or a part of one."""

    failed: asyncio.Event
    failure: Exception | None

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


class Machine:
    """Its node is the product's, unmodified.

    A process may end by itself, because it cannot go on; ``on_exit`` hears why. After a power loss
    the disk has what it promised to keep.
    """

    def __init__(
        self,
        world: World,
        layout: Layout,
        place: Place,
        formatting: Formatting,
        on_exit: Callable[["Machine", BaseException], None],
        make_node: Callable[[BrokerConfig, NodePorts], AnyNode] = Node,
    ) -> None:
        self.world = world
        self.place = place
        self.name = place.name
        self.sim = world.add_node(place.name)
        self.disk = SimulatedDisk(world.random(f"disk/{place.name}"), clock=self.sim.clock)
        self.config = make_config(layout, place)
        self._formatting = formatting
        formatting.format(self.config, self.disk, self.sim.clock.now_ms())
        self.disk.sync_all()
        self._on_exit = on_exit
        self._make_node = make_node
        self.lives = 0
        self.started_at = float("-inf")
        self.node: AnyNode | None = None
        self.is_serving = False
        self.is_stopping = False
        self.is_paused = False
        self.stops_too_long = 0
        self.may_lose_power: Callable[[], bool] = lambda: True
        """Asked before power is lost: otherwise the process is killed, and its writes remain."""
        self.power_lost_at = float("-inf")
        self.load_seconds = 0.0
        """How long it takes to bring what is committed into the image: more for one that lags."""

    def configure(self, layout: Layout) -> None:
        """Change the config file: it counts from the next start on."""
        self.config = make_config(layout, self.place)

    @property
    def is_up(self) -> bool:
        return self.node is not None

    @property
    def quorum(self) -> MetadataQuorum | None:
        """Its part of the metadata quorum, once that has started and while it goes on."""
        node = self.node
        if node is None or node.failure is not None or self.disk.is_off:
            return None
        quorum: MetadataQuorum | None = getattr(node, "metadata", None)
        return quorum if quorum is not None and quorum.is_started else None

    @property
    def incarnation_id(self) -> Uuid | None:
        """Of the process that runs now."""
        found: Uuid | None = getattr(self.node, "_incarnation_id", None)
        return found

    @property
    def active_controller(self) -> Controller | None:
        """Its controller, if it is the active one."""
        server: ControllerServer | None = getattr(self.node, "_controller", None)
        if server is None or not isinstance(server.host.state, Active):
            return None
        return server.host.state.controller

    def start(self) -> None:
        """Switch on, if it is off, and start the process."""
        if self.is_up:
            return
        if not self.sim.is_up:
            self.sim.start()
        self.lives += 1
        self.started_at = self.world.now
        self.sim.loop.set_exception_handler(self._on_loop_error)
        random = self.world.random(f"node/{self.name}/{self.lives}")
        secrets = self.world.random(f"secrets/{self.name}/{self.lives}")
        ports = real_ports(
            disk=self.disk,
            clock=self.sim.clock,
            random=random,
            secret_bytes=secrets.randbytes,
            network=self.sim.network,
        )
        self.is_serving = self.is_stopping = self.is_paused = False
        self.node = self._make_node(self.config, ports)
        if isinstance(self.node, Node):
            self.node._loop_watch = _NoWatch()
        self.sim.spawn(self._live(self.node))

    async def _live(self, node: AnyNode) -> None:
        try:
            await _start(node)
            self.is_serving = node.failure is None
            await node.failed.wait()
            assert node.failure is not None
            failure: BaseException = node.failure
            if self.is_serving:
                await node.stop()
        except SimulatedCrash:
            return  # the end of the round sees to it
        except Exception as error:
            failure = error
        self.world.call_at(self.world.now, self._end_process, self.lives, failure)

    def stop(self) -> None:
        """Stop as an operator does, and kill what does not stop."""
        if not self.is_up or self.is_stopping or not self.is_serving:
            self.kill()
            return
        self.is_stopping = True
        self.world.note(self.name, "stops")
        self.sim.spawn(self._stop(self.node))
        self.world.call_later(STOP_SECONDS_MAX, self._lose_patience, self.lives)

    async def _stop(self, node: AnyNode | None) -> None:
        assert node is not None
        try:
            await node.stop()
        except SimulatedCrash:
            return
        self.world.call_at(self.world.now, self._end_process, self.lives, None)

    def _lose_patience(self, life: int) -> None:
        if self.is_up and self.lives == life and self.is_stopping:
            self.stops_too_long += 1
            self.kill()

    def kill(self) -> None:
        """End the process; the kernel writes what it has and closes its connections."""
        if self.is_up:
            self._end()
            self.sim.crash(says_goodbye=True)
            self.disk.kill()

    def lose_power(self) -> None:
        """Stop without a word to peers; what was not synced is left to chance."""
        if not self.may_lose_power():
            self.kill()
        elif self.is_up:
            self.power_lost_at = self.world.now
            self._end()
            self.sim.crash()
            self.disk.crash()

    def replace_disk(self) -> None:
        """Lose all that is on the disk; the machine gets an empty one, and a directory id."""
        assert not self.is_up
        name = f"disk/{self.name}/{self.lives}"
        self.disk = SimulatedDisk(self.world.random(name), clock=self.sim.clock)
        now_ms = self.sim.clock.now_ms()
        self._formatting.format(self.config, self.disk, now_ms, is_replaced=True)
        self.disk.sync_all()

    def pause(self) -> None:
        if self.is_up:
            self.is_paused = True
            self.sim.pause()

    def resume(self) -> None:
        if self.is_up and self.is_paused:
            self.is_paused = False
            self.sim.resume()

    def after_round(self) -> None:
        """See to what a crash in the middle of a write leaves, and to metadata that comes late."""
        if self.disk.is_off:
            self.world.call_at(self.world.now, self._crash_in_write, self.lives)
        elif self.load_seconds:
            self._load_late()

    def _load_late(self) -> None:
        quorum = self.quorum
        if quorum is None or isinstance(quorum._loader._run_steps, _LateLoading):
            return
        quorum.load_with(_LateLoading(self, quorum._loader._run_steps))

    def _crash_in_write(self, life: int) -> None:
        if life == self.lives:
            self.lose_power()

    def _end_process(self, life: int, failure: BaseException | None) -> None:
        if not self.is_up or self.lives != life:
            return
        self.world.note(self.name, f"exits: {failure}")
        if isinstance(failure, OSError) and failure.errno == errno.EIO:
            # What a failed sync gave up is still in the cache of the system, and no later sync
            # writes it: a machine whose disk had an error has to start again, not the process.
            self.lose_power()
        else:
            self.kill()
        if failure is not None:
            self._on_exit(self, failure)

    def _end(self) -> None:
        self.node = None
        self.is_serving = self.is_stopping = self.is_paused = False

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), SimulatedCrash):
            loop.default_exception_handler(context)


async def _start(node: AnyNode) -> None:
    """Start a node, and give that up if it fails meanwhile: as a process does (node/serving.py)."""
    starting = asyncio.create_task(node.start())
    failed = asyncio.create_task(node.failed.wait())
    await asyncio.wait((starting, failed), return_when=asyncio.FIRST_COMPLETED)
    failed.cancel()
    if not starting.done():
        starting.cancel()
        await asyncio.wait((starting,))
    if not starting.cancelled():
        starting.result()


class _NoWatch(LoopWatch):
    """Watches nothing: nothing takes long on virtual time, and its timer is a tenth of all rounds.

    It would also leave a hook with Python's garbage collector for every process that is killed.
    """

    def __init__(self) -> None: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...


class _LateLoading:
    """Brings batches into the image when the machine gets round to it."""

    def __init__(self, machine: Machine, run_steps: RunSteps) -> None:
        self._machine = machine
        self._run_steps = run_steps

    def __call__(self, steps: Generator[None, None, None]) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(self._machine.load_seconds, self._run_steps, steps)
