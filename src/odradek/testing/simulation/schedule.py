"""The faults of one simulated run, as a list that can be printed, shrunk and run again.

A line is ``seconds +duration kind who whom``: ``12.250 +3.000 cut node-1 node-2``. A fault passes
after its duration: what was killed is started again, what was cut heals.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Final, NamedTuple

NOBODY: Final = "-"

DurationRange = tuple[float, float]

OF_NODES: Final[Mapping[str, DurationRange]] = {
    "kill": (0.1, 6.0),
    "restart": (0.1, 3.0),
    "pause": (0.2, 8.0),
    "isolate": (0.5, 8.0),
}
"""Faults of one broker: its process dies, is restarted, hangs; its network is gone."""
OF_LINKS: Final[Mapping[str, DurationRange]] = {
    "cut": (0.5, 8.0),
    "lose-answers": (0.2, 2.0),
    "slow": (1.0, 8.0),
}
"""Faults between two: brokers, or a program of yours and a broker."""
OF_PROGRAMS: Final[Mapping[str, DurationRange]] = {"crash": (0.1, 3.0), "stall": (0.2, 8.0)}
"""Faults of programs that were started with ``run``."""
KINDS: Final[tuple[str, ...]] = (*OF_NODES, *OF_LINKS, *OF_PROGRAMS)


class Fault(NamedTuple):
    at: float
    duration: float
    kind: str
    who: str
    whom: str = NOBODY

    def __str__(self) -> str:
        return f"{self.at:.3f} +{self.duration:.3f} {self.kind} {self.who} {self.whom}"

    @classmethod
    def parse(cls, line: str) -> "Fault":
        """Read a line.

        Raises:
            ValueError: It is none.
        """
        try:
            at, duration, kind, who, whom = line.split()
            fault = cls(float(at), float(duration), kind, who, whom)
        except ValueError:
            problem = "is no fault: seconds +duration kind who whom, with - for nobody"
            raise ValueError(f"{line!r} {problem}") from None
        if kind not in KINDS:
            raise ValueError(f"{line!r}: there is no fault {kind!r}, but {', '.join(KINDS)}")
        return fault


def draw_schedule(
    random: Random,
    *,
    count: int,
    seconds: float,
    kinds: Sequence[str],
    nodes: Sequence[str],
    programs: Sequence[str],
) -> list[Fault]:
    """Return faults in the order of their times."""
    possible = [kind for kind in kinds if programs or kind not in OF_PROGRAMS]
    durations = {**OF_NODES, **OF_LINKS, **OF_PROGRAMS}
    faults = []
    for _ in range(count if possible else 0):
        kind = random.choice(possible)
        at, duration = random.uniform(0, seconds), random.uniform(*durations[kind])
        who, whom = random.choice(programs if kind in OF_PROGRAMS else nodes), NOBODY
        if kind in OF_LINKS:
            whom = random.choice([each for each in (*nodes, *programs) if each != who] or [who])
        faults.append(Fault.parse(str(Fault(at, duration, kind, who, whom))))
    return sorted(faults)


def parse_schedule(lines: str | Iterable[str]) -> list[Fault]:
    """Read faults, a line each.

    Raises:
        ValueError: One is not.
    """
    texts = lines.splitlines() if isinstance(lines, str) else lines
    return [Fault.parse(line) for line in texts if line.strip()]


def shrink(
    faults: Sequence[Fault], still_fails: Callable[[Sequence[Fault]], bool], tries_max: int
) -> list[Fault]:
    """Return fewer faults with which it fails as well; none of them can be left out alone.

    Unless ``tries_max`` runs were not enough to see that.
    """
    left = list(faults)
    size = max(len(left) // 2, 1)
    while left:
        begin = 0
        while begin < len(left):
            if tries_max == 0:
                return left
            tries_max -= 1
            fewer = left[:begin] + left[begin + size :]
            if still_fails(fewer):
                left = fewer
            else:
                begin += size
        if size == 1:
            return left
        size //= 2
    return left
