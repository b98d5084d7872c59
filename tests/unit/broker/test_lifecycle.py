"""What a broker sends to the controller in its life, and what it makes of the answers."""

from random import Random

import pytest

from odradek.broker.lifecycle import BrokerLifecycle, Request
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

EPOCH = 7
DIRECTORY = Uuid(b"directory-number")
LOST = ApiError(ErrorCode.REQUEST_TIMED_OUT, "no controller")


class Life:
    """A lifecycle on a clock of its own, and all that came out of it."""

    def __init__(self, settings: LifecycleSettings | None = None) -> None:
        registration = BrokerRegistrationRequest(
            broker_id=1, incarnation_id=Uuid(b"incarnation-no-1")
        )
        self.now_ms = 1_000
        self.machine = BrokerLifecycle(registration, settings or LifecycleSettings(), Random(1))
        self.events: list[Event] = []

    def next_request(self) -> Request:
        """Let time pass until there is something to send, and return it."""
        while True:
            self.look()
            request = self.machine.take_request(self.now_ms)
            if request is not None:
                return request
            deadline_ms = self.machine.next_deadline_ms()
            assert deadline_ms is not None, self.events
            assert deadline_ms > self.now_ms
            self.now_ms = deadline_ms
            self.machine.tick(self.now_ms)

    def next_heartbeat(self) -> BrokerHeartbeatRequest:
        request = self.next_request()
        assert isinstance(request, BrokerHeartbeatRequest)
        return request

    def look(self) -> None:
        self.machine.check_invariants()
        self.events += self.machine.take_events()

    def answer(
        self,
        code: ErrorCode = ErrorCode.NONE,
        *,
        is_caught_up: bool = True,
        is_fenced: bool = False,
        should_shut_down: bool = False,
    ) -> None:
        response = BrokerHeartbeatResponse(
            error_code=code,
            is_caught_up=is_caught_up,
            is_fenced=is_fenced,
            should_shut_down=should_shut_down,
        )
        self.machine.on_response(response, self.now_ms)
        self.look()

    def state(self) -> BrokerState:
        return self.machine.state

    def register(self, code: ErrorCode = ErrorCode.NONE) -> None:
        self.machine.on_response(
            BrokerRegistrationResponse(error_code=code, broker_epoch=EPOCH), self.now_ms
        )
        self.look()

    def pass_until_end(self) -> None:
        while (deadline_ms := self.machine.next_deadline_ms()) is not None:
            self.now_ms = deadline_ms
            self.machine.tick(self.now_ms)
            if self.machine.take_request(self.now_ms) is not None:
                self.machine.on_failure(LOST, self.now_ms)
            self.look()

    def run(self) -> None:
        """Get to RUNNING, by the shortest way."""
        self.machine.start(self.now_ms)
        self.next_request()
        self.register()
        self.machine.on_metadata_applied(EPOCH, self.now_ms)
        self.next_heartbeat()
        self.answer(is_fenced=True)
        self.machine.on_logs_loaded(self.now_ms)
        self.next_heartbeat()
        self.answer()
        assert self.machine.state is BrokerState.RUNNING
        self.events.clear()


def test_a_start_without_trouble_takes_no_time() -> None:
    life = Life()
    life.run()
    assert life.now_ms == 1_000
    begun_ms = life.now_ms
    assert life.next_heartbeat() == BrokerHeartbeatRequest(
        broker_id=1, broker_epoch=EPOCH, current_metadata_offset=EPOCH, want_fence=False
    )
    assert life.now_ms == begun_ms + 2_000


def test_a_broker_loads_its_logs_when_it_has_caught_up_and_asks_to_be_unfenced_after_that() -> None:
    life = Life()
    life.machine.start(life.now_ms)
    assert isinstance(life.next_request(), BrokerRegistrationRequest)
    life.register()
    assert life.events == [Registered(EPOCH)]
    for _ in range(3):
        heartbeat = life.next_heartbeat()
        assert (heartbeat.want_fence, heartbeat.current_metadata_offset) == (True, -1)
        life.answer(is_caught_up=False, is_fenced=True)
    assert life.now_ms == 1_020, "every 10 ms"
    life.machine.on_metadata_applied(EPOCH - 1, life.now_ms)
    life.machine.on_metadata_applied(EPOCH, life.now_ms)
    assert life.next_heartbeat().current_metadata_offset == EPOCH
    assert life.now_ms == 1_020, "at once"
    assert life.state() is BrokerState.STARTING
    life.answer(is_fenced=True)
    assert (life.state(), life.events[1:]) == (BrokerState.RECOVERY, [CaughtUp()])
    assert life.next_heartbeat().want_fence
    life.answer(is_fenced=True)
    assert life.state() is BrokerState.RECOVERY
    life.machine.on_logs_loaded(life.now_ms)
    assert not life.next_heartbeat().want_fence
    life.answer(is_fenced=True)
    assert life.state() is BrokerState.RECOVERY, "the controller does not want it yet"
    life.next_heartbeat()
    life.answer()
    assert (life.state(), life.events[2:]) == (BrokerState.RUNNING, [Unfenced(again=False)])


