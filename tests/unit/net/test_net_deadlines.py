"""Idle, slow and stuck clients are let go on time, and never before; on a clock the test moves."""

import struct

from odradek.net.server import EventKind, ServerLimits
from odradek.protocol.framing import FIRST_BUFFER_BYTES, RECEIVE_BUFFER_BYTES
from tests.unit.net.net_harness import Echo, Held, Workbench, frame, on_loop, serving, until

LIMITS = ServerLimits(
    idle_ms_max=60_000, request_read_ms_max=8_000, write_stall_ms_max=20_000, close_ms_max=4_000
)
SLACK_MS = 2 * LIMITS.sweep_ms


def test_an_idle_connection_is_closed_on_time_and_not_before() -> None:
    bench = Workbench(Echo(), LIMITS)
    bench.pass_time(50_000)
    bench.receive(frame(b""))
    bench.pass_time(60_000)
    assert bench.ends() == []
    bench.pass_time(SLACK_MS)
    assert bench.ends() == ["expired"]
    assert bench.transport.closed


def test_a_connection_that_never_sends_is_idle() -> None:
    bench = Workbench(Echo(), LIMITS)
    bench.pass_time(60_000 + SLACK_MS)
    assert bench.ends() == ["expired"]


def test_a_begun_request_has_a_deadline_that_more_bytes_do_not_move() -> None:
    bench = Workbench(Echo(), LIMITS)
    bench.receive(struct.pack(">i", 1000))
    for _ in range(8):
        bench.pass_time(1000)
        bench.receive(b"x")
    assert bench.ends() == []
    bench.pass_time(SLACK_MS)
    assert bench.ends() == ["expired"]
    assert "12 bytes of a request" in bench.events[-1].detail


def test_each_request_has_its_own_deadline() -> None:
    whole = frame(b"0123456789")
    bench = Workbench(Echo(), LIMITS)
    bench.receive(whole[:12])
    for _ in range(10):
        bench.pass_time(7_000)
        bench.receive(whole[12:] + whole[:12])
    assert bench.ends() == []


def test_while_we_owe_an_answer_no_deadline_runs() -> None:
    held = Held()
    bench = Workbench(held, LIMITS)
    bench.receive(frame(b"") + frame(b"")[:5])
    bench.pass_time(600_000)
    assert bench.ends() == []
    held.answer()
    bench.run_due()
    bench.pass_time(7_000)
    assert bench.ends() == []
    bench.pass_time(1_000 + SLACK_MS)
    assert bench.ends() == ["expired"]


def test_a_reader_that_takes_nothing_is_dropped() -> None:
    bench = Workbench(Echo(), LIMITS)
    bench.receive(frame(b"x" * 1000))
    bench.transport.unsent = 1000
    bench.pass_time(20_000)
    assert bench.ends() == []
    bench.pass_time(SLACK_MS)
    assert bench.ends() == ["expired"]
    assert bench.is_aborted()


def test_a_slow_but_steady_reader_stays() -> None:
    bench = Workbench(Echo(), LIMITS)
    bench.receive(frame(b"x" * 1000))
    for unsent in range(1000, 0, -100):
        bench.transport.unsent = unsent
        bench.pass_time(19_000)
    assert bench.ends() == []


def test_a_close_that_does_not_finish_is_finished() -> None:
    bench = Workbench(Echo(), LIMITS)
    bench.receive(struct.pack(">i", -1))
    assert bench.transport.closed
    bench.pass_time(4_000)
    assert not bench.is_aborted()
    bench.pass_time(SLACK_MS)
    assert bench.is_aborted()
    assert bench.ends() == ["rejected"]


def test_a_quiet_connection_gives_its_receive_buffer_back() -> None:
    bench = Workbench(Echo(), LIMITS)
    bench.receive(frame(b"a"))
    assert len(bench.connection._space) == FIRST_BUFFER_BYTES
    bench.pass_time(15_000)
    assert bench.connection._reader is None
    assert len(bench.connection._space) == 0
    bench.receive(frame(b"b"))
    assert bench.ends() == []
    assert bench.transport.written.endswith(b"b")


def test_a_connection_that_sent_much_once_does_not_keep_a_large_buffer() -> None:
    bench = Workbench(Echo(), LIMITS)
    bench.receive(frame(bytes(RECEIVE_BUFFER_BYTES)))
    reader = bench.connection._reader
    assert reader is not None
    assert reader.buffer_bytes >= RECEIVE_BUFFER_BYTES
    for beat in range(30):  # it is never quiet for long
        bench.pass_time(1_000)
        bench.receive(frame(b"%d" % beat))
    assert bench.connection._reader is reader
    assert reader.buffer_bytes == FIRST_BUFFER_BYTES
    assert bench.transport.written.endswith(b"29")
    assert bench.ends() == []


@on_loop
async def test_deadlines_work_on_real_sockets() -> None:
    async with serving(Echo(), ServerLimits(request_read_ms_max=40)) as up:
        slow = await up.connect()
        slow.send(frame(b"x")[:-1])
        assert await slow.expect_close() == b""
        (detail,) = up.details(EventKind.EXPIRED)
        assert "bytes of a request" in detail
        await slow.close()
    async with serving(Echo(), ServerLimits(idle_ms_max=40)) as up:
        idle = await up.connect()
        assert await idle.expect_close() == b""
        (detail,) = up.details(EventKind.EXPIRED)
        assert "idle" in detail
        await idle.close()


@on_loop
async def test_a_stuck_reader_is_dropped_on_real_sockets() -> None:
    async with serving(Echo(), ServerLimits(write_stall_ms_max=60)) as up:
        stuck = await up.connect()
        stuck.writer.transport.pause_reading()  # type: ignore[attr-defined]
        stuck.send(frame(b"x" * 30_000_000))
        await until(lambda: "expired" in up.kinds())
        assert "not taken" in up.details(EventKind.EXPIRED)[0]
        await stuck.close()
