"""The life of a broker in its cluster: register, catch up, unfence, shut down. Pure.

::

    NOT_RUNNING ─start─▶ STARTING ─caught up─▶ RECOVERY ─unfenced─▶ RUNNING ─begin_shutdown─▶
    PENDING_CONTROLLED_SHUTDOWN ─granted, or waited long enough─▶ SHUTTING_DOWN

- **STARTING** registers until a controller accepts, then sends heartbeats until the controller
  finds that the broker has applied its own registration. An incarnation id is of one process: a
  registration that comes again, because its answer was lost, has the same.
- **RECOVERY** loads logs, with an image that is caught up. ``want_fence`` stays set until they are.
- **RUNNING** sends a heartbeat every ``broker.heartbeat.interval.ms``. A broker that is fenced by
  mistake, after a pause for example, asks to be unfenced again and goes on.
- **PENDING_CONTROLLED_SHUTDOWN** asks to leave until it may: leaders move away meanwhile. A broker
  that gets no answer leaves after a bounded wait.

An error that no retry can change ends the life (:class:`MustStop`): another process has taken the
broker's id, or the broker was unregistered.

One request is in flight at a time. The driver calls :meth:`BrokerLifecycle.take_request` and
:meth:`BrokerLifecycle.take_events` after each input, and :meth:`BrokerLifecycle.tick` at
:meth:`BrokerLifecycle.next_deadline_ms`.
"""

from collections.abc import Sequence
from random import Random
from typing import Final, NamedTuple, TypeAlias

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
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import Uuid
from odradek.protocol.generated.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from odradek.protocol.generated.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)

NO_EPOCH: Final = -1
NO_OFFSET: Final = -1

CATCH_UP_MS: Final = 10
"""Between heartbeats of a broker that has not caught up: a start takes no longer than it must."""
FENCED_MS: Final = 100
"""Between heartbeats of a broker that is ready and fenced."""
SHUTDOWN_FIRST_MS: Final = 50
SHUTDOWN_MS_MAX: Final = 500
"""Between heartbeats that ask to leave: from the first of these to the second, twice as much
each time."""
RETRY_FIRST_MS: Final = 100
RETRY_JITTER: Final = 0.2
"""A retry comes after the wait ± this part of it: brokers that lost one controller together do not
ask the next one together."""


Request: TypeAlias = BrokerRegistrationRequest | BrokerHeartbeatRequest
Response: TypeAlias = BrokerRegistrationResponse | BrokerHeartbeatResponse

_REFUSED_FOR_GOOD: Final = {
    ErrorCode.INCONSISTENT_CLUSTER_ID: "its directory was formatted for another cluster",
    ErrorCode.INVALID_REGISTRATION: (
        "its features, listeners or log directories do not fit the cluster"
    ),
    ErrorCode.UNSUPPORTED_VERSION: (
        "the cluster has a feature at a level that this version of Odradek does not support"
        " (`odradek features describe`); start another version"
    ),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "it needs CLUSTER_ACTION on the cluster",
}
"""Kafka's broker tries for a minute after these as well, although nothing changes."""
_NOT_OURS: Final = {
    ErrorCode.STALE_BROKER_EPOCH: (
        "another process has registered with this broker's id since, or the broker was "
        "unregistered (STALE_BROKER_EPOCH)"
    ),
    ErrorCode.BROKER_ID_NOT_REGISTERED: (
        "the broker was unregistered (BROKER_ID_NOT_REGISTERED); start it again to bring it back"
    ),
}

_DUPLICATE_ADVICE: Final = (
    "if another process with this id runs, stop it or give this node another node.id"
)


class _OfflineDirectory(NamedTuple):
    deadline_ms: int
    is_reported: bool


