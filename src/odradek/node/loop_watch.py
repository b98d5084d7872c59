"""Watches the event loop for turns that take too long, also where no part of the node measures.

A timer that comes late tells that something ran meanwhile, and not what. Collections of Python's
garbage collector are measured by its own hook: they have no other name.

The timer is most of what wakes an idle node, so it is slower there. It may come too late then to
notice a short turn, but none of those that have others take this node for dead.
"""

import asyncio
import gc
import logging
from collections.abc import Callable
from typing import Final

from odradek.core.event import Event
from odradek.core.stalls import STALL_US_MIN, Stalls

INTERVAL_SECONDS: Final = 0.05
IDLE_INTERVAL_SECONDS: Final = 0.2
IDLE_REQUESTS_MAX: Final = 2
"""In an interval; members of a quorum and brokers send as many without anything to do."""
QUIET_SECONDS: Final = 10.0
"""How long the same cause is not reported again."""
CAUSES_MAX: Final = 100
WARN_MS_MIN: Final = 100
"""Less is in the metrics alone: a busy machine takes a process off its core for as long."""
OLDEST_GENERATION: Final = 2

_log: Final = logging.getLogger("odradek.loop")


class LoopWatch:
    def __init__(self, stalls: Stalls, requests: Callable[[], int]) -> None:
        """``requests`` counts what the node was asked so far."""
        self._stalls = stalls
        self._requests = requests
        self._requests_before = 0
        self._timer: asyncio.Handle | None = None
        self._due = 0.0
        self._quiet_until: dict[str, float] = {}
        self._left_out = 0
        self._collecting_since: float | None = None

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stalls.on_stall = self._warn
        gc.callbacks.append(self._on_collection)
        self._arm()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            gc.callbacks.remove(self._on_collection)

    def _arm(self) -> None:
        requests = self._requests()
        is_idle = requests - self._requests_before <= IDLE_REQUESTS_MAX
        self._requests_before = requests
        interval = IDLE_INTERVAL_SECONDS if is_idle else INTERVAL_SECONDS
        # Not the timer's `when`: uvloop gives a handle without it if the time has come already.
        self._due = self._loop.time() + interval
        self._timer = self._loop.call_at(self._due, self._look)

    def _look(self) -> None:
        late_us = int((self._loop.time() - self._due) * 1_000_000)
        self._arm()
        self._stalls.on_late(late_us)

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] != OLDEST_GENERATION:
            return
        now = self._loop.time()
        if phase == "start":
            self._collecting_since = now
            return
        since, self._collecting_since = self._collecting_since, None
        if since is None:
            return  # it had begun on another thread before this was asked to watch
        took_us = int((now - since) * 1_000_000)
        if took_us >= STALL_US_MIN:
            self._stalls.note("garbage collection", took_us)

    def _warn(self, what: str, took_ms: int) -> None:
        if took_ms < WARN_MS_MIN:
            return
        now = self._loop.time()
        if self._quiet_until.get(what, 0.0) > now or len(self._quiet_until) >= CAUSES_MAX:
            self._left_out += 1
            self._quiet_until = {
                each: until for each, until in self._quiet_until.items() if until > now
            }
            return
        self._quiet_until[what] = now + QUIET_SECONDS
        event = Event(
            "the event loop stalled", ran=what, took_ms=took_ms, not_reported=self._left_out
        )
        self._left_out = 0
        _log.warning(event)
