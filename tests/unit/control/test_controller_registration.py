"""Each controller registers until the metadata log names it."""

from collections.abc import Callable
from random import Random

from odradek.control.controller_registration import (
    UNSEEN_MS,
    ControllerRegistration,
    RegisteredController,
)
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import Uuid
from odradek.metadata.image import ClusterImage
from odradek.metadata.nodes import ControllerImage, Endpoint
from odradek.protocol.generated.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from odradek.protocol.generated.metadata_records import FeatureLevelRecord
from odradek.protocol.message import Message
from tests.unit.control.control_site import LISTENER, ControlSite, ManualTimers

OURS = RegisteredController(
    7, Uuid(b"one start of us."), {LISTENER: Endpoint(LISTENER, "c7", 9093)}
)


class HeldChannel:
    """Keeps what is asked until the test answers it."""

    def __init__(self) -> None:
        self.asked: list[Message] = []
        self.is_closed = False
        self._then: Callable[[Message], None] | None = None
        self._failed: Callable[[ApiError], None] | None = None

    def ask(
        self,
        request: Message,
        then: Callable[[Message], None],
        failed: Callable[[ApiError], None],
    ) -> None:
        self.asked.append(request)
        self._then, self._failed = then, failed

    def answer(self, code: ErrorCode = ErrorCode.NONE) -> None:
        assert self._then is not None
        self._then(ControllerRegistrationResponse(error_code=code, error_message=None))

    def fail(self) -> None:
        assert self._failed is not None
        self._failed(ApiError(ErrorCode.REQUEST_TIMED_OUT))

    def close(self) -> None:
        self.is_closed = True


class Site:
    def __init__(self) -> None:
        self.channel = HeldChannel()
        self.timers = ManualTimers()
        self.registration = ControllerRegistration(
            OURS, self.channel, Random(1), self.timers.call_later
        )


def image(metadata_version: int = 30, incarnation: Uuid | None = None) -> ClusterImage:
    level = FeatureLevelRecord(name="metadata.version", feature_level=metadata_version)
    known = ControllerImage(controller_id=7, incarnation_id=incarnation or Uuid(bytes(16)))
    return ClusterImage().apply([level, known.to_record()])


def test_nothing_is_sent_before_the_cluster_knows_registrations() -> None:
    site = Site()
    site.registration.on_image(ClusterImage())
    site.registration.on_image(image(metadata_version=14))
    assert site.channel.asked == []
    site.registration.on_image(image())
    (request,) = site.channel.asked
    assert isinstance(request, ControllerRegistrationRequest)
    assert (request.controller_id, request.incarnation_id) == (7, OURS.incarnation_id)
    assert [(each.name, each.host, each.port) for each in request.listeners] == [
        (LISTENER, "c7", 9093)
    ]
    assert {"metadata.version", "kraft.version"} <= {each.name for each in request.features}


def test_another_incarnation_in_the_log_does_not_count() -> None:
    site = Site()
    site.registration.on_image(image(incarnation=Uuid(b"the last start..")))
    assert len(site.channel.asked) == 1
    assert site.registration.is_registered is False
    site.registration.on_image(image(incarnation=OURS.incarnation_id))
    registered: bool = site.registration.is_registered
    assert registered
    site.channel.answer()
    site.timers.advance(600_000)
    assert len(site.channel.asked) == 1


def test_failures_are_retried_after_a_growing_time() -> None:
    site = Site()
    site.registration.on_image(image())
    waits = []
    for number in range(15):
        site.registration.on_image(image())  # news in the log shorten no wait
        if number % 2:
            site.channel.fail()
        else:
            site.channel.answer(ErrorCode.UNKNOWN_SERVER_ERROR)
        (due,) = site.timers.due
        waits.append(due[0] - site.timers.time_ms)
        site.timers.advance(waits[-1])
        assert len(site.channel.asked) == number + 2
    assert 80 <= waits[0] <= 120
    assert waits[4] > waits[0] * 8
    assert 96_000 <= waits[-1] <= 144_000


def test_a_registration_that_a_failover_lost_is_sent_again() -> None:
    site = Site()
    site.registration.on_image(image())
    site.channel.answer()
    site.timers.advance(UNSEEN_MS)
    assert len(site.channel.asked) == 2


def test_after_a_stop_nothing_is_sent() -> None:
    site = Site()
    site.registration.on_image(image())
    site.channel.fail()
    site.registration.stop()
    assert site.channel.is_closed
    site.timers.advance(600_000)
    site.registration.on_image(image())
    assert len(site.channel.asked) == 1


def test_a_controller_server_registers_itself() -> None:
    site = ControlSite()
    channel = HeldChannel()
    site.server.start({LISTENER: Endpoint(LISTENER, "c1", 9093)}, channel)
    assert channel.asked == []
    site.lead()
    (request,) = channel.asked
    site.ask(request)
    assert site.server.registration is not None
    assert site.server.registration.is_registered
    site.server.stop()
    assert channel.is_closed
    assert not site.server.host.is_active
    assert site.timers.due == []
