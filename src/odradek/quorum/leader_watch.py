"""Logs that the metadata quorum has had no leader for longer than an election takes.

Every node logs it for itself: one that is cut off from a quorum that works finds no leader either.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from odradek.core.clock import Clock
from odradek.core.event import Event
from odradek.core.slices import Handle

PATIENCE_MS: Final = 5_000
"""Elections take a second or two; no line for those."""
_log: Final = logging.getLogger("odradek.quorum")


class LeaderWatch:
    def __init__(
        self,
        clock: Clock,
        call_later: Callable[[float, Callable[[], None]], Handle],
        voters: Callable[[], Sequence[int]],
        find_leader: Callable[[], int | None],
    ) -> None:
        """``find_leader`` returns who leads; None if nobody does that this node has heard of."""
        self._clock = clock
        self._call_later = call_later
        self._voters = voters
        self._find_leader = find_leader
        self._timer: Handle | None = None
        self._since_ms: int | None = None
        self._is_reported = False

    def look(self) -> None:
        """Take note of whether there is a leader; to be called whenever that may have changed."""
        leader_id = self._find_leader()
        if leader_id is None:
            if self._since_ms is None:
                self._since_ms = self._clock.monotonic_ms()
                self._arm()
            return
        if self._is_reported and self._since_ms is not None:
            after_ms = self._clock.monotonic_ms() - self._since_ms
            event = "the metadata quorum has a leader again"
            _log.info(Event(event, leader_id=leader_id, after_ms=after_ms))
        self.stop()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._since_ms = None
        self._is_reported = False

    def _arm(self) -> None:
        self._timer = self._call_later(PATIENCE_MS / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.look()
        if self._since_ms is None:
            return
        if not self._is_reported:
            self._is_reported = True
            self._report(self._clock.monotonic_ms() - self._since_ms)
        self._arm()  # nobody says when the first fetch from a new leader is answered

    def _report(self, for_ms: int) -> None:
        voters = list(self._voters())
        _log.warning(
            Event(
                "no leader of the metadata quorum, so no topic, leader or ISR changes: a majority"
                " of the voters must run and reach each other and this node; start those that are"
                " down",
                voters=voters,
                majority=len(voters) // 2 + 1,
                for_ms=for_ms,
            )
        )