def test_an_answer_to_what_was_asked_before_the_logs_were_loaded_unfences_nothing() -> None:
    life = Life()
    life.machine.start(life.now_ms)
    life.next_request()
    life.register()
    life.machine.on_metadata_applied(EPOCH, life.now_ms)
    life.next_heartbeat()
    life.answer(is_fenced=True)
    life.next_heartbeat()
    life.machine.on_logs_loaded(life.now_ms)  # while the heartbeat is under way
    life.answer()
    assert life.state() is BrokerState.RECOVERY
    waited_from_ms = life.now_ms
    assert not life.next_heartbeat().want_fence
    assert life.now_ms == waited_from_ms, "what became due meanwhile is sent at once"


def test_a_lost_answer_to_a_registration_is_followed_by_the_same_registration() -> None:
    life = Life()
    life.machine.start(life.now_ms)
    first = life.next_request()
    life.machine.on_failure(LOST, life.now_ms)
    assert life.next_request() == first
    assert 1_080 <= life.now_ms <= 1_120


def test_a_broker_waits_for_the_session_of_its_predecessor_and_says_so_once() -> None:
    life = Life()
    life.machine.start(life.now_ms)
    for _ in range(5):
        life.next_request()
        life.register(ErrorCode.DUPLICATE_BROKER_REGISTRATION)
    (waiting,) = life.events
    assert isinstance(waiting, StillWaiting)
    assert "broker id 1" in waiting.why
    assert "broker.session.timeout.ms" in waiting.why
    assert "stop it or give this node another node.id" in waiting.why
    life.next_request()
    life.register()
    assert life.events[1:] == [Registered(EPOCH)]


def test_a_broker_that_no_controller_registers_gives_up_in_time() -> None:
    life = Life(LifecycleSettings(registration_ms_max=60_000))
    life.machine.start(life.now_ms)
    life.pass_until_end()
    (end,) = life.events
    assert life.now_ms == 61_000
    assert isinstance(end, MustStop)
    assert "60 s" in end.why
    assert "no controller" in end.why


def test_a_second_process_with_the_same_id_is_told_when_it_gives_up() -> None:
    life = Life(LifecycleSettings(registration_ms_max=10_000))
    life.machine.start(life.now_ms)
    while life.machine.next_deadline_ms() is not None:
        life.next_request()
        life.register(ErrorCode.DUPLICATE_BROKER_REGISTRATION)
        if life.machine.next_deadline_ms() == 11_000:
            life.now_ms = 11_000
            life.machine.tick(life.now_ms)
            life.look()
    _waiting, end = life.events
    assert end == MustStop(
        "no controller registered this broker in 10 s; the last answer:"
        " DUPLICATE_BROKER_REGISTRATION, if another process with this id runs, stop it or give this"
        " node another node.id"
    )


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (ErrorCode.INCONSISTENT_CLUSTER_ID, "formatted for another cluster"),
        (ErrorCode.INVALID_REGISTRATION, "do not fit the cluster"),
        (ErrorCode.UNSUPPORTED_VERSION, "`odradek features describe`"),
    ],
)
def test_a_registration_that_can_never_be_accepted_is_not_tried_again(
    code: ErrorCode, why: str
) -> None:
    life = Life()
    life.machine.start(life.now_ms)
    life.next_request()
    life.register(code)
    (end,) = life.events
    assert isinstance(end, MustStop)
    assert code.name in end.why
    assert why in end.why
    assert life.machine.next_deadline_ms() is None


