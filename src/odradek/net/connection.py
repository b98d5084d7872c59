"""One client: from bytes that come in to requests, from replies to bytes that go out.

Hot path (``bench/net.py``).

Reads go straight into the frame reader's buffer; the requests of one read are handled on the spot,
one after the other, and their replies leave in one write, without a copy of record bytes where
the loop can do it (uvloop, and asyncio from Python 3.12).

Three things stop the handling of requests, and each is undone by a call from outside:

    awaited     a request is not answered yet           ``_answer``
    congested   too many bytes are not taken yet        ``resume_writing``
    turn over   so many requests in a row, others wait  ``_next_turn``, which is scheduled

While one holds, the client may still send a little (``read_ahead_bytes_max``); then reading stops
and TCP tells it to wait. So memory per client is bounded, whatever it sends or does not take.

One exception: while a request waits whose handler returned true, requests of the same API that are
behind it are handled as well, up to ``requests_unanswered_max``. Their answers wait for their turn.
(A produce that is appended waits for followers; what its producer sent behind it would only wait
for the answer, and then for followers of its own.)

``_answer`` never handles the next request itself, it schedules that: replies are given from
inside the handlers of other connections (a produce answers a waiting fetch), and handlers inside
handlers have no bound.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, cast

from odradek.core.errors import ApiError, CorruptionError, ErrorCode
from odradek.net.gate import Gate
from odradek.net.hub import Hub
from odradek.net.settings import ConnectionInfo, EventKind
from odradek.net.tls import principal_of
from odradek.protocol.framing import FrameReader, open_request
from odradek.protocol.message import Buffer

_SIZE_BYTES: Final = 4
_NO_API: Final = -1
_REFUSALS: Final = (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.BROKER_NOT_AVAILABLE)
_QUIET_MS: Final = 10_000
"""After this long without a request the receive buffer is given back, and after this long without
a large one most of a large buffer."""


class Connection(asyncio.BufferedProtocol):
    """The protocol object of one connection."""

    __slots__ = (
        "_closing",
        "_congested",
        "_doom",
        "_draining",
        "_early",
        "_first",
        "_fitted_ms",
        "_frame_since_ms",
        "_gate",
        "_heard_ms",
        "_hub",
        "_joins_writes",
        "_name_of",
        "_out",
        "_out_bytes",
        "_overlapped",
        "_paused",
        "_reader",
        "_scheduled",
        "_serial",
        "_space",
        "_stall_since_ms",
        "_stopping",
        "_taken",
        "_transport",
        "_unread",
        "_written",
        "info",
        "is_made",
    )

    def __init__(
        self,
        hub: Hub,
        info: ConnectionInfo,
        gate: Gate | None = None,
        name_of: Callable[[str], str] | None = None,
    ) -> None:
        self.info = info
        self._hub = hub
        self._gate = gate
        self._name_of = name_of
        self._transport: asyncio.Transport | None = None
        self.is_made = False  # it has, or had, a transport: a TLS handshake comes before

        self._reader: FrameReader | None = None  # comes with the first byte: idlers cost nothing
        self._space = memoryview(b"")  # what was last given to the transport to read into
        self._unread = 0  # bytes received and not handed to the handler
        self._serial = 0  # of the latest request
        self._first = 1  # the serial of the first request that is not answered, or will be next
        self._early: dict[int, list[Buffer] | None] = {}  # answers that wait for those before them
        self._overlapped = _NO_API  # the API of which more may be handled while requests wait
        self._doom: Exception | None = None  # what ends it when those before are answered
        self._draining = False  # requests are being handled, further up the stack
        self._scheduled = False  # the next turn is
        self._paused = False  # reading is

        self._out: list[Buffer] = []
        self._out_bytes = 0
        self._congested = False
        # Each TLS write is a record of its own with a header and a checksum, so one large write;
        # encryption copies anyway.
        self._joins_writes = info.security_protocol.endswith("SSL")

        self._stopping = False
        self._closing = False  # nothing is handled and nothing more is written
        self._heard_ms = self._frame_since_ms = self._stall_since_ms = hub.now_ms
        self._fitted_ms = hub.now_ms
        self._written = 0  # bytes given to the transport
        self._taken = 0  # of these, what had left it when the sweep last looked

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.is_made = True
        high = self._hub.limits.write_buffer_bytes_max
        self._transport.set_write_buffer_limits(high=high, low=high // 4)
        self._heard_ms = self._hub.now_ms
        self._hub.emit(EventKind.OPENED, self.info)
        if self.info.security_protocol == "SSL":
            self._identify(transport)
        if self._stopping:
            self._settle()

    def _identify(self, transport: asyncio.BaseTransport) -> None:
        """Take the peer's name from its certificate, before its first request."""
        try:
            self.info.principal = principal_of(transport, self._name_of)
        except CorruptionError as error:  # it must not pass as somebody without a certificate
            self._begin_close(EventKind.REJECTED, f"client certificate: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._closing:
            self._begin_close(EventKind.CLOSED, "by the peer" if exc is None else f"lost: {exc}")
        self._transport = None
        self._reader = None
        self._space = memoryview(b"")
        self._hub.release(self)

    def eof_received(self) -> None:
        """Let the transport close: Kafka too hangs up on a peer that will send no more."""

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        reader = self._reader
        if reader is None:
            reader = self._reader = FrameReader(self._frame_bytes_max)
        self._space = space = reader.writable()
        return space

    def buffer_updated(self, nbytes: int) -> None:
        if self._closing:
            return  # TLS hands over what it still has while it says goodbye
        hub = self._hub
        assert self._reader is not None
        self._reader.wrote(nbytes)
        if not self._unread:
            self._frame_since_ms = hub.now_ms
        self._unread += nbytes
        hub.counters.bytes_in += nbytes
        self._heard_ms = hub.now_ms
        is_awaited = self._first <= self._serial
        if self._congested or self._scheduled or (is_awaited and not self._may_go_on(_NO_API)):
            self._regulate_reading()
        else:
            self._drain()

    def pause_writing(self) -> None:
        self._congested = True
        self._regulate_reading()

    def resume_writing(self) -> None:
        self._congested = False
        if self._unread:
            self._schedule_turn()
        self._regulate_reading()

    # Requests and replies.

    @property
    def _is_awaited(self) -> bool:
        """Whether a request is not answered."""
        return self._first <= self._serial

    def _may_go_on(self, key: int) -> bool:
        """Whether a request of an API may be handled now; ``_NO_API``: one that has not come."""
        unanswered = self._serial - self._first + 1
        if not unanswered:
            return True
        overlapped = self._overlapped
        return (
            overlapped != _NO_API
            and key in (overlapped, _NO_API)
            and unanswered < self._hub.limits.requests_unanswered_max
        )

    def _drain(self) -> None:
        """Hand requests to the handler until it keeps us waiting or no whole one is left."""
        hub = self._hub
        reader = self._reader
        assert reader is not None
        out_bytes_max = hub.limits.write_buffer_bytes_max
        last_of_turn = self._serial + hub.limits.requests_per_turn_max
        is_handled = False
        self._draining = True
        try:
            while self._unread and not (self._congested or self._closing or self._stopping):
                if self._first <= self._serial and not self._may_go_on(reader.next_key()):
                    break
                frame = reader.next_frame()
                if frame is None:
                    break
                self._unread -= _SIZE_BYTES + len(frame)
                self._frame_since_ms = hub.now_ms
                if self._gate is not None and not self._pass_gate(self._gate, frame):
                    continue
                request = open_request(frame)
                self._serial = serial = self._serial + 1
                is_handled = True
                is_overlapped = hub.handler(request, self.info, partial(self._answer, serial))
                if self._first <= serial and serial not in self._early:
                    self._overlapped = request.api.key if is_overlapped else _NO_API
                is_handled = False
                # A small request can ask for a large response: a read full of them must not
                # pile up responses, so each is offered to the socket before the next is made.
                if self._out_bytes >= out_bytes_max:
                    self._flush()
                if serial >= last_of_turn:
                    self._schedule_turn()
                    break
        except Exception as error:
            if self._is_awaited and not is_handled:
                self._serial += 1  # it has its turn as well
            self._doom = error
            self._overlapped = _NO_API  # nothing behind it is handled
        finally:
            self._draining = False
        if self._doom is not None:
            self._meet_doom()
        self._flush()
        self._settle()

    @property
    def _frame_bytes_max(self) -> int:
        least = None if self._gate is None else self._gate.frame_bytes_max
        return self._hub.limits.frame_bytes_max if least is None else least

    def _pass_gate(self, gate: Gate, frame: memoryview) -> bool:
        """Show a frame to the gate; return whether it is for the handler."""
        verdict = gate.judge(frame)
        if verdict is None:
            return True
        self._serial = serial = self._serial + 1
        if verdict.refusal is None:
            assert self._reader is not None
            self._reader.frame_bytes_max = self._frame_bytes_max
            self._answer(serial, verdict.reply)
        else:
            # It counts as a request that waits for its answer, so nothing behind it is handled.
            self._overlapped = _NO_API
            end = partial(self._turn_away, serial, verdict.reply, verdict.refusal)
            self._hub.call_later(verdict.delay_ms / 1000, end)
        return False

    def _turn_away(self, serial: int, reply: list[Buffer] | None, refusal: str) -> None:
        if not self._closing:
            self._answer(serial, reply)
            self._flush()
            self._begin_close(EventKind.REJECTED, refusal)

    def _answer(self, serial: int, parts: list[Buffer] | None) -> None:
        if self._closing:
            return
        early = self._early
        if serial != self._first:
            is_answered = serial < self._first or serial in early
            assert not is_answered, f"request {serial} of this connection was answered before"
            early[serial] = parts
            return
        self._put_out(parts)
        while early and self._first in early:
            self._put_out(early.pop(self._first))
        if self._draining:
            return
        if self._doom is not None:
            self._meet_doom()
        if self._is_awaited:
            # The answers to those behind it are likely to come in this turn of the loop.
            self._schedule_turn()
            return
        self._flush()
        if self._unread:
            self._schedule_turn()
        self._settle()

    def _meet_doom(self) -> None:
        """End if a request has failed and all before it are answered."""
        doom = self._doom
        if doom is not None and self._first >= self._serial:
            self._doom = None  # its traceback leads back here
            self._fail(doom)

    def _put_out(self, parts: list[Buffer] | None) -> None:
        """Take the answer of the first request that has none."""
        self._first += 1
        self._hub.counters.requests += 1
        if parts is not None:
            # Empty parts out: asyncio's writelines of 3.12 would try to send them for ever.
            self._out.extend(filter(None, parts))
            self._out_bytes += len(parts[0]) if len(parts) == 1 else sum(map(len, parts))

    def _flush(self) -> None:
        out = self._out
        if not out or self._transport is None:
            return
        self._out = []
        self._hub.counters.bytes_out += self._out_bytes
        self._written += self._out_bytes
        self._out_bytes = 0
        if len(out) == 1:
            self._transport.write(out[0])
        elif self._joins_writes:
            self._transport.write(b"".join(out))
        else:
            self._transport.writelines(out)

    def _schedule_turn(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._hub.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._scheduled = False
        if not self._closing:
            self._drain()

    def _settle(self) -> None:
        if self._stopping and not self._is_awaited:
            self._begin_close(EventKind.CLOSED, "the server stops")
        else:
            self._regulate_reading()

    def _regulate_reading(self) -> None:
        """Pause or resume reading, as the state asks for."""
        pause = self._congested or self._stopping
        if not pause and self._unread >= self._hub.limits.read_ahead_bytes_max:
            reader = self._reader
            key = _NO_API if reader is None else reader.next_key()
            pause = self._scheduled or not self._may_go_on(key)
        if pause == self._paused or self._closing or self._transport is None:
            return
        self._paused = pause
        if pause:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()
            self._frame_since_ms = self._hub.now_ms  # the wait was ours

    # Ends.

    def fail(self, error: Exception) -> None:
        """End as after a handler that raised, for one that fails later."""
        if self._transport is not None:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._flush()  # earlier requests were answered in good faith
        is_refusal = isinstance(error, ApiError) and error.code in _REFUSALS
        if isinstance(error, CorruptionError) or is_refusal:
            # Without the error: its traceback holds the receive buffer of a hostile peer for as
            # long as a log keeps it, and says nothing that the message does not.
            self._begin_close(EventKind.REJECTED, f"{error}{self._hint()}")
        else:
            self._begin_close(EventKind.FAILED, f"{type(error).__name__}: {error}", error)

    def _hint(self) -> str:
        """Say what the peer seems to be, if its first bytes are well known."""
        if self._serial:
            return ""
        start = bytes(self._space[:4])
        if start[:2] == b"\x16\x03":
            return " (a TLS client? this listener is plaintext)"
        if start in (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"CONN", b"PRI "):
            return " (an HTTP client?)"
        return ""

    def _begin_close(self, kind: EventKind, detail: str, error: Exception | None = None) -> None:
        if self._closing:
            return
        self._closing = True
        self._first = self._serial + 1
        self._early.clear()
        self._out.clear()
        self._stall_since_ms = self._hub.now_ms
        self._hub.emit(kind, self.info, detail, error)
        if self._transport is not None:
            self._transport.close()  # sends what was written before; the sweep sees to the end

    def stop(self) -> None:
        """Close as soon as the pending request, if there is one, is answered."""
        self._stopping = True
        if self.is_made:
            self._settle()

    def abort(self, detail: str) -> None:
        """Close now; what is not sent is lost."""
        if self._transport is not None:
            self._begin_close(EventKind.CLOSED, detail)
            self._transport.abort()

    # Deadlines.

    def check_deadlines(self) -> None:
        """End the connection if it is past one of its deadlines; called by the sweep."""
        if self._transport is None:
            return
        limits, now_ms = self._hub.limits, self._hub.now_ms
        if self._closing:
            if self._is_past(self._stall_since_ms, limits.close_ms_max):
                self._transport.abort()
            return
        unsent = self._transport.get_write_buffer_size()
        if unsent:
            self._check_stall(unsent)
        elif self._is_awaited or self._scheduled:
            self._heard_ms = self._frame_since_ms = now_ms  # it is we who let it wait
        elif self._unread:
            if self._is_past(self._frame_since_ms, limits.request_read_ms_max):
                self._begin_close(EventKind.EXPIRED, f"{self._unread} bytes of a request, no more")
        elif self._is_past(self._heard_ms, limits.idle_ms_max):
            self._begin_close(EventKind.EXPIRED, f"idle for {limits.idle_ms_max} ms")
        elif self._is_past(self._heard_ms, _QUIET_MS):
            self._reader = None
            self._space = memoryview(b"")
        elif self._reader is not None and self._is_past(self._fitted_ms, _QUIET_MS):
            self._fitted_ms = now_ms
            self._reader.fit()
            self._space = memoryview(b"")

    def _check_stall(self, unsent: int) -> None:
        hub = self._hub
        taken = self._written - unsent
        if taken != self._taken:
            self._taken = taken
            self._stall_since_ms = self._heard_ms = self._frame_since_ms = hub.now_ms
        elif self._is_past(self._stall_since_ms, hub.limits.write_stall_ms_max):
            self._begin_close(EventKind.EXPIRED, f"{unsent} bytes not taken by the peer")
            assert self._transport is not None
            self._transport.abort()  # it takes none: waiting for a polite end is in vain

    def _is_past(self, since_ms: float, limit_ms: float) -> bool:
        return self._hub.now_ms - since_ms >= limit_ms + self._hub.sweep_ms
