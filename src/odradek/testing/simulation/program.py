"""A program of the user's in a simulation: it runs on a machine of its own and can crash."""

from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Any, Final

from odradek.client import Admin, Consumer, Producer
from odradek.client.errors import KafkaError
from odradek.testing.simulation.world import SimNode, World

CLIENT_DEFAULTS: Final[Mapping[str, Any]] = {"request_timeout_ms": 3_000}
"""Virtual time is cheap, but a story has an end."""
RESTART_SECONDS: Final = 1.0
"""After which a program is started again that could not go on."""


class Process:
    """One life of a program: what it uses of the world that it must not take from elsewhere.

    Clients are made here, because chance and time come from the seed. ``asyncio.sleep`` and all
    else of asyncio are the simulation's already.
    """

    def __init__(self, world: World, node: SimNode, name: str, servers: str) -> None:
        self.name = name
        self.bootstrap_servers = servers
        self.random: Random = world.random(f"program/{name}")
        self._world = world
        self._node = node
        self._clients = 0

    def now_ms(self) -> int:
        """Return the time of day on the machine of this program."""
        return self._node.clock.now_ms()

    def producer(self, **settings: Any) -> Producer:
        return Producer(
            **{
                **self._common(),
                "now_ms": self._node.clock.now_ms,
                "monotonic_ms": self._node.clock.monotonic_ms,
                **settings,
            }
        )

    def consumer(self, **settings: Any) -> Consumer:
        return Consumer(
            **{
                **self._common(),
                "now_ms": self._node.clock.now_ms,
                "monotonic_ms": self._node.clock.monotonic_ms,
                **settings,
            }
        )

    def admin(self, **settings: Any) -> Admin:
        return Admin(**{**self._common(), **settings})

    def _common(self) -> dict[str, Any]:
        self._clients += 1
        stream = f"client/{self.name}/{self._node.clock.monotonic_ms()}/{self._clients}"
        return {
            **CLIENT_DEFAULTS,
            "bootstrap_servers": self.bootstrap_servers,
            "client_id": self.name,
            "random": self._world.random(stream),
        }


Main = Callable[[Process], Awaitable[None]]


class Program:
    """Its main function, started again after each crash, until it returns.

    It may raise ``KafkaError``, as programs do that leave it to others to start them again.
    """

    def __init__(
        self,
        world: World,
        name: str,
        main: Main,
        servers: str,
        say: Callable[[str], None],
        *,
        may_crash: bool = True,
    ) -> None:
        self.name = name
        self.may_crash = may_crash
        self.is_done = False
        self.crashes = 0
        self._world = world
        self._main = main
        self._servers = servers
        self._say = say
        self._node = world.add_node(name)
        self._lives = 0
        self._runs = False

    def start(self) -> None:
        """Start it, unless it runs or has returned."""
        if self._runs or self.is_done:
            return
        if not self._node.is_up:
            self._node.start()
        self._runs = True
        self._lives += 1
        process = Process(self._world, self._node, self.name, self._servers)
        self._node.spawn(self._live(process))

    def crash(self) -> None:
        """Kill it: what it had in memory is gone; the system closes its connections."""
        if self._runs:
            self._runs = False
            self.crashes += 1
            self._node.crash(says_goodbye=True)

    def pause(self) -> None:
        if self._runs:
            self._node.pause()

    def resume(self) -> None:
        if self._runs:
            self._node.resume()

    def _exit(self, life: int) -> None:
        if self._runs and life == self._lives:
            self._runs = False
            self._node.crash(says_goodbye=True)
            self._world.call_later(RESTART_SECONDS, self.start)

    async def _live(self, process: Process) -> None:
        try:
            await self._main(process)
        except KafkaError as error:
            self._say(f"{self.name} exits: {error}")
            self._world.call_at(self._world.now, self._exit, self._lives)
            return
        except Exception as error:
            self._world.fail(self.name, "the program raised", error)
        self._runs = False
        self.is_done = True
