"""One seed run to its end, and what came of it; nothing of the run stays."""

import asyncio.events
import gc
import logging
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from odradek.testing.disk import SimulatedCrash
from odradek.testing.simulation import World
from tests.simulation.cluster.cluster import Cluster
from tests.simulation.cluster.data_cluster import DataCluster
from tests.simulation.cluster.faults import Fault, to_text
from tests.simulation.cluster.move_cluster import MoveCluster
from tests.simulation.cluster.operations_cluster import OperationsCluster
from tests.simulation.cluster.quorum_cluster import QuorumCluster
from tests.simulation.cluster.voter_cluster import VoterCluster

LEVELS: Final = {
    "nodes": Cluster,
    "quorum": QuorumCluster,
    "voters": VoterCluster,
    "data": DataCluster,
    "moves": MoveCluster,
    "operations": OperationsCluster,
}


@dataclass
class Outcome:
    seed: int
    level: str
    layout: str
    failure: str | None
    digest: str
    events: int
    seconds: float
    reached: dict[str, int] = field(default_factory=dict)
    most: dict[str, int] = field(default_factory=dict)
    promises: str = ""
    schedule: str = ""
    lines: list[str] = field(default_factory=list)

    def describe(self, *, with_lines: bool = False) -> str:
        how = "well" if self.failure is None else f"FAILED: {self.failure}"
        words = [f"seed {self.seed}: {how}", f"  {self.layout}", f"  {self.reached} {self.most}"]
        words += [f"  {self.promises}"]
        words += [f"  {self.digest} after {self.seconds:.3f} s, {self.events} lines"]
        if self.failure is not None or with_lines:
            words += [f"  | {line}" for line in self.schedule.splitlines()]
        if with_lines:
            words += self.lines
        if self.failure is not None:
            command = f"python -m tests.simulation.cluster {self.seed} --level {self.level} --trace"
            words.append(f"again: {command}")
        return "\n".join(words)


class _Lines(logging.Handler):
    """Puts what nodes and clients log among the lines of the story."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(logging.INFO)
        self._cluster = cluster

    def emit(self, record: logging.LogRecord) -> None:
        loop = asyncio.events._get_running_loop()
        self._cluster.say(f"{getattr(loop, 'node', '-')} {record.getMessage()}")


def tell(
    seed: int,
    *,
    shape: str | None = None,
    schedule: Sequence[Fault] | None = None,
    level: str = "nodes",
    only: Sequence[str] = (),
) -> Outcome:
    """Run one seed; a failure is in the outcome."""
    gc.disable()  # when something is collected is nothing that a seed decides
    try:
        with World(seed, trace_lines_max=100) as world:
            cluster = LEVELS[level](world, shape=shape, schedule=schedule, only=only)
            return _tell(world, cluster, level)
    finally:
        gc.enable()
        gc.collect()


def _tell(world: World, cluster: Cluster, level: str) -> Outcome:
    logger, lines = logging.getLogger("odradek"), _Lines(cluster)
    before = logger.level, logger.propagate
    logger.addHandler(lines)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    failure = None
    try:
        cluster.run()
    except (Exception, SimulatedCrash) as error:
        failure = f"{world.now:.3f} s: {type(error).__name__}: {error}"
        cluster.lines.extend(traceback.format_exception(error))
    finally:
        logger.removeHandler(lines)
        logger.level, logger.propagate = before
    assert world.trace is not None
    return Outcome(
        world.seed,
        level,
        str(cluster.layout),
        failure,
        world.trace.digest(),
        world.trace.count,
        world.now,
        dict(cluster.oracle.reached),
        dict(cluster.oracle.most),
        f"{cluster.ledger.successes} {cluster.ledger.failures}",
        to_text(cluster.nemesis.schedule),
        list(cluster.lines),
    )