class BrokerLifecycle:
    def __init__(
        self,
        registration: BrokerRegistrationRequest,
        settings: LifecycleSettings,
        random: Random,
    ) -> None:
        """``registration`` is sent as it is, each time."""
        self.state = BrokerState.NOT_RUNNING
        self.broker_epoch = NO_EPOCH
        self.is_fenced = True
        """As the controller's newest answer says."""
        self._registration = registration
        self._settings = settings
        self._random = random
        self._is_registered = False
        self._is_ready = False
        self._applied_offset = NO_OFFSET
        self._offline: dict[Uuid, _OfflineDirectory] = {}
        self._cordoned: list[Uuid] | None = None
        self._in_flight: Request | None = None
        self._next_ms: int | None = None
        self._wants_at_once = False  # the next request, as soon as none is in flight
        self._registration_deadline_ms: int | None = None
        self._last_refusal = ""
        self._is_duplicate_noted = False
        self._has_failed = False
        """Since a heartbeat was answered."""
        self._is_silence_noted = False
        self._shutdown_begun_ms = 0
        self.heard_ms = 0
        """When a heartbeat was answered last."""
        self._shutdown_wait_ms = SHUTDOWN_FIRST_MS
        self._retry_ms = RETRY_FIRST_MS
        self._events: list[Event] = []

    # Inputs.

    def start(self, now_ms: int) -> None:
        assert self.state is BrokerState.NOT_RUNNING
        self.state = BrokerState.STARTING
        self._registration_deadline_ms = now_ms + self._settings.registration_ms_max
        self._next_ms = now_ms

    def on_metadata_applied(self, offset: int, now_ms: int) -> None:
        """All records up to ``offset``, that one included, are in this broker's image."""
        was_behind = self._applied_offset < self.broker_epoch
        self._applied_offset = max(self._applied_offset, offset)
        is_awaited = self.state is BrokerState.STARTING or self.is_fenced
        if self._is_registered and is_awaited and was_behind and not self._is_behind:
            self._send_at_once(now_ms)

    def on_logs_loaded(self, now_ms: int) -> None:
        """The broker has taken on its partitions: it may be unfenced."""
        self._is_ready = True
        if self._is_registered:
            self._send_at_once(now_ms)

    def on_directory_offline(self, directory_id: Uuid, now_ms: int) -> None:
        """A log directory failed: the controller must know, or clients wait for its leaders."""
        if directory_id in self._offline:
            return
        deadline_ms = now_ms + self._settings.directory_failure_ms_max
        self._offline[directory_id] = _OfflineDirectory(deadline_ms, is_reported=False)
        if self._is_registered:
            self._send_at_once(now_ms)

    def set_cordoned(self, directories: Sequence[Uuid] | None, now_ms: int) -> None:
        """Report which directories take no new partitions; None where no controller knows of it."""
        cordoned = None if directories is None else list(directories)
        if cordoned == self._cordoned:
            return
        self._cordoned = cordoned
        if self._is_registered:
            self._send_at_once(now_ms)

    def register_again(self, registration: BrokerRegistrationRequest, now_ms: int) -> None:
        """Amend the registration: its incarnation, and so the epoch, stay the same."""
        assert registration.incarnation_id == self._registration.incarnation_id
        self._registration = registration
        if self._is_registered:
            self._is_registered = False
            self._send_at_once(now_ms)

    def begin_shutdown(self, now_ms: int) -> None:
        """Ask to leave, if there is a registration to take back."""
        if self.state in (BrokerState.PENDING_CONTROLLED_SHUTDOWN, BrokerState.SHUTTING_DOWN):
            return
        if self.broker_epoch == NO_EPOCH:
            self._end(MayStop(granted=False, why="the broker was not registered"))
        elif not self._settings.controlled_shutdown:
            self._end(MayStop(granted=False, why="controlled.shutdown.enable is false"))
        else:
            self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
            self._shutdown_begun_ms = self.heard_ms = now_ms
            self._is_registered = True  # an amendment is of no use any more
            self._send_at_once(now_ms)

    def give_up_shutdown(self) -> None:
        """Leave without permission: the rest of the cluster may be stopping as well."""
        if self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            self._end(MayStop(granted=False, why="asked to stop a second time"))

    def on_response(self, response: Response, now_ms: int) -> None:
        """The request in flight was answered."""
        request, self._in_flight = self._in_flight, None
        if self.state is BrokerState.SHUTTING_DOWN:
            return
        assert request is not None
        if response.error_code:
            self._on_refused(request, ErrorCode(response.error_code), now_ms)
        elif isinstance(request, BrokerRegistrationRequest):
            assert isinstance(response, BrokerRegistrationResponse)
            self._on_registered(response, now_ms)
        else:
            assert isinstance(response, BrokerHeartbeatResponse)
            self._on_heartbeat(request, response, now_ms)

    def on_failure(self, error: ApiError, now_ms: int) -> None:
        """No controller answered the request in flight; it may have been carried out."""
        self._in_flight = None
        if self.state is BrokerState.SHUTTING_DOWN:
            return
        self._last_refusal = str(error)
        self._has_failed = True
        self._retry(now_ms)

    def tick(self, now_ms: int) -> None:
        """Do what is due."""
        if self.state is BrokerState.SHUTTING_DOWN:
            return
        if self._registration_deadline_ms is not None and self._registration_deadline_ms <= now_ms:
            seconds = self._settings.registration_ms_max / 1000
            problem = f"no controller registered this broker in {seconds:g} s"
            self._end(MustStop(f"{problem}; the last answer: {self._last_refusal or 'none'}"))
            return
        for directory_id, offline in self._offline.items():
            if not offline.is_reported and offline.deadline_ms <= now_ms:
                problem = f"log directory {directory_id} is offline and no controller was reached"
                self._end(MustStop(f"{problem} in log.dir.failure.timeout.ms"))
                return
        if self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            self._give_up_waiting(now_ms)
        self._note_silence(now_ms)

    # Outputs.

    def take_request(self, now_ms: int) -> Request | None:
        """Return what to send to the active controller now; its outcome is an input."""
        is_due = self._next_ms is not None and self._next_ms <= now_ms
        if self.state is BrokerState.SHUTTING_DOWN or self._in_flight is not None or not is_due:
            return None
        self._next_ms = None
        self._wants_at_once = False
        if self._is_registered:
            self._in_flight = self._heartbeat()
        else:
            self._in_flight = self._registration
        return self._in_flight

    def take_events(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    def next_deadline_ms(self) -> int | None:
        """When :meth:`tick`, and then :meth:`take_request`, have something to do by themselves."""
        if self.state in (BrokerState.NOT_RUNNING, BrokerState.SHUTTING_DOWN):
            return None
        deadlines = [each.deadline_ms for each in self._offline.values() if not each.is_reported]
        if self._next_ms is not None and self._in_flight is None:
            deadlines.append(self._next_ms)
        if self._registration_deadline_ms is not None:
            deadlines.append(self._registration_deadline_ms)
        if self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            deadlines.append(self._shutdown_deadline_ms)
        if self._silence_deadline_ms is not None:
            deadlines.append(self._silence_deadline_ms)
        return min(deadlines, default=None)

    def check_invariants(self) -> None:
        if self.state in (BrokerState.NOT_RUNNING, BrokerState.SHUTTING_DOWN):
            return
        assert self._in_flight is not None or self._next_ms is not None, "nothing is to come"
        if self.state is BrokerState.RUNNING:
            assert self._is_ready
            assert self.broker_epoch != NO_EPOCH
        if self.state in (BrokerState.RECOVERY, BrokerState.RUNNING):
            assert self._applied_offset >= self.broker_epoch
        assert (self._registration_deadline_ms is None) == (self.broker_epoch != NO_EPOCH)

    # Answers.

    def _on_registered(self, response: BrokerRegistrationResponse, now_ms: int) -> None:
        self._is_registered = True
        self._registration_deadline_ms = None
        self._retry_ms = RETRY_FIRST_MS
        if self.broker_epoch == NO_EPOCH:
            self.broker_epoch = response.broker_epoch
            self._events.append(Registered(response.broker_epoch))
        elif self.broker_epoch != response.broker_epoch:
            # The same incarnation has a new epoch only if its registration was taken back.
            self._end(MustStop(_NOT_OURS[ErrorCode.BROKER_ID_NOT_REGISTERED]))
            return
        self._next_ms = now_ms

    def _on_heartbeat(
        self, request: BrokerHeartbeatRequest, response: BrokerHeartbeatResponse, now_ms: int
    ) -> None:
        why_silent = self._why_silent(now_ms)
        self._note_silence(now_ms)  # before the deadline came, if this process stood still
        self.heard_ms = now_ms
        self._has_failed = False
        self._is_silence_noted = False
        self._retry_ms = RETRY_FIRST_MS
        for directory_id in request.offline_log_dirs:
            self._offline[directory_id] = self._offline[directory_id]._replace(is_reported=True)
        if self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            self._on_shutdown_answer(request, response, now_ms)
            return
        self._note_fencing(request, response, why_silent)
        if self.state is BrokerState.STARTING:
            if response.is_caught_up and not self._is_behind:
                self.state = BrokerState.RECOVERY
                self._events.append(CaughtUp())
            wait_ms = CATCH_UP_MS
        elif self.is_fenced and self._is_ready:
            wait_ms = min(FENCED_MS, self._settings.heartbeat_interval_ms)
        else:
            wait_ms = self._settings.heartbeat_interval_ms
        self._schedule(now_ms, wait_ms)

    def _note_fencing(
        self, request: BrokerHeartbeatRequest, response: BrokerHeartbeatResponse, why: str
    ) -> None:
        was_fenced, self.is_fenced = self.is_fenced, response.is_fenced
        if self.state is BrokerState.RECOVERY and not response.is_fenced and not request.want_fence:
            self.state = BrokerState.RUNNING
            self._events.append(Unfenced(again=False))
        elif self.state is BrokerState.RUNNING and was_fenced != response.is_fenced:
            self._events.append(FencedAgain(why) if response.is_fenced else Unfenced(again=True))

    def _on_shutdown_answer(
        self, request: BrokerHeartbeatRequest, response: BrokerHeartbeatResponse, now_ms: int
    ) -> None:
        if response.should_shut_down:
            self._end(MayStop(granted=True, why="the controller has moved all leaders away"))
        elif not request.want_shut_down:
            self._next_ms = now_ms  # was under way when the shutdown began
        else:
            self._schedule(now_ms, self._shutdown_wait_ms)
            self._shutdown_wait_ms = min(2 * self._shutdown_wait_ms, SHUTDOWN_MS_MAX)

    def _on_refused(self, request: Request, code: ErrorCode, now_ms: int) -> None:
        self._last_refusal = code.name
        if code is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            self._last_refusal += f", {_DUPLICATE_ADVICE}"
        is_registration = isinstance(request, BrokerRegistrationRequest)
        if self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN and code in _NOT_OURS:
            self._end(MayStop(granted=False, why=f"the controller answers {code.name}"))
        elif is_registration and code in _REFUSED_FOR_GOOD:
            refusal = f"the controller refuses to register this broker: {code.name}"
            self._end(MustStop(f"{refusal}: {_REFUSED_FOR_GOOD[code]}"))
        elif not is_registration and code in _NOT_OURS:
            self._end(MustStop(_NOT_OURS[code]))
        else:
            if code is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
                self._note_duplicate()
            self._retry(now_ms)

    def _note_duplicate(self) -> None:
        if self._is_duplicate_noted:
            return
        self._is_duplicate_noted = True
        why = (
            f"the session of an earlier process with broker id {self._registration.broker_id} is "
            "not over (DUPLICATE_BROKER_REGISTRATION): it ends broker.session.timeout.ms after its "
            f"last heartbeat; {_DUPLICATE_ADVICE}"
        )
        self._events.append(StillWaiting(why))

    # Time.

    @property
    def _is_behind(self) -> bool:
        """Whether this broker's image lacks its own registration."""
        return self._applied_offset < self.broker_epoch

    @property
    def _shutdown_deadline_ms(self) -> int:
        return min(
            self.heard_ms + self._settings.shutdown_silence_ms_max,
            self._shutdown_begun_ms + self._settings.shutdown_ms_max,
        )

    @property
    def _silence_deadline_ms(self) -> int | None:
        """When the broker is fenced for want of heartbeats, if it has not been noted."""
        if self.state is not BrokerState.RUNNING or self._is_silence_noted:
            return None
        return self.heard_ms + self._settings.session_ms

    def _note_silence(self, now_ms: int) -> None:
        deadline_ms = self._silence_deadline_ms
        if deadline_ms is not None and deadline_ms <= now_ms:
            self._is_silence_noted = True
            self._events.append(Unheard(self._why_silent(now_ms)))

    def _why_silent(self, now_ms: int) -> str:
        """Say why the controller may have had no heartbeat.

        A request that was under way during a pause of this process fails as well.
        """
        silent = f"no controller has answered for {now_ms - self.heard_ms} ms"
        last = f" ({self._last_refusal})" if self._has_failed else ""
        return (
            f"{silent}{last}: no controller runs, this process was paused or stalled (`the event"
            " loop stalled`), or it is cut off from the controllers (`peer lost`)"
        )

    def _give_up_waiting(self, now_ms: int) -> None:
        if now_ms >= self.heard_ms + self._settings.shutdown_silence_ms_max:
            why = f"no controller has answered for {now_ms - self.heard_ms} ms"
            self._end(MayStop(granted=False, why=why))
        elif now_ms >= self._shutdown_begun_ms + self._settings.shutdown_ms_max:
            why = f"no permission to leave in {now_ms - self._shutdown_begun_ms} ms"
            self._end(MayStop(granted=False, why=why))

    def _send_at_once(self, now_ms: int) -> None:
        self._next_ms = now_ms
        self._wants_at_once = True

    def _schedule(self, now_ms: int, wait_ms: int) -> None:
        """Set when to send next. What became due while a request was in flight stays due."""
        self._next_ms = now_ms if self._wants_at_once else now_ms + wait_ms

    def _retry(self, now_ms: int) -> None:
        # Not at once, even if that was wanted: this may be one of a thousand brokers that fail.
        wait_ms = self._retry_ms * self._random.uniform(1 - RETRY_JITTER, 1 + RETRY_JITTER)
        self._next_ms = now_ms + max(round(wait_ms), 1)
        self._retry_ms = min(2 * self._retry_ms, self._settings.heartbeat_interval_ms)

    def _heartbeat(self) -> BrokerHeartbeatRequest:
        return BrokerHeartbeatRequest(
            broker_id=self._registration.broker_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._applied_offset,
            want_fence=not self._is_ready,
            want_shut_down=self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN,
            offline_log_dirs=list(self._offline),
            cordoned_log_dirs=None if self._cordoned is None else list(self._cordoned),
        )

    def _end(self, event: MayStop | MustStop) -> None:
        self.state = BrokerState.SHUTTING_DOWN
        self._next_ms = None
        self._events.append(event)
