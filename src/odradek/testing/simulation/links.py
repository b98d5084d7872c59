"""One way from one node to another: latency, bandwidth, and whether anything gets through.

A link that is cut loses nothing: what arrives meanwhile is held and goes on when it heals, as TCP
sends again what was not acknowledged.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from odradek.testing.simulation.world import World

LATENCY_SECONDS: Final = (0.0002, 0.002)
LOOPBACK_SECONDS: Final = (0.00002, 0.00005)


class Link:
    """What is public of latency and bandwidth may be changed at any time."""

    def __init__(self, world: "World", source: str, target: str) -> None:
        self.latency_seconds = LOOPBACK_SECONDS if source == target else LATENCY_SECONDS
        self.extra_latency_seconds = 0.0
        self.bytes_per_second: float | None = None  # None: size does not matter
        self.split_chance = 0.1
        """How often a write is taken apart at a place that is drawn."""
        self._world = world
        self._name = f"{source}>{target}"
        self._latencies = world.random(f"latency/{self._name}")
        self._splits = world.random(f"split/{self._name}")
        self._is_cut = False
        self._held: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._free_at = 0.0

    @property
    def is_cut(self) -> bool:
        return self._is_cut

    def cut(self) -> None:
        self._world.note(self._name, "cut")
        self._is_cut = True

    def heal(self) -> None:
        if not self._is_cut:
            return
        self._world.note(self._name, "heal")
        self._is_cut = False
        held, self._held = self._held, []
        arrival = self._world.now + self._latencies.uniform(*self.latency_seconds)
        for deliver, args in held:
            self._world.call_at(arrival, self._arrive, deliver, args)

    def carry(self, size: int, deliver: Callable[..., None], *args: Any) -> None:
        """Call ``deliver`` at the other end. Two that are under way may overtake each other."""
        departure = self._world.now
        if self.bytes_per_second is not None:
            departure = max(departure, self._free_at) + size / self.bytes_per_second
            self._free_at = departure
        latency = self._latencies.uniform(*self.latency_seconds) + self.extra_latency_seconds
        arrival = departure + latency
        self._world.call_at(arrival, self._arrive, deliver, args)

    def draw_size(self, size: int) -> int:
        """Return how many of so many bytes go first."""
        if size > 1 and self._splits.random() < self.split_chance:
            return self._splits.randrange(1, size)
        return size

    def _arrive(self, deliver: Callable[..., None], args: tuple[Any, ...]) -> None:
        if self._is_cut:
            self._held.append((deliver, args))
        else:
            deliver(*args)
