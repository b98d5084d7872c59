"""Carries out a broker's lifecycle: requests over a channel, deadlines on the loop, log lines.

The owner starts it, awaits :meth:`until_caught_up`, loads its logs, calls :meth:`on_logs_loaded`,
awaits :meth:`until_unfenced` and serves. To stop, it awaits :meth:`leave` while it still serves:
partitions move to other leaders meanwhile.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import assert_never

from odradek.broker import node_events
from odradek.broker.lifecycle import BrokerLifecycle, Response
from odradek.broker.lifecycle_events import (
    BrokerState,
    CaughtUp,
    Event,
    FencedAgain,
    LifecycleSettings,
    MayStop,
    MustStop,
    Registered,
    StillWaiting,
    Unfenced,
    Unheard,
)
from odradek.core.clock import Clock
from odradek.core.config import BrokerConfig
from odradek.core.errors import ApiError, OdradekError
from odradek.core.ids import Uuid
from odradek.protocol.generated.broker_heartbeat import BrokerHeartbeatResponse
from odradek.protocol.generated.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from odradek.protocol.message import Message
from odradek.quorum.active_controller import ControllerChannel


class LifecycleEndedError(OdradekError):
    """The broker cannot be a part of its cluster; the message says why."""


def lifecycle_settings(config: BrokerConfig) -> LifecycleSettings:
    return LifecycleSettings(
        heartbeat_interval_ms=config.integer("broker.heartbeat.interval.ms"),
        session_ms=config.integer("broker.session.timeout.ms"),
        registration_ms_max=config.integer("initial.broker.registration.timeout.ms"),
        directory_failure_ms_max=config.integer("log.dir.failure.timeout.ms"),
        controlled_shutdown=config.flag("controlled.shutdown.enable"),
    )


class LifecycleDriver:
    def __init__(
        self,
        machine: BrokerLifecycle,
        channel: ControllerChannel,
        clock: Clock,
        *,
        on_must_stop: Callable[[str], None],
        on_fencing: Callable[[bool], None] = lambda _is_fenced: None,
    ) -> None:
        """``channel`` is this driver's own: heartbeats share it with nothing that may take long.

        ``on_must_stop`` is called when the broker must not go on, with the reason. ``on_fencing``
        is called when a running broker is fenced, and when it is unfenced again.
        """
        self._machine = machine
        self._channel = channel
        self._clock = clock
        self._on_must_stop = on_must_stop
        self._on_fencing = on_fencing
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms: int | None = None
        self._is_busy = False
        self._is_closed = False

    @property
    def state(self) -> BrokerState:
        return self._machine.state

    @property
    def broker_epoch(self) -> int:
        """The epoch of the registration; -1 before there is one."""
        return self._machine.broker_epoch

    @property
    def is_fenced(self) -> bool:
        return self._machine.is_fenced

    @property
    def heard_ms(self) -> int:
        """When the controller answered a heartbeat last."""
        return self._machine.heard_ms

    # Life.

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._caught_up: asyncio.Future[None] = loop.create_future()
        self._unfenced: asyncio.Future[None] = loop.create_future()
        self._left: asyncio.Future[MayStop] = loop.create_future()
        self._machine.start(self._clock.monotonic_ms())
        self._go_on()

    async def until_caught_up(self) -> None:
        """Return when all metadata up to the broker's registration is applied.

        Raises:
            LifecycleEndedError: The broker must stop.
        """
        await asyncio.shield(self._caught_up)

    async def until_unfenced(self) -> None:
        """Return when clients may be served.

        Raises:
            LifecycleEndedError: The broker must stop.
        """
        await asyncio.shield(self._unfenced)

    async def leave(self) -> MayStop:
        """Ask the controller for permission to stop, and wait for it as long as is reasonable.

        Raises:
            LifecycleEndedError: The broker must stop, whether it may or not.
        """
        self._machine.begin_shutdown(self._clock.monotonic_ms())
        self._go_on()
        return await asyncio.shield(self._left)

    def give_up_leaving(self) -> None:
        """Have ``leave`` return now, without permission."""
        self._machine.give_up_shutdown()
        self._go_on()

    def close(self) -> None:
        """Send nothing more."""
        self._is_closed = True
        self._channel.close()
        if self._timer is not None:
            self._timer.cancel()

    # What the broker has to say.

    def on_metadata_applied(self, offset: int) -> None:
        self._machine.on_metadata_applied(offset, self._clock.monotonic_ms())
        self._go_on()

    def on_logs_loaded(self) -> None:
        self._machine.on_logs_loaded(self._clock.monotonic_ms())
        self._go_on()

    def on_directory_offline(self, directory_id: Uuid) -> None:
        self._machine.on_directory_offline(directory_id, self._clock.monotonic_ms())
        self._go_on()

    def set_cordoned(self, directories: Sequence[Uuid] | None) -> None:
        self._machine.set_cordoned(directories, self._clock.monotonic_ms())
        self._go_on()

    def register_again(self, registration: BrokerRegistrationRequest) -> None:
        self._machine.register_again(registration, self._clock.monotonic_ms())
        self._go_on()

    def on_clock_advanced(self) -> None:
        """Do what became due because a test moved its clock: the loop's timers do not know."""
        self._go_on()

    # The machine's wishes.

    def _go_on(self) -> None:
        """Carry out what the machine wants.

        A controller in this process may answer inside ``ask``: what it changes is seen by the
        call that is under way.
        """
        if self._is_closed or self._is_busy:
            return
        self._is_busy = True
        try:
            is_changed = True
            while is_changed and not self._is_closed:
                is_changed = self._step()
        finally:
            self._is_busy = False
        self._arm()

    def _step(self) -> bool:
        now_ms = self._clock.monotonic_ms()
        self._machine.tick(now_ms)
        request = self._machine.take_request(now_ms)
        if request is not None:
            self._channel.ask(request, self._on_response, self._on_failure)
        events = self._machine.take_events()
        for event in events:
            self._report(event)
        return request is not None or bool(events)

    def _on_response(self, response: Message) -> None:
        assert isinstance(response, BrokerHeartbeatResponse | BrokerRegistrationResponse)
        self._take(response)

    def _on_failure(self, error: ApiError) -> None:
        self._take(error)

    def _take(self, outcome: Response | ApiError) -> None:
        if self._is_closed:
            return
        now_ms = self._clock.monotonic_ms()
        if isinstance(outcome, ApiError):
            self._machine.on_failure(outcome, now_ms)
        else:
            self._machine.on_response(outcome, now_ms)
        self._go_on()

    def _report(self, event: Event) -> None:
        node_events.lifecycle(event)
        match event:
            case CaughtUp():
                self._caught_up.set_result(None)
            case Unfenced(again=False):
                self._unfenced.set_result(None)
            case Unfenced():
                self._on_fencing(False)
            case FencedAgain():
                self._on_fencing(True)
            case MayStop():
                self._left.set_result(event)
                self._end(event.why)
            case MustStop(why):
                self._end(why)
                self._on_must_stop(why)
            case Registered() | StillWaiting() | Unheard():
                pass
            case _:
                assert_never(event)

    def _end(self, why: str) -> None:
        for waiting in (self._caught_up, self._unfenced, self._left):
            if not waiting.done():
                waiting.set_exception(LifecycleEndedError(why))
                waiting.exception()  # nobody may be waiting for it

    def _arm(self) -> None:
        deadline_ms = None if self._is_closed else self._machine.next_deadline_ms()
        if deadline_ms == self._timer_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_ms = deadline_ms
        if deadline_ms is not None:
            wait_ms = max(deadline_ms - self._clock.monotonic_ms(), 0)
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(wait_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = self._timer_ms = None
        self._go_on()
