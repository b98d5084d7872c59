"""A connection whose listener has a gate: what is let through, answered, and turned away."""

from odradek.net.gate import Verdict
from odradek.net.server import EventKind, ServerLimits
from odradek.protocol.framing import open_request
from tests.unit.net.net_harness import Echo, Held, Workbench, frame

METADATA, API_VERSIONS, KNOCK, FORCE = 3, 18, 17, 36
LIMITS = ServerLimits(frame_bytes_max=1_000)


class Doorkeeper:
    """Opens after a knock; turns away who uses force, late."""

    def __init__(self) -> None:
        self.frame_bytes_max: int | None = 64

    def judge(self, frame: memoryview) -> Verdict | None:
        key = open_request(frame).api.key
        if key == FORCE:
            return Verdict([b"no"], "used force", delay_ms=100)
        if key == KNOCK:
            self.frame_bytes_max = None
            return Verdict([b"come in"])
        return None


def test_the_gate_answers_and_lets_through() -> None:
    echo = Echo()
    bench = Workbench(echo, LIMITS, Doorkeeper())
    bench.receive(frame(b"a", key=API_VERSIONS) + frame(b"", key=KNOCK) + frame(b"b", key=METADATA))
    assert len(echo.seen) == 2
    assert b"come in" in bytes(bench.transport.written)
    assert bench.events[-1].kind is EventKind.OPENED


def test_frames_are_small_until_the_gate_opens() -> None:
    large = frame(bytes(500), key=METADATA)
    bench = Workbench(Echo(), LIMITS, Doorkeeper())
    bench.receive(large[:8])
    assert bench.events[-1].kind is EventKind.REJECTED
    assert "limit is 64" in bench.events[-1].detail
    bench = Workbench(Echo(), LIMITS, Doorkeeper())
    bench.receive(frame(b"", key=KNOCK) + large)
    assert bench.events[-1].kind is EventKind.OPENED


def test_who_is_turned_away_waits_and_nothing_behind_it_is_handled() -> None:
    echo = Echo()
    bench = Workbench(echo, LIMITS, Doorkeeper())
    bench.receive(frame(b"", key=FORCE) + frame(b"", key=KNOCK) + frame(b"b", key=METADATA))
    assert bench.transport.written == b""
    assert bench.ends() == []
    ((seconds, end),) = bench.later
    assert seconds == 0.1
    end()
    assert bytes(bench.transport.written) == b"no"
    assert bench.transport.closed
    assert (bench.events[-1].kind, bench.events[-1].detail) == (EventKind.REJECTED, "used force")
    for callback in bench.due:
        callback()
    assert echo.seen == []


def test_requests_before_are_answered_before_one_is_turned_away() -> None:
    held = Held()
    bench = Workbench(held, LIMITS, Doorkeeper())
    bench.receive(frame(b"a", key=METADATA) + frame(b"", key=FORCE))
    assert bench.later == []  # it is not looked at yet
    ((_, _, reply),) = held.pending
    reply([b"a"])
    while bench.due:
        bench.due.pop(0)()
    assert len(bench.later) == 1
