"""A world: virtual time, one heap of events, and nodes that live and die in it.

    world = World(seed=7)
    node = world.add_node("broker-1")
    task = node.spawn(main())
    world.run_until_done(task, seconds_max=60)

What goes wrong in a callback or in a task that nobody awaits ends the run with a SimulationError
that names the seed. The clock moves only between events.
"""

import asyncio
from collections.abc import Callable, Coroutine
from heapq import heappop, heappush
from itertools import count
from random import Random
from types import TracebackType
from typing import Any, Self, TypeVar

from odradek.testing.simulation.clocks import SimClock
from odradek.testing.simulation.loop import SimLoop
from odradek.testing.simulation.network import NodeNetwork, SimNetwork
from odradek.testing.simulation.trace import Trace

T = TypeVar("T")


class SimulationError(AssertionError):
    """A run that failed; the message has the seed that repeats it."""


class World:
    def __init__(self, seed: int, *, trace_lines_max: int = 0) -> None:
        """Keep the last ``trace_lines_max`` lines of a trace; 0: there is no trace."""
        self.seed = seed
        self.now = 0.0
        self.events_at_one_time_max = 100_000  # more without the clock moving never ends
        self.after_round: Callable[[str], None] = lambda _: None
        """Called with a node's name when its loop has run something: for what must always hold."""
        self.trace = Trace(trace_lines_max) if trace_lines_max else None
        self.nodes: dict[str, SimNode] = {}
        self.network = SimNetwork(self)
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._sequence = count()
        self._failure: SimulationError | None = None
        self._dead: list[SimLoop] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the world: every node dies, and coroutines are closed."""
        for node in self.nodes.values():
            node.loop.kill()
            self._dead.append(node.loop)
        self._heap.clear()
        self.bury_dead()

    def bury_dead(self) -> None:
        """Free what crashed nodes hold. Their ``finally`` blocks run now: see to it that what they
        reach (disks, histories) belongs to nobody any more.
        """
        dead, self._dead = self._dead, []
        for loop in dead:
            loop.bury()

    def random(self, purpose: str) -> Random:
        """Return a new stream for a purpose; the same seed and purpose give the same numbers."""
        return Random(f"{self.seed}/{purpose}")  # noqa: S311  # nothing secret

    def add_node(self, name: str) -> "SimNode":
        assert name not in self.nodes, f"there is a node {name}"
        node = SimNode(self, name, len(self.nodes))
        self.nodes[name] = node
        return node

    # Time.

    def call_at(self, when: float, callback: Callable[..., None], *args: Any) -> None:
        """Have something done that belongs to no node: the network, a plan of faults."""
        heappush(self._heap, (max(when, self.now), next(self._sequence), callback, args))

    def call_later(self, seconds: float, callback: Callable[..., None], *args: Any) -> None:
        self.call_at(self.now + seconds, callback, *args)

    def run_for(self, seconds: float) -> None:
        """Let so much time pass.

        Raises:
            SimulationError: Something failed meanwhile.
        """
        end = self.now + seconds
        self._run(None, end)
        self.now = end

    def run_until(self, condition: Callable[[], bool], seconds_max: float) -> None:
        """Run until something holds; it is looked at after every event.

        Rounds of one loop that follow each other with nothing in between are one event.

        Raises:
            SimulationError: It does not in ``seconds_max``, or something failed.
        """
        if not self._run(condition, self.now + seconds_max):
            raise self._error(f"not reached in {seconds_max} seconds")

    def run_until_done(self, task: "asyncio.Future[T]", seconds_max: float) -> T:
        """Run until a task is done and return its result, or raise what it raised.

        Raises:
            SimulationError: It is not done in ``seconds_max``, or something else failed.
        """
        self.run_until(task.done, seconds_max)
        return task.result()

    @property
    def is_idle_now(self) -> bool:
        """Whether nothing else is to be done at this time, and nothing failed."""
        heap = self._heap
        return (not heap or heap[0][0] > self.now) and self._failure is None

    def _run(self, is_enough: Callable[[], bool] | None, end: float) -> bool:
        heap = self._heap
        at_this_time = 0
        while is_enough is None or not is_enough():
            if not heap or heap[0][0] > end:
                return False
            when, _, callback, args = heappop(heap)
            at_this_time = at_this_time + 1 if when == self.now else 0
            if at_this_time > self.events_at_one_time_max:
                raise self._error(f"{at_this_time} events and no end")
            self.now = when
            callback(*args)
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
        return True

    # What happens.

    def note(self, where: str, what: str) -> None:
        if self.trace is not None:
            self.trace.note(self.now, where, what)

    def fail(self, where: str, message: str, cause: BaseException | None = None) -> None:
        """End the run after the present event; the first failure counts."""
        if self._failure is None:
            detail = "" if cause is None else f": {type(cause).__name__}: {cause}"
            self._failure = self._error(f"{where}: {message}{detail}")
            self._failure.__cause__ = cause

    def _error(self, message: str) -> SimulationError:
        return SimulationError(f"seed {self.seed}, {self.now:.6f} s: {message}")


class SimNode:
    """A machine: it has one life after the other, each with a loop of its own."""

    def __init__(self, world: World, name: str, number: int) -> None:
        self.name = name
        self.address = f"10.0.{number >> 8}.{(number & 255) + 1}"
        self.clock = SimClock(lambda: world.now)
        self.network = NodeNetwork(world.network, name, self.address)
        self._world = world
        self._lives = 0
        self.loop = self._new_loop()

    def _new_loop(self) -> SimLoop:
        self._lives += 1
        random = self._world.random(f"work/{self.name}/{self._lives}")
        return SimLoop(self._world, self.name, self.network, random)

    @property
    def is_up(self) -> bool:
        return not self.loop.is_dead

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run something on this node; a failure that nobody awaits ends the simulation."""
        assert self.is_up, f"{self.name} is down: start it"
        return self.loop.create_task(coroutine)

    def crash(self, *, says_goodbye: bool = False) -> None:
        """Stop at once: nothing of this life has an effect any more.

        Peers are not told, as after a power loss: their connections stay half open. With
        ``says_goodbye`` only the process is gone, and its kernel closes what it had.
        """
        assert self.is_up, f"{self.name} is down"
        self._world.note(self.name, "crash")
        self.network.on_crash(says_goodbye=says_goodbye)
        self.loop.kill()
        self._world._dead.append(self.loop)

    def start(self) -> None:
        """Begin another life; its peers learn of it when they next send something."""
        assert not self.is_up, f"{self.name} is up"
        self._world.note(self.name, "start")
        self.loop = self._new_loop()
        self.network.on_start()

    def pause(self) -> None:
        """Run nothing until it resumes, as a process that is stopped or a machine that swaps.

        Its kernel goes on: connections are accepted into the backlog, bytes into buffers.
        """
        self._world.note(self.name, "pause")
        self.loop.pause()

    def resume(self) -> None:
        self._world.note(self.name, "resume")
        self.loop.resume()
