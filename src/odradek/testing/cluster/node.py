"""A node of a test's cluster: what can be done to it, through all its lives."""

import asyncio
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import PurePosixPath
from random import SystemRandom
from typing import Final, Self

from odradek.broker.format_request import FormatRequest, make_plan
from odradek.broker.formatting import format_directories
from odradek.core.config import load_broker_config, parse_overrides
from odradek.local.layout import Layout, NodeLayout, initial_controllers, node_properties
from odradek.node.node import Node
from odradek.testing.breakable_disk import BreakableDisk, DiskFaults
from odradek.testing.clock import TestClock
from odradek.testing.cluster.node_thread import NodeThread
from odradek.testing.cluster.wiring import HOST, GatedNetwork, Wiring
from odradek.testing.memory_disk import MemoryDisk

START_SECONDS_MAX: Final = 60
DATA: Final = PurePosixPath("/memory")

TEST_CONFIG: Final[Mapping[str, str]] = {
    # What is dead or silent is noticed soon, and asked again soon.
    "broker.heartbeat.interval.ms": "100",
    "broker.session.timeout.ms": "500",
    "controller.quorum.election.timeout.ms": "200",
    "controller.quorum.election.backoff.max.ms": "100",
    "controller.quorum.fetch.timeout.ms": "750",  # a fetch with nothing new to bring takes 500
    "controller.quorum.request.timeout.ms": "750",
    "replica.lag.time.max.ms": "1000",
    "replica.fetch.backoff.ms": "100",
    "replica.socket.timeout.ms": "1000",
    # As ``Broker`` has it: quick to start, and no processes.
    "num.recovery.threads.per.data.dir": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.cleaner.enable": "false",
}


OF_CONTROLLERS: Final[Mapping[str, str]] = {
    "controller.quorum.auto.join.enable": "true",  # after its disk was replaced
}


class Condition(Enum):
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    KILLED = "killed"
    FAILED = "gave up by itself"


@dataclass
class Ports:
    """The ports of a node, bound as long as nobody listens on them: they stay the node's."""

    broker: int
    controller: int | None
    sockets: dict[int, socket.socket] = field(default_factory=dict)

    @classmethod
    def bind(cls, *, is_controller: bool) -> Self:
        first = _bind(0)
        second = _bind(0) if is_controller else None
        bound = [each for each in (first, second) if each is not None]
        return cls(
            _port(first),
            None if second is None else _port(second),
            {_port(each): each for each in bound},
        )

    def take(self) -> dict[int, socket.socket]:
        """Return the sockets to listen on."""
        for port, held in self.sockets.items():
            if held.fileno() < 0:
                self.sockets[port] = _bind(port)
        return dict(self.sockets)

    def hold(self) -> None:
        """Bind what its owner closed."""
        self.take()

    def close(self) -> None:
        for held in self.sockets.values():
            held.close()


