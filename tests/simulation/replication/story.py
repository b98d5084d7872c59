"""One seed run to its end: which rules hold and which faults come is of the seed as well."""

import traceback
from dataclasses import dataclass, field, fields, replace
from random import Random
from typing import Any, Final

from tests.simulation.replication.model_controller import Rules
from tests.simulation.replication.world import STORM, World

STORM_MS = 9_000
CHECK_MS = 100
RULES: Final = {each.name for each in fields(Rules)}
MIXES = ((2, 2, 2, 1, 1), (1, 0, 6, 1, 0), (5, 0, 2, 0, 1), (1, 5, 2, 1, 0))


@dataclass
class Outcome:
    seed: int
    failure: str | None
    events: int
    reached: dict[str, int]
    lines: list[str] = field(default_factory=list)


def world_of(seed: int, *, trace: bool = False, **settings: Any) -> World:
    """Build the world of a seed; ``settings`` are fields of its rules and faults."""
    random = Random(f"rules {seed}")
    size = random.choice((2, 3, 3, 3, 4))
    has_elr = random.random() < 0.8
    rules = Rules(
        min_isr=random.choice((1, 2, 2)),
        has_elr=has_elr,
        allows_unclean=random.random() < 0.2,
        lag_ms=random.choice((300, 2_000)),
    )
    faults = replace(
        STORM,
        loss=random.choice((0.0, 0.02, 0.1)),
        delay_ms=random.choice((5, 40, 120)),
        straggler=random.choice((0.0, 0.03, 0.1)),
        late_metadata=random.choice((0.0, 0.1, 0.3)),
        trouble=random.choice((0.3, 0.6, 0.9)),
        interval_ms=random.choice((100, 600)),
        mix=random.choice(MIXES),
        flushes_all=random.random() < 0.25,
    )
    rules = replace(rules, **{name: settings.pop(name) for name in RULES & settings.keys()})
    faults = replace(faults, **settings)
    return World(seed, size=size, rules=rules, faults=faults, trace=trace)


def tell(seed: int, *, trace: bool = False, **settings: Any) -> Outcome:
    """Run a seed; a failure is in the outcome."""
    world = world_of(seed, trace=trace, **settings)
    failure, lines = None, list[str]()
    try:
        world.start_clients()
        for _ in range(STORM_MS // CHECK_MS):
            world.run(CHECK_MS)
            world.check_invariants()
        world.stop_clients()
        world.settle()
    except AssertionError as error:
        failure = f"{world.now_ms} ms: {str(error) or traceback.format_exc(limit=-2)}"
        lines = traceback.format_exception(error)
    reached = dict(world.oracle.reached)
    return Outcome(seed, failure, world.events, reached, [*(world.lines or []), *lines])
