"""What a nemesis does to a cluster, as a list that can be printed, edited and run again.

A line is ``seconds +duration kind who whom amount``: ``12.250 +3.000 one-way node-1 node-2 0.000``.
``@leader`` is the machine that leads the metadata quorum at that moment; ``@follower`` another
voter. A fault passes after its duration: what was killed is started, what was cut heals.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Final, NamedTuple

LEADER: Final = "@leader"
FOLLOWER: Final = "@follower"


class Fault(NamedTuple):
    at: float
    duration: float
    kind: str
    who: str
    whom: str = ""
    amount: float = 0.0

    def __str__(self) -> str:
        words = [f"{self.at:.3f}", f"+{self.duration:.3f}", self.kind, self.who, self.whom or "-"]
        return " ".join([*words, f"{self.amount:.3f}"])

    @classmethod
    def parse(cls, line: str) -> "Fault":
        at, duration, kind, who, whom, amount = line.split()
        named = "" if whom == "-" else whom
        return cls(float(at), float(duration), kind, who, named, float(amount))


Draw = Callable[[Random], tuple[float, float]]
"""How long a fault lasts, in seconds, and how much of it there is."""


def _seconds(low: float, high: float) -> Draw:
    return lambda random: (random.uniform(low, high), 0.0)


def _amount(low: float, high: float) -> Draw:
    return lambda random: (random.uniform(0.5, 8), random.uniform(low, high))


ONE: Final[Mapping[str, tuple[int, Draw]]] = {
    "kill": (4, _seconds(0.1, 6)),
    "power": (4, _seconds(0.1, 6)),
    "restart": (3, _seconds(0.1, 3)),
    "pause": (4, lambda random: (random.choice([0.4, 2.5, 5, 12]), 0.0)),
    "stall": (3, _seconds(0.05, 0.5)),
    "isolate": (4, _seconds(0.5, 10)),
    "deafen": (2, _seconds(0.5, 8)),
    "mute": (2, _seconds(0.5, 8)),
    "crash-in-write": (3, lambda random: (random.uniform(0.1, 3), random.randrange(1, 30))),
    "slow-start": (3, _amount(0.1, 1.0)),
    "overload": (2, _amount(0.02, 0.06)),
    "slow-disk": (2, _amount(0.05, 1.0)),
    "full-disk": (1, _amount(0, 20_000)),
    "broken-disk": (1, _amount(0, 10)),
    "clock-jump": (1, lambda random: (0.0, random.uniform(-3600, 3600))),
    "clock-drift": (1, lambda random: (20.0, random.uniform(-500, 500))),
}
"""Those that hit one machine: how often, and how they are drawn."""
TWO: Final[Mapping[str, tuple[int, Draw]]] = {
    "cut": (4, _seconds(0.5, 10)),
    "one-way": (4, _seconds(0.5, 10)),
    "reset": (2, _seconds(0, 0)),
    "slow": (2, lambda random: (random.uniform(1, 10), random.choice([500.0, 5_000.0, 50_000.0]))),
    "lag": (2, _amount(0.02, 0.5)),
    "lose-answers": (3, _seconds(0.2, 2)),
}
"""Those between two."""
ALL: Final[Mapping[str, tuple[int, Draw]]] = {
    "power-all": (1, _seconds(0.1, 3)),
    "rolling-restart": (1, _seconds(0, 0)),
    "split": (2, _seconds(1, 10)),
}
"""Those that hit the whole cluster."""
KINDS: Final = {**ONE, **TWO, **ALL}
DIRECTORY_KINDS: Final[Mapping[str, tuple[int, Draw]]] = {"broken-directory": (4, _amount(0, 10))}
"""Those of machines with more than one log directory."""


def draw_schedule(
    random: Random,
    nodes: list[str],
    clients: list[str],
    *,
    count: int,
    seconds: float,
    only: Sequence[str] = (),
    victims: Sequence[str] = (),
    kinds_of: Mapping[str, tuple[int, Draw]] = KINDS,
) -> list[Fault]:
    """Return faults in the order of their times; ``only`` those kinds, if some are given.

    ``victims`` are roles beside those of the quorum.
    """
    kinds = [kind for kind in kinds_of if kind in only or not only]
    weights = [kinds_of[kind][0] for kind in kinds]
    schedule = []
    for _ in range(count):
        kind = random.choices(kinds, weights)[0]
        duration, amount = kinds_of[kind][1](random)
        at = random.uniform(0, seconds)
        who = random.choice([LEADER, LEADER, FOLLOWER, *victims, *nodes])
        whom = ""
        if kind in TWO:
            others = [*nodes, *nodes, LEADER, FOLLOWER, *victims, random.choice(clients)]
            whom = random.choice([other for other in others if other != who])
        elif kind in ALL:
            who = "all"
        schedule.append(Fault(at, duration, kind, who, whom, amount))
    return [Fault.parse(str(fault)) for fault in sorted(schedule)]  # as they would be read back


def to_text(schedule: Iterable[Fault]) -> str:
    return "\n".join(map(str, schedule))


def parse_schedule(text: str) -> list[Fault]:
    return [Fault.parse(line) for line in text.splitlines() if line.strip()]