class ClusterNode:
    def __init__(
        self,
        layout: Layout,
        place: NodeLayout,
        ports: Ports,
        wiring: Wiring,
        config: Mapping[str, str],
        memory_bytes_max: int,
    ) -> None:
        self.id = place.id
        self.rack = place.rack
        self.clock = TestClock(self._catch_up, self._catch_up_async)
        """Its time alone; what a test moves or steps here the other nodes do not see."""
        self.disk = DiskFaults()
        """What is wrong with its disk: ``node.disk.fail("write", errno.ENOSPC)``."""
        self._wiring = wiring
        self._ports = ports
        for port in ports.sockets:
            wiring.set_listener(port, place.id)
        self._memory = MemoryDisk(self.clock, memory_bytes_max)
        texts = {**node_properties(layout, place, str(DATA)), **TEST_CONFIG}
        texts.update(OF_CONTROLLERS if place.is_voter else {})
        texts.update(config)
        overrides = parse_overrides(f"{name}={value}" for name, value in texts.items())
        self._config = load_broker_config(overrides, small_segments=True).config
        self._cluster_id = layout.cluster_id
        self._first_voters = initial_controllers(layout) if place.is_voter else None
        self._life: NodeThread | None = None
        self._condition = Condition.STOPPED

    @property
    def condition(self) -> Condition:
        if self._life is not None and self._life.is_over.is_set():
            return Condition.FAILED
        return self._condition

    @property
    def is_running(self) -> bool:
        return self.condition is Condition.RUNNING

    @property
    def address(self) -> tuple[str, int]:
        return HOST, self._ports.broker

    @property
    def bootstrap_servers(self) -> str:
        return f"{HOST}:{self._ports.broker}"

    @property
    def node(self) -> Node:
        """The node inside. It belongs to its own thread: read, but do not touch."""
        assert self._life is not None, "it does not run"
        return self._life.node

    @property
    def heard_ms(self) -> int:
        """When the controller answered a heartbeat of it last, by its own clock."""
        return self.node.broker.lifecycle.heard_ms

    # Its life.

    def start(self) -> None:
        """Start it again; return when it serves."""
        self.begin()
        self.wait_ready()

    def begin(self) -> None:
        """Start it, and do not wait."""
        if self._life is not None and not self._life.is_over.is_set():
            raise RuntimeError(f"node {self.id} is {self.condition.value}")
        if not self._memory.exists(DATA):
            self._format()
        network = GatedNetwork(self._wiring, self.id, self._ports.take())
        disk = BreakableDisk(self._memory, self.disk)
        self._life = NodeThread(self._config, self._wiring, network, disk, self.clock)
        self._condition = Condition.RUNNING
        self._life.start()

    def wait_ready(self) -> None:
        """Return when it serves.

        Raises:
            OdradekError: It cannot; others too, whatever kept it from that.
        """
        assert self._life is not None
        self._life.ready.result(START_SECONDS_MAX)

    def stop(self) -> None:
        """Stop it as on SIGTERM: others lead its partitions first."""
        self._running().stop()
        self._ended(Condition.STOPPED)

    def kill(self) -> None:
        """Kill it: nothing is said, connections break; what it wrote is on its disk."""
        self._running().kill()
        self._ended(Condition.KILLED)

    def pause(self) -> None:
        """Let it do nothing, as SIGSTOP does: connections stay, and nobody answers."""
        if self._condition is not Condition.PAUSED:
            self._running().pause()
            self._condition = Condition.PAUSED

    def resume(self) -> None:
        """Let it go on; nothing happens if it is not paused."""
        if self._condition is Condition.PAUSED:
            self._running().resume()
            self._condition = Condition.RUNNING

    def restart(self) -> None:
        """Stop it, unless it has ended by itself or was killed, and start it."""
        if self.condition in (Condition.RUNNING, Condition.PAUSED):
            self.stop()
        self.start()

    def mend(self) -> None:
        """Have it run, whatever it does now."""
        self.resume()
        if not self.is_running:
            self.start()

    def wipe(self) -> None:
        """Replace its disk by an empty one. A controller votes again once it has caught up."""
        if self.condition in (Condition.RUNNING, Condition.PAUSED):
            raise RuntimeError(f"node {self.id} is {self.condition.value}: kill it first")
        self._memory.remove_folder(DATA)
        self._first_voters = None  # it may not vote as if it still knew what it voted for

    def give_up(self) -> None:
        """End it in whatever way, for good."""
        if self._life is not None and not self._life.is_over.is_set():
            self._life.kill()
        self._ports.close()

    async def start_async(self) -> None:
        await asyncio.to_thread(self.start)

    async def stop_async(self) -> None:
        await asyncio.to_thread(self.stop)

    async def restart_async(self) -> None:
        await asyncio.to_thread(self.restart)

    async def kill_async(self) -> None:
        await asyncio.to_thread(self.kill)

    def __repr__(self) -> str:
        return f"<node {self.id}: {self.condition.value}>"

    def _running(self) -> NodeThread:
        if self._life is None or self._life.is_over.is_set():
            raise RuntimeError(f"node {self.id} does not run: it is {self.condition.value}")
        return self._life

    def _ended(self, condition: Condition) -> None:
        self._life = None
        self._condition = condition
        self._ports.hold()

    def _format(self) -> None:
        random = SystemRandom()
        request = FormatRequest(
            cluster_id=self._cluster_id,
            initial_controllers=self._first_voters,
            no_initial_controllers=self._first_voters is None,
        )
        plan = make_plan(self._config, request, random)
        now_ms = self.clock.now_ms()
        format_directories(self._memory, plan, now_ms=now_ms, random=random, say=lambda _: None)

    def _catch_up(self) -> None:
        if self.is_running:
            life = self._running()
            life.call(life.node.on_clock_advanced())

    async def _catch_up_async(self) -> None:
        if self.is_running:
            life = self._running()
            await life.call_async(life.node.on_clock_advanced())


def _bind(port: int) -> socket.socket:
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind((HOST, port))
    return bound


def _port(bound: socket.socket) -> int:
    port = bound.getsockname()[1]
    assert isinstance(port, int)
    return port
