"""Runs a story, a program of yours with a cluster and its faults, once for each of many seeds.

    async def story(sim: Simulation) -> None:
        await sim.create_topic("orders", partitions=2)
        sim.run("worker", worker)          # crashes and is started again
        ...
        await sim.calm()                   # the faults are over
        await sim.wait_for(lambda: …)

    def test_worker():
        simulate(story, seeds=100)

Nothing is real: not the time, not the network, not the disks. The brokers are, and so are our
clients. One seed decides everything, so a seed that fails fails again.
"""

import asyncio
import gc
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from odradek.broker.format_request import FormatRequest
from odradek.client import NewTopic
from odradek.core.config import check_known, load_broker_config, parse_overrides
from odradek.core.ids import Uuid
from odradek.local.layout import (
    VOTERS_WANTED,
    Layout,
    NodeLayout,
    initial_controllers,
    node_properties,
)
from odradek.testing.disk import SimulatedCrash
from odradek.testing.simulation.faults_at_work import FaultsAtWork
from odradek.testing.simulation.machine import BrokerMachine
from odradek.testing.simulation.program import Main, Process, Program
from odradek.testing.simulation.schedule import (
    KINDS,
    Fault,
    draw_schedule,
    parse_schedule,
    shrink,
)
from odradek.testing.simulation.world import World

T = TypeVar("T")

STORY: Final = "story"
NODES_MAX: Final = 9
SEEDS_MAX: Final = 1_000_000
FAULTS: Final = 6
STORM_SECONDS: Final = 20.0
STORY_SECONDS_MAX: Final = 600.0
SHRINKING_RUNS_MAX: Final = 60
LINES_SHOWN: Final = 25
_LOOK_SECONDS: Final = 0.05
_PORT: Final = 9092
_CONTROLLER_PORT: Final = 9093

CONFIG: Final[Mapping[str, str]] = {
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "replica.lag.time.max.ms": "3000",
    "num.recovery.threads.per.data.dir": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.cleaner.enable": "false",  # it works in processes
    "log.index.size.max.bytes": "16384",
    "metadata.max.idle.interval.ms": "2000",
    "controller.quorum.retry.backoff.ms": "100",
}


class SimulationFailedError(AssertionError):
    """A story failed with a seed; the message says with which faults, and how to see it again."""

    def __init__(self, message: str, seed: int, faults: Sequence[Fault]) -> None:
        super().__init__(message)
        self.seed = seed
        self.faults = tuple(faults)


