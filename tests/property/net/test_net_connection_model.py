"""Whatever the chunks, the delays and the back-pressure: every request once, every reply in order.

Hypothesis drives a connection on a fake transport next to a list. The limits are tiny, so that
a few requests cross turns, read-ahead and congestion.
"""

import struct

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from odradek.net.server import ConnectionInfo, Reply, ServerLimits
from odradek.protocol.framing import Request
from odradek.protocol.message import Buffer
from tests.unit.net.net_harness import Workbench, frame, response

LIMITS = ServerLimits(
    read_ahead_bytes_max=60, requests_per_turn_max=3, write_buffer_bytes_max=100, idle_ms_max=10**9
)


class ConnectionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.bench = Workbench(self.handle, LIMITS)
        self.sent = 0  # requests made by the client
        self.wire = b""  # of these, bytes not yet received by the server
        self.handled: list[int] = []
        self.expected = bytearray()  # of responses, in order
        self.pending: tuple[Reply, list[Buffer] | None] | None = None
        self.congested = False

    def handle(self, request: Request, info: ConnectionInfo, reply: Reply) -> None:
        assert self.pending is None, "one request in flight"
        assert not self.congested
        number, is_late, size = struct.unpack(">i?h", request.body)
        self.handled.append(number)
        parts = None if size < 0 else response(b"r" * size, number)
        self.expected += b"".join(parts or [])
        if is_late:
            self.pending = (reply, parts)
        else:
            reply(parts)

    @rule(is_late=st.booleans(), size=st.integers(-1, 60))
    def client_makes_a_request(self, is_late: bool, size: int) -> None:
        self.wire += frame(struct.pack(">i?h", self.sent, is_late, size), self.sent)
        self.sent += 1

    @precondition(lambda self: self.bench.is_reading())
    @rule(count=st.integers(1, 100))
    def bytes_arrive(self, count: int) -> None:
        self.bench.receive(self.wire[:count])
        self.wire = self.wire[count:]

    @precondition(lambda self: self.pending is not None)
    @rule()
    def the_answer_comes(self) -> None:
        assert self.pending is not None
        reply, parts = self.pending
        self.pending = None
        handled = len(self.handled)
        reply(parts)
        assert len(self.handled) == handled, "a reply runs no handler"

    @rule()
    def loop_goes_round(self) -> None:
        self.bench.run_due()

    @rule()
    def client_stops_or_goes_on_reading(self) -> None:
        self.congested = not self.congested
        if self.congested:
            self.bench.connection.pause_writing()
        else:
            self.bench.connection.resume_writing()

    @rule()
    def a_second_passes(self) -> None:
        self.bench.pass_time(1000)

    @invariant()
    def replies_are_in_order(self) -> None:
        assert self.handled == list(range(len(self.handled)))
        if self.pending is None:
            assert self.bench.transport.written == self.expected
        assert self.bench.ends() == []

    def teardown(self) -> None:
        """Let everything come to rest: nothing may be stuck."""
        if self.congested:
            self.client_stops_or_goes_on_reading()
        for _ in range(10 * self.sent + 10):
            if self.pending is not None:
                self.the_answer_comes()
            self.bench.run_due()
            if self.bench.is_reading():
                self.bytes_arrive(1000)
        assert len(self.handled) == self.sent
        assert self.bench.transport.written == self.expected
        assert self.bench.is_reading()


TestConnection = pytest.mark.slow(ConnectionMachine.TestCase)
TestConnection.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