def test_a_broker_that_was_fenced_by_mistake_asks_again_and_goes_on() -> None:
    life = Life()
    life.run()
    life.now_ms += 60_000  # it was stopped
    life.next_heartbeat()
    life.answer(is_caught_up=False, is_fenced=True)
    assert (life.state(), life.machine.is_fenced) == (BrokerState.RUNNING, True)
    fenced = FencedAgain(
        "no controller has answered for 60000 ms: no controller runs, this process was paused or"
        " stalled (`the event loop stalled`), or it is cut off from the controllers (`peer lost`)"
    )
    unheard = Unheard(fenced.why)
    assert life.events == [unheard, fenced]
    begun_ms = life.now_ms
    assert not life.next_heartbeat().want_fence
    assert life.now_ms == begun_ms + 100
    life.answer()
    assert life.events == [unheard, fenced, Unfenced(again=True)]


def test_a_broker_that_is_not_heard_for_a_session_says_so_once_and_why() -> None:
    life = Life()
    life.run()
    heard_ms = life.machine.heard_ms
    while life.now_ms < heard_ms + 30_000:
        life.next_heartbeat()
        life.machine.on_failure(LOST, life.now_ms)
        life.look()
    (unheard,) = life.events
    assert unheard == Unheard(
        f"no controller has answered for 9000 ms ({LOST}): no controller runs, this process was"
        " paused or stalled (`the event loop stalled`), or it is cut off from the controllers"
        " (`peer lost`)"
    )
    life.next_heartbeat()
    life.answer()
    life.events.clear()
    life.next_heartbeat()
    life.now_ms += 9_000  # no answer, and no failure either
    life.machine.tick(life.now_ms)
    life.look()
    assert [type(each) for each in life.events] == [Unheard], "it is news again"


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        (ErrorCode.STALE_BROKER_EPOCH, "another process has registered"),
        (ErrorCode.BROKER_ID_NOT_REGISTERED, "was unregistered"),
    ],
)
def test_a_broker_whose_id_is_not_its_own_any_more_stops(code: ErrorCode, problem: str) -> None:
    life = Life()
    life.run()
    life.next_heartbeat()
    life.answer(code)
    (end,) = life.events
    assert isinstance(end, MustStop)
    assert problem in end.why
    assert life.state() is BrokerState.SHUTTING_DOWN
    assert life.machine.take_request(life.now_ms + 60_000) is None