class Simulation:
    """What a story has: a cluster, programs on machines of their own, and time."""

    def __init__(
        self, world: World, nodes: int, config: Mapping[str, str], say: Callable[[str], None]
    ) -> None:
        self._world = world
        self._say = say
        layout = _lay_out(world, nodes)
        self.bootstrap_servers = layout.bootstrap_servers
        self.machines = {
            each.host: _make_machine(world, layout, each, config, self._on_failure)
            for each in layout.nodes
        }
        self.programs: dict[str, Program] = {}
        self._is_calm = asyncio.Event()
        self._copies = min(nodes, VOTERS_WANTED)
        self._home = world.add_node(STORY)
        self.process = Process(world, self._home, STORY, self.bootstrap_servers)
        """Makes clients for the story itself, whose machine has no faults."""
        self.random = self.process.random

    @property
    def seed(self) -> int:
        return self._world.seed

    @property
    def seconds(self) -> float:
        """How much time has passed."""
        return self._world.now

    def run(self, name: str, main: Main, *, may_crash: bool = True) -> Program:
        """Start a program on a machine of its own.

        Faults crash it, and it is started again from the beginning, also when it raises a
        ``KafkaError``; any other exception fails the story. What must outlive that it keeps
        outside (in what stands for its database), or in the cluster.
        """
        if name in self._world.nodes:
            raise ValueError(f"there is a machine {name!r} already")
        servers = self.bootstrap_servers
        program = Program(self._world, name, main, servers, self._say, may_crash=may_crash)
        self.programs[name] = program
        program.start()
        return program

    async def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        """Create a topic, with three copies if there are as many nodes.

        Config names have underscores for dots.
        """
        named = {key.replace("_", "."): value for key, value in configs.items()}
        topic = NewTopic(name, partitions, self._copies, configs=named)
        async with self.process.admin() as admin:
            (await admin.create_topics([topic])).unwrap()

    def say(self, line: str) -> None:
        """Put a line among those that are shown if the story fails."""
        self._say(line)

    async def calm(self) -> None:
        """Wait until the faults are over and everything runs again."""
        await self._is_calm.wait()
        await self.wait_for(
            lambda: all(each.is_serving for each in self.machines.values()),
            what="all brokers to serve",
        )

    async def wait_for(
        self,
        condition: Callable[[], T],
        seconds: float = STORY_SECONDS_MAX,
        what: str = "the condition",
    ) -> T:
        """Wait until the condition returns something that counts as true, and return that.

        Raises:
            TimeoutError: It did not in so many seconds of the story.
        """
        end = self._world.now + seconds
        while not (found := condition()):
            if self._world.now >= end:
                raise TimeoutError(f"waited {seconds} s for {what}")
            await asyncio.sleep(_LOOK_SECONDS)
        return found

    # For the one who runs it.

    def play(self, story: "Story", faults: Sequence[Fault] | None, plan: "Plan") -> list[Fault]:
        """Run the story to its end; return the faults there were."""
        for machine in self.machines.values():
            machine.start()
        self._world.run_until(
            lambda: all(each.is_serving for each in self.machines.values()), STORY_SECONDS_MAX
        )
        told = self._home.spawn(_as_coroutine(story(self)))
        # Programs are started at the beginning of a story; faults may hit them, so they come first.
        self._world.run_for(_LOOK_SECONDS)
        if faults is None:
            faults = draw_schedule(
                self._world.random("faults"),
                count=plan.count,
                seconds=plan.storm_seconds,
                kinds=plan.kinds,
                nodes=[*self.machines],
                programs=[name for name, each in self.programs.items() if each.may_crash],
            )
        plan.drawn = list(faults)
        at_work = FaultsAtWork(self._world, self.machines, self.programs, self._say)
        at_work.begin(faults)
        self._world.call_later(plan.storm_seconds, self._heal, at_work)
        self._world.run_until_done(told, STORY_SECONDS_MAX)
        return plan.drawn

    def _heal(self, at_work: FaultsAtWork) -> None:
        self._say("the faults are over")
        at_work.end()
        self._home.loop.call_soon(self._is_calm.set)

    def _on_failure(self, name: str, error: BaseException) -> None:
        self._world.fail(name, "the broker gave up", error)


Story = Callable[[Simulation], Awaitable[None]]


@dataclass
class Plan:
    """Which faults there are to be, and what was drawn of them."""

    kinds: Sequence[str] = KINDS
    count: int = FAULTS
    storm_seconds: float = STORM_SECONDS
    drawn: Sequence[Fault] = ()


@dataclass(frozen=True)
class Run:
    """One seed that was run."""

    seed: int
    seconds: float
    """Of the story."""
    faults: tuple[Fault, ...]
    error: BaseException | None
    lines: tuple[str, ...]


def simulate(
    story: Story,
    *,
    seeds: int = 100,
    first: int = 0,
    seed: int | None = None,
    nodes: int = 3,
    config: Mapping[str, str] | None = None,
    faults: int | str | Sequence[str] = FAULTS,
    kinds: Sequence[str] = KINDS,
    storm_seconds: float = STORM_SECONDS,
    on_run: Callable[[Run], None] = lambda _: None,
) -> None:
    """Run a story with so many seeds from the ``first`` on, or with one ``seed``.

    ``faults`` is how many there are (of these ``kinds``, within ``storm_seconds``), or the faults
    themselves, as a failure printed them. ``on_run`` hears of every seed.

    Raises:
        SimulationFailedError: The story raised, did not end, or a broker gave up. The faults are
            shrunk to few that still make it fail.
    """
    if not 1 <= nodes <= NODES_MAX:
        raise ValueError(f"{nodes} nodes: choose from 1 to {NODES_MAX}")
    if not 0 < seeds <= SEEDS_MAX:
        raise ValueError(f"{seeds} seeds: choose from 1 to {SEEDS_MAX}")
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        raise ValueError(f"there is no fault {unknown[0]!r}, but {', '.join(KINDS)}")
    check_known(dict(config or {}))
    texts = dict(config or {})
    given = None if isinstance(faults, int) else parse_schedule(faults)
    count = faults if isinstance(faults, int) else len(given or ())

    def play(number: int, schedule: Sequence[Fault] | None) -> Run:
        return _run_seed(story, number, nodes, texts, schedule, Plan(kinds, count, storm_seconds))

    for number in range(first, first + seeds) if seed is None else [seed]:
        run = play(number, given)
        on_run(run)
        if run.error is not None:
            raise _failed(run, lambda fewer, number=number: play(number, fewer)) from run.error  # type: ignore[misc]


