"""What the active controller does by itself, now and then.

==================  =====================================================================
fence               a broker whose session is over; looked for eight times in a session
no-op               a record every ``metadata.max.idle.interval.ms``, if nothing else was written
preferred leaders   every ``leader.imbalance.check.interval.seconds``, if switched on
unclean leaders     every ``unclean.leader.election.interval.ms``, where topics allow them
==================  =====================================================================

Deadlines begin anew with each activation. Work that is not done in one pass goes on at once, after
what is queued: brokers are fenced one at a time, so that each sees where the leaders of the one
before have gone (KAFKA-13173).

The no-op record lets brokers report an offset that moves, and so shows which of them lag. Kafka
writes one twice a second even if other records were written, and also on a node that is alone. We
write it only when there was nothing else, and only where there is another node to see it: a single
node would write to its disk for ever for nobody. It is committed like any record; followers hear of
that with the next answer that they get, 500 ms later at most (``raft.leader``).
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from odradek.control.controller_host import ControllerHost, Planned
from odradek.controller import Controller
from odradek.controller.result import Result
from odradek.core.clock import Clock
from odradek.core.config import BrokerConfig
from odradek.core.slices import Steps
from odradek.metadata.record_versions import VersionedRecord
from odradek.protocol.generated.metadata_records import NoOpRecord

CHECKS_PER_SESSION: Final = 8


class Timer(Protocol):
    def cancel(self) -> None: ...


CallLater = Callable[[float, Callable[[], None]], Timer]


class PeriodicSettings(NamedTuple):
    """Intervals in milliseconds; 0 switches off."""

    session_timeout_ms: int = 9_000
    no_op_ms: int = 500
    preferred_leaders_ms: int = 300_000
    unclean_leaders_ms: int = 300_000

    @classmethod
    def of(cls, config: BrokerConfig) -> "PeriodicSettings":
        rebalances = config.flag("auto.leader.rebalance.enable")
        imbalance_ms = config.integer("leader.imbalance.check.interval.seconds") * 1_000
        return cls(
            session_timeout_ms=config.integer("broker.session.timeout.ms"),
            no_op_ms=config.integer("metadata.max.idle.interval.ms"),
            preferred_leaders_ms=imbalance_ms if rebalances else 0,
            unclean_leaders_ms=config.integer("unclean.leader.election.interval.ms"),
        )


class _Task:
    """Something to do every so often; ``run`` calls back with whether there is more to do."""

    __slots__ = ("due_ms", "interval_ms", "is_running", "run")

    def __init__(self, interval_ms: int, run: Callable[[Callable[[bool], None]], None]) -> None:
        self.interval_ms = interval_ms
        self.run = run
        self.due_ms = 0
        self.is_running = False


class PeriodicWork:
    def __init__(
        self,
        host: ControllerHost,
        settings: PeriodicSettings,
        clock: Clock,
        *,
        is_alone: Callable[[], bool],
        call_later: CallLater | None = None,
    ) -> None:
        """``is_alone``: no other node follows the metadata log."""
        self._host = host
        self._clock = clock
        self._is_alone = is_alone
        self._call_later = call_later or _call_later
        self._timer: Timer | None = None
        self._is_ticking = False
        self._activations = 0
        self._end_offset = 0
        check_ms = max(settings.session_timeout_ms // CHECKS_PER_SESSION, 1)
        self._fencing = _Task(check_ms, self._fence)
        tasks = (
            self._fencing,
            _Task(settings.no_op_ms, self._write_no_op),
            _Task(settings.preferred_leaders_ms, self._elect_preferred),
            _Task(settings.unclean_leaders_ms, self._elect_unclean),
        )
        self._tasks = [each for each in tasks if each.interval_ms > 0]

    def start(self) -> None:
        """Begin, with fresh deadlines: this node has become the active controller."""
        self._activations += 1
        now_ms = self._clock.monotonic_ms()
        for task in self._tasks:
            task.due_ms = now_ms + task.interval_ms
            task.is_running = False
        self._arm()

    def stop(self) -> None:
        self._activations += 1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def tick(self) -> None:
        """Do what is due; also for tests, which move the clock on."""
        now_ms = self._clock.monotonic_ms()
        self._is_ticking = True
        try:
            for task in self._tasks:
                if not task.is_running and task.due_ms <= now_ms:
                    self._begin(task, now_ms)
        finally:
            self._is_ticking = False
        if self._host.is_active:
            self._arm()

    def _begin(self, task: _Task, now_ms: int) -> None:
        late_ms = now_ms - task.due_ms
        task.due_ms = now_ms + task.interval_ms
        if task is self._fencing and late_ms >= task.interval_ms:
            # This node was away. The heartbeats that came meanwhile are in its sockets.
            return
        task.is_running = True
        activation = self._activations

        def done(has_more: bool) -> None:
            if activation == self._activations:
                task.is_running = False
                if has_more:
                    task.due_ms = self._clock.monotonic_ms()
                if not self._is_ticking:  # else it is armed when all is done that is due
                    self._arm()

        task.run(done)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # Without what is under way: it may wait for a commit long past its next time.
        due = [task.due_ms for task in self._tasks if not task.is_running]
        if not due:
            return
        wait_ms = max(min(due) - self._clock.monotonic_ms(), 0)
        self._timer = self._call_later(wait_ms / 1_000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.tick()

    # Tasks.

    def _submit(
        self, plan: Callable[[Controller], Planned[Any]], done: Callable[[bool], None]
    ) -> None:
        self._host.submit(plan, lambda reply: done(bool(reply)), lambda _error: done(False))

    def _fence(self, done: Callable[[bool], None]) -> None:
        def plan(controller: Controller) -> Steps[Result[bool]]:
            now_ms = self._clock.monotonic_ms()
            result = yield from controller.fence_stale_broker_in_steps(now_ms)
            return Result(result.records, result.reply is not None, may_split=True)

        self._submit(plan, done)

    def _write_no_op(self, done: Callable[[bool], None]) -> None:
        end_offset = self._host.next_offset
        is_idle, self._end_offset = end_offset == self._end_offset, end_offset
        if not is_idle or self._is_alone():
            done(False)
            return
        self._end_offset += 1
        records = (VersionedRecord(NoOpRecord(), 0),)
        self._submit(lambda _controller: Result(records, False), done)

    def _elect_preferred(self, done: Callable[[bool], None]) -> None:
        self._submit(lambda controller: controller.elect_preferred_leaders_in_steps(), done)

    def _elect_unclean(self, done: Callable[[bool], None]) -> None:
        self._submit(lambda controller: controller.elect_unclean_leaders_in_steps(), done)


def _call_later(seconds: float, call: Callable[[], None]) -> Timer:
    return asyncio.get_running_loop().call_later(seconds, call)
