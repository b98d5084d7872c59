"""What happens to connections, in the log, at a rate that no stranger decides.

Each failed handshake, malformed request or refused connection is worth a line to whoever looks for
a fault, and costs a stranger next to nothing to cause. So of each kind LINES_PER_SECOND_MAX are
written in a second; how many were not is told a second later.
"""

import asyncio
import logging
from collections import Counter
from typing import Final

from odradek.core.clock import Clock
from odradek.core.event import Event
from odradek.net.settings import ANONYMOUS, ConnectionInfo, EventKind

LINES_PER_SECOND_MAX: Final = 10
_WINDOW_MS: Final = 1_000
_LEVELS: Final = {
    EventKind.OPENED: logging.DEBUG,
    EventKind.CLOSED: logging.DEBUG,
    EventKind.EXPIRED: logging.INFO,
    EventKind.REJECTED: logging.INFO,
    EventKind.REFUSED: logging.INFO,
    EventKind.FAILED: logging.ERROR,
    EventKind.ACCEPT_FAILED: logging.ERROR,
}
_logger: Final = logging.getLogger("odradek.net")


class ConnectionEvents:
    """Implements ``odradek.net.settings.OnEvent``."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._window_start_ms = dict.fromkeys(EventKind, -_WINDOW_MS)
        self._written: Counter[EventKind] = Counter()
        self._suppressed: Counter[EventKind] = Counter()
        self._report: asyncio.TimerHandle | None = None

    def __call__(
        self, kind: EventKind, info: ConnectionInfo | None, detail: str, error: Exception | None
    ) -> None:
        level = _LEVELS[kind]
        if not _logger.isEnabledFor(level):
            return
        # Who asks for the debug level wants every connection.
        if level > logging.DEBUG and not self._admit(kind):
            return
        fields: dict[str, object] = {}
        if info is not None:
            fields |= {"listener": info.listener, "connection_id": info.connection_id}
            if info.principal != ANONYMOUS:
                fields["principal"] = info.principal
        _logger.log(level, Event(f"connection {kind}", **fields, detail=detail), exc_info=error)

    def close(self) -> None:
        """Say now what was to be said later."""
        if self._report is not None:
            self._report.cancel()
            self._report_suppressed()

    def _admit(self, kind: EventKind) -> bool:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._window_start_ms[kind] >= _WINDOW_MS:
            self._window_start_ms[kind] = now_ms
            self._written[kind] = 0
        if self._written[kind] < LINES_PER_SECOND_MAX:
            self._written[kind] += 1
            return True
        self._suppressed[kind] += 1
        if self._report is None:
            loop = asyncio.get_running_loop()
            self._report = loop.call_later(_WINDOW_MS / 1000, self._report_suppressed)
        return False

    def _report_suppressed(self) -> None:
        self._report = None
        counts = {str(kind): count for kind, count in self._suppressed.items()}
        self._suppressed.clear()
        _logger.warning(Event("connection events not written", **counts))