def _run_seed(
    story: Story,
    seed: int,
    nodes: int,
    config: Mapping[str, str],
    faults: Sequence[Fault] | None,
    plan: Plan,
) -> Run:
    lines: deque[str] = deque(maxlen=LINES_SHOWN)
    error: BaseException | None = None
    gc.disable()  # when something is collected is nothing that a seed decides
    try:
        with World(seed) as world:

            def say(line: str) -> None:
                lines.append(f"{world.now:9.3f} {line}")

            with _Listening(say):
                try:
                    Simulation(world, nodes, config, say).play(story, faults, plan)
                except (Exception, SimulatedCrash) as failure:
                    error = failure
            seconds = world.now
    finally:
        gc.enable()
        gc.collect()
    return Run(seed, seconds, tuple(plan.drawn), error, tuple(lines))


def _failed(run: Run, play: Callable[[Sequence[Fault]], Run]) -> SimulationFailedError:
    kind = type(run.error)
    last = run

    def still_fails(fewer: Sequence[Fault]) -> bool:
        nonlocal last
        found = play(fewer)
        if type(found.error) is not kind:
            return False
        last = found
        return True

    faults = shrink(run.faults, still_fails, SHRINKING_RUNS_MAX)
    shown = "\n".join(f"    {fault}" for fault in faults) or "    (none)"
    lines = "\n".join(f"  {line}" for line in last.lines)
    left_out = len(run.faults) - len(faults)
    message = (
        f"seed {run.seed}: {kind.__name__}: {last.error}\n"
        f"  faults ({left_out} that did not matter are left out):\n{shown}\n"
        f"  what happened last, with seconds of the story:\n{lines}\n"
        f"  again: simulate(…, seed={run.seed}, faults={[str(each) for each in faults]!r})"
    )
    return SimulationFailedError(message, run.seed, faults)


class _Listening(logging.Handler):
    """Puts what brokers and clients log among the lines, and nowhere else."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self._say = say
        self._logger = logging.getLogger("odradek")
        self._clients = logging.getLogger("odradek.client")

    def __enter__(self) -> None:
        self._before = self._logger.level, self._logger.propagate
        # Tools show on stderr what their clients warn of; these clients are not theirs.
        self._clients.handlers, self._elsewhere = [], self._clients.handlers
        self._logger.addHandler(self)
        self._logger.setLevel(logging.INFO)
        self._logger.propagate = False

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)
        self._logger.level, self._logger.propagate = self._before
        self._clients.handlers = self._elsewhere

    def emit(self, record: logging.LogRecord) -> None:
        loop = asyncio._get_running_loop()
        self._say(f"{getattr(loop, 'node', '-')}: {record.getMessage()}")


async def _as_coroutine(awaited: Awaitable[None]) -> None:
    await awaited


def _lay_out(world: World, nodes: int) -> Layout:
    random = world.random("layout")
    voters = VOTERS_WANTED if nodes >= VOTERS_WANTED else 1
    return Layout(
        str(Uuid.random(random)),
        _PORT,
        tuple(
            NodeLayout(
                number,
                ("broker", "controller") if number <= voters else ("broker",),
                _PORT,
                _CONTROLLER_PORT if number <= voters else None,
                directory_id=str(Uuid.random(random)) if number <= voters else None,
                host=f"node-{number}",
            )
            for number in range(1, nodes + 1)
        ),
    )


def _make_machine(
    world: World,
    layout: Layout,
    place: NodeLayout,
    config: Mapping[str, str],
    on_failure: Callable[[str, BaseException], None],
) -> BrokerMachine:
    texts = {**node_properties(layout, place, "/data"), **CONFIG, **config}
    overrides = parse_overrides(f"{name}={value}" for name, value in texts.items())
    loaded = load_broker_config(overrides, small_segments=True)
    voters = initial_controllers(layout) if place.is_voter else None
    request = FormatRequest(
        cluster_id=layout.cluster_id,
        initial_controllers=voters,
        no_initial_controllers=voters is None,
    )
    return BrokerMachine(world, place.host, loaded.config, request, on_failure)