def test_other_errors_are_retried_with_longer_and_longer_waits() -> None:
    life = Life()
    life.run()
    waits = []
    for _ in range(8):
        begun_ms = life.now_ms
        life.next_heartbeat()
        waits.append(life.now_ms - begun_ms)
        life.answer(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert waits[0] == 2_000
    for wait_ms, middle_ms in zip(
        waits[1:], (100, 200, 400, 800, 1_600, 2_000, 2_000), strict=True
    ):
        assert 0.8 * middle_ms <= wait_ms <= 1.2 * middle_ms


def test_a_shutdown_is_asked_for_until_it_is_granted() -> None:
    life = Life()
    life.run()
    life.machine.begin_shutdown(life.now_ms)
    waits = []
    for _ in range(6):
        begun_ms = life.now_ms
        heartbeat = life.next_heartbeat()
        waits.append(life.now_ms - begun_ms)
        assert (heartbeat.want_shut_down, heartbeat.want_fence) == (True, False)
        assert life.state() is BrokerState.PENDING_CONTROLLED_SHUTDOWN
        life.answer()
    assert waits == [0, 50, 100, 200, 400, 500]
    life.next_heartbeat()
    life.answer(is_fenced=True, should_shut_down=True)
    (end,) = life.events
    assert isinstance(end, MayStop)
    assert end.granted
    assert life.state() is BrokerState.SHUTTING_DOWN
    life.machine.begin_shutdown(life.now_ms)
    assert life.machine.take_events() == []


def test_a_shutdown_that_begins_during_a_heartbeat_is_asked_for_right_after_it() -> None:
    life = Life()
    life.run()
    life.next_heartbeat()
    life.machine.begin_shutdown(life.now_ms)
    begun_ms = life.now_ms
    life.answer()
    assert life.next_heartbeat().want_shut_down
    assert life.now_ms == begun_ms


def test_without_a_quorum_a_broker_that_wants_to_leave_waits_five_seconds() -> None:
    life = Life()
    life.run()
    begun_ms = life.now_ms
    life.machine.begin_shutdown(begun_ms)
    life.pass_until_end()
    (end,) = life.events
    assert isinstance(end, MayStop)
    assert not end.granted
    assert "no controller has answered" in end.why
    assert life.now_ms == begun_ms + 5_000


def test_a_controller_that_never_lets_a_broker_go_cannot_keep_it_for_ever() -> None:
    life = Life(LifecycleSettings(shutdown_ms_max=10_000))
    life.run()
    begun_ms = life.now_ms
    life.machine.begin_shutdown(begun_ms)
    while life.state() is not BrokerState.SHUTTING_DOWN:
        if life.machine.take_request(life.now_ms) is not None:
            life.answer()
        deadline_ms = life.machine.next_deadline_ms()
        assert deadline_ms is not None
        life.now_ms = deadline_ms
        life.machine.tick(life.now_ms)
    life.look()
    (end,) = life.events
    assert isinstance(end, MayStop)
    assert not end.granted
    assert life.now_ms == begun_ms + 10_000


def test_a_broker_that_is_registered_takes_leave_even_before_it_was_unfenced() -> None:
    life = Life()
    life.machine.start(life.now_ms)
    life.next_request()
    life.register()
    life.machine.begin_shutdown(life.now_ms)
    heartbeat = life.next_heartbeat()
    assert (heartbeat.want_shut_down, heartbeat.want_fence) == (True, True)


def test_a_broker_that_is_told_again_to_stop_waits_for_no_permission() -> None:
    life = Life()
    life.run()
    life.machine.give_up_shutdown()  # it does not leave yet
    life.machine.begin_shutdown(life.now_ms)
    assert life.next_heartbeat().want_shut_down
    assert life.state() is BrokerState.PENDING_CONTROLLED_SHUTDOWN
    life.machine.give_up_shutdown()
    life.look()
    assert life.events == [MayStop(granted=False, why="asked to stop a second time")]
    life.machine.give_up_shutdown()
    life.look()
    assert len(life.events) == 1


def test_controlled_shutdown_can_be_switched_off() -> None:
    life = Life(LifecycleSettings(controlled_shutdown=False))
    life.run()
    life.machine.begin_shutdown(life.now_ms)
    life.look()
    assert life.events == [MayStop(granted=False, why="controlled.shutdown.enable is false")]


def test_an_offline_directory_is_in_every_heartbeat_from_then_on() -> None:
    life = Life()
    life.run()
    life.next_heartbeat()
    life.machine.on_directory_offline(DIRECTORY, life.now_ms)
    life.answer()
    begun_ms = life.now_ms
    assert life.next_heartbeat().offline_log_dirs == [DIRECTORY]
    assert life.now_ms == begun_ms, "at once"
    life.answer()
    for _ in range(20):  # longer than the timeout: it is reported
        assert life.next_heartbeat().offline_log_dirs == [DIRECTORY]
        life.answer()
    assert life.events == []


def test_a_broker_that_cannot_report_an_offline_directory_stops() -> None:
    life = Life(LifecycleSettings(directory_failure_ms_max=30_000))
    life.run()
    begun_ms = life.now_ms
    life.next_heartbeat()  # without it: an answer to this one reports nothing
    waited_ms = life.now_ms - begun_ms
    life.machine.on_directory_offline(DIRECTORY, life.now_ms)
    life.answer()
    life.pass_until_end()
    unheard, end = life.events
    assert isinstance(unheard, Unheard)
    assert isinstance(end, MustStop)
    assert str(DIRECTORY) in end.why
    assert "log.dir.failure.timeout.ms" in end.why
    assert life.now_ms == begun_ms + waited_ms + 30_000


def test_an_amended_registration_changes_neither_epoch_nor_state() -> None:
    life = Life()
    life.run()
    amended = BrokerRegistrationRequest(
        broker_id=1, incarnation_id=Uuid(b"incarnation-no-1"), rack="r2"
    )
    life.machine.register_again(amended, life.now_ms)
    assert life.next_request() == amended
    life.register()
    assert (life.state(), life.events) == (BrokerState.RUNNING, [])
    assert life.next_heartbeat().broker_epoch == EPOCH


def test_cordoned_directories_are_reported_at_once() -> None:
    life = Life()
    life.run()
    begun_ms = life.now_ms
    life.machine.set_cordoned([DIRECTORY], life.now_ms)
    assert life.next_heartbeat().cordoned_log_dirs == [DIRECTORY]
    assert life.now_ms == begun_ms
