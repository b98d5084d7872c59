"""Turns of the event loop that took too long: how long, and what ran.

A loop that stalls answers nobody. A controller hears no heartbeats meanwhile and a broker sends
none, so that a long turn can cost a leader its office. Parts that do long work report turns that
went over the limit; they compare two readings of the clock that they have in any case.
"""

from collections.abc import Callable
from typing import Final

STALL_US_MIN: Final = 50_000
"""No turn of the loop is to take longer."""
WINDOW_MS: Final = 30_000
UNKNOWN: Final = "unknown"


def _ignore(_what: str, _took_ms: int) -> None:
    pass


class Stalls:
    def __init__(self, now_us: Callable[[], int]) -> None:
        self._now_us = now_us
        self.on_stall: Callable[[str, int], None] = _ignore
        """Called with what ran, and for how many milliseconds."""
        self.count = 0
        self._window = -1
        self._longest_us = self._longest_before_us = 0
        self._unexplained_us = 0

    def note(self, what: str, took_us: int) -> None:
        """Report a turn, or a part of one, of at least ``STALL_US_MIN``."""
        self._unexplained_us -= took_us
        self._add(what, took_us)

    def run(self, what: str, call: Callable[[], None]) -> None:
        """Call something that should be short, and report it if it is not."""
        began_us = self._now_us()
        try:
            call()
        finally:
            took_us = self._now_us() - began_us
            if took_us >= STALL_US_MIN:
                self.note(what, took_us)

    def on_late(self, late_us: int) -> None:
        """Hear that a timer came late since the last call: a part that reported it, or another."""
        unexplained_us, self._unexplained_us = self._unexplained_us + late_us, 0
        if late_us >= STALL_US_MIN and unexplained_us >= STALL_US_MIN // 2:
            self._add(UNKNOWN, late_us)

    @property
    def ms_max(self) -> int:
        """The longest turn of the last ``WINDOW_MS`` to twice that; 0 if none was too long."""
        self._move_window()
        return max(self._longest_us, self._longest_before_us) // 1_000

    def _add(self, what: str, took_us: int) -> None:
        self._move_window()
        self.count += 1
        self._longest_us = max(self._longest_us, took_us)
        self.on_stall(what, took_us // 1_000)

    def _move_window(self) -> None:
        window = self._now_us() // 1_000 // WINDOW_MS
        if window != self._window:
            is_next = window == self._window + 1
            self._longest_before_us = self._longest_us if is_next else 0
            self._longest_us = 0
            self._window = window
