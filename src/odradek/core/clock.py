"""The port through which the system learns what time it is. The real clock is in the broker."""

from typing import NamedTuple, Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since 1970, as records and retention count; may jump."""

    def monotonic_ms(self) -> int:
        """Milliseconds since some moment; never goes back. For deadlines and sessions."""

    def monotonic_us(self) -> int:
        """Microseconds since some moment; never goes back. For how long things take."""


class Instant(NamedTuple):
    """A moment on both clocks: the wall's for what is written, the steady one for deadlines."""

    wall_ms: int
    monotonic_ms: int
