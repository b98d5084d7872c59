"""Whatever the chunks, the delays and the back-pressure: every request once, every reply in order.

Hypothesis drives a connection on a fake transport next to a list. The limits are tiny, so that
a few requests cross turns, read-ahead and congestion. Requests of one of two APIs may be handled
while others of it wait, and are answered in any order.
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

PLAIN_KEY, OVERLAPPED_KEY = 18, 3
UNANSWERED_MAX = 4
LIMITS = ServerLimits(
    read_ahead_bytes_max=60,
    requests_per_turn_max=3,
    requests_unanswered_max=UNANSWERED_MAX,
    write_buffer_bytes_max=100,
    idle_ms_max=10**9,
)


class ConnectionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.bench = Workbench(self.handle, LIMITS)
        self.sent = 0  # requests made by the client
        self.wire = b""  # of these, bytes not yet received by the server
        self.handled: list[int] = []
        self.expected: list[bytes] = []  # of responses, in order
        self.pending: dict[int, tuple[Reply, list[Buffer] | None]] = {}
        self.overlapped = True  # whether the last one that waits may be
        self.congested = False

    def handle(self, request: Request, info: ConnectionInfo, reply: Reply) -> bool:
        may_overlap: bool
        number, is_late, may_overlap, size = struct.unpack(">i??h", request.body)
        is_alone = request.api.key == PLAIN_KEY or not self.overlapped
        assert not (self.pending and is_alone), "it was to wait"
        assert len(self.pending) < UNANSWERED_MAX
        assert not self.congested
        self.handled.append(number)
        parts = None if size < 0 else response(b"r" * size, number)
        self.expected.append(b"".join(parts or []))
        if not is_late:
            reply(parts)
            return may_overlap
        self.pending[number] = (reply, parts)
        self.overlapped = may_overlap = may_overlap and not is_alone
        return may_overlap

    @property
    def answered(self) -> bytes:
        """What is to be on the wire, at most."""
        first = min(self.pending, default=len(self.expected))
        return b"".join(self.expected[:first])

    @rule(
        is_late=st.booleans(),
        may_overlap=st.booleans(),
        key=st.sampled_from([PLAIN_KEY, OVERLAPPED_KEY, OVERLAPPED_KEY]),
        size=st.integers(-1, 60),
    )
    def client_makes_a_request(self, is_late: bool, may_overlap: bool, key: int, size: int) -> None:
        body = struct.pack(">i??h", self.sent, is_late, may_overlap, size)
        self.wire += frame(body, self.sent, key)
        self.sent += 1

    @precondition(lambda self: self.bench.is_reading())
    @rule(count=st.integers(1, 100))
    def bytes_arrive(self, count: int) -> None:
        self.bench.receive(self.wire[:count])
        self.wire = self.wire[count:]

    @precondition(lambda self: self.pending)
    @rule(data=st.data())
    def an_answer_comes(self, data: st.DataObject) -> None:
        self.answer(data.draw(st.sampled_from(sorted(self.pending))))

    def answer(self, number: int) -> None:
        reply, parts = self.pending.pop(number)
        if not self.pending:
            self.overlapped = True
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
        assert self.answered.startswith(self.bench.transport.written)
        if not self.pending:
            assert self.bench.transport.written == self.answered
        assert self.bench.ends() == []

    def teardown(self) -> None:
        """Let everything come to rest: nothing may be stuck."""
        if self.congested:
            self.client_stops_or_goes_on_reading()
        for _ in range(10 * self.sent + 10):
            if self.pending:
                self.answer(max(self.pending))
            self.bench.run_due()
            if self.bench.is_reading():
                self.bytes_arrive(1000)
        assert len(self.handled) == self.sent
        assert self.bench.transport.written == b"".join(self.expected)
        assert self.bench.is_reading()


TestConnection = pytest.mark.slow(ConnectionMachine.TestCase)
TestConnection.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
