"""A broker of a simulation: a disk, a clock, and a node's process that comes and goes on it."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

from odradek.broker.format_request import FormatRequest, make_plan
from odradek.broker.formatting import format_directories
from odradek.core.config import BrokerConfig
from odradek.node.loop_watch import LoopWatch
from odradek.node.node import Node
from odradek.node.ports import real_ports
from odradek.testing.disk import SimulatedCrash, SimulatedDisk
from odradek.testing.simulation.world import World

STOP_SECONDS_MAX = 60.0
"""When an operator loses patience with a process that shall stop, and kills it."""


class BrokerMachine:
    """Its node is the product's, unmodified."""

    def __init__(
        self,
        world: World,
        name: str,
        config: BrokerConfig,
        format_request: FormatRequest,
        on_failure: Callable[[str, BaseException], None],
    ) -> None:
        self.name = name
        self.sim = world.add_node(name)
        self.node: Node | None = None
        self._world = world
        self._config = config
        self._on_failure = on_failure
        self._lives = 0
        self._is_stopping = False
        self._is_serving = False
        self._disk = SimulatedDisk(self._random("disk"), clock=self.sim.clock)
        plan = make_plan(config, format_request, self._random("format"))
        now_ms = self.sim.clock.now_ms()
        random = self._random("directories")
        format_directories(self._disk, plan, now_ms=now_ms, random=random, say=lambda _: None)
        self._disk.sync_all()

    def _random(self, purpose: str) -> Random:
        return self._world.random(f"{purpose}/{self.name}")

    @property
    def is_serving(self) -> bool:
        return self._is_serving

    def start(self) -> None:
        """Start the process, unless it runs."""
        if self.node is not None:
            return
        if not self.sim.is_up:
            self.sim.start()
        self._lives += 1
        self._is_serving = self._is_stopping = False
        self.sim.loop.set_exception_handler(self._on_loop_error)
        ports = real_ports(
            disk=self._disk,
            clock=self.sim.clock,
            random=self._random(f"node/{self._lives}"),
            secret_bytes=self._random(f"secrets/{self._lives}").randbytes,
            network=self.sim.network,
        )
        self.node = Node(self._config, ports)
        self.node._loop_watch = _NoWatch()
        self.sim.spawn(self._live(self.node))

    def kill(self) -> None:
        """End the process; the kernel writes what it has and closes its connections."""
        if self.node is not None:
            self.node = None
            self._is_serving = False
            self.sim.crash(says_goodbye=True)
            self._disk.kill()

    def stop(self, then: Callable[[], None]) -> None:
        """Stop as an operator does, and kill what does not stop."""
        if self.node is None or not self._is_serving or self._is_stopping:
            self.kill()
            then()
            return
        self._is_stopping = True
        self.sim.spawn(self._stop(self.node, then))
        self._world.call_later(STOP_SECONDS_MAX, self._end, self._lives, then)

    def pause(self) -> None:
        if self.node is not None:
            self.sim.pause()

    def resume(self) -> None:
        if self.node is not None:
            self.sim.resume()

    async def _live(self, node: Node) -> None:
        try:
            await node.start()
            self._is_serving = True
            await node.failed.wait()
            assert node.failure is not None
            failure: BaseException = node.failure
        except SimulatedCrash:
            return
        except Exception as error:
            failure = error
        self._on_failure(self.name, failure)

    async def _stop(self, node: Node, then: Callable[[], None]) -> None:
        await node.stop()
        self._world.call_at(self._world.now, self._end, self._lives, then)

    def _end(self, life: int, then: Callable[[], None]) -> None:
        if self.node is not None and life == self._lives:
            self.kill()
            then()

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), SimulatedCrash):
            loop.default_exception_handler(context)


class _NoWatch(LoopWatch):
    """Watches nothing: nothing takes long on virtual time."""

    def __init__(self) -> None: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...
