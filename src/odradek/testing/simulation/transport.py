"""One end of a simulated connection: an asyncio transport, and the kernel's part under it.

Bytes go this way: ``write`` puts them into the buffer of the transport; at most a window of them is
under way or unread at the other end; there they wait for the node's loop to read. A node that is
paused or does not read fills its peer's buffer, as with TCP.

What is under way arrives in the order it was sent, whatever latencies are drawn: an arrival takes
the next thing, not a certain one.
"""

import asyncio
import errno
from collections import deque
from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from odradek.net.network import Address

if TYPE_CHECKING:
    from odradek.testing.simulation.links import Link
    from odradek.testing.simulation.loop import SimLoop
    from odradek.testing.simulation.network import NodeNetwork

WINDOW_BYTES_MAX: Final = 256 * 1024
SEGMENT_BYTES_MAX: Final = 64 * 1024
READ_BYTES_MAX: Final = 256 * 1024
WRITE_BUFFER_BYTES_MAX: Final = 64 * 1024


class Signal(Enum):
    FIN = "fin"
    RST = "rst"


class SimTransport(asyncio.Transport):
    def __init__(self, host: "NodeNetwork", out: "Link", local: Address, peer: Address) -> None:
        super().__init__({"sockname": local, "peername": peer})
        self.local = local
        self.peer = peer
        self.other: SimTransport  # the other end
        self._host = host
        self._loop: SimLoop = host.loop
        self._life = host.life
        self._out = out
        self._protocol: asyncio.BaseProtocol | None = None

        self._unsent = bytearray()
        self._unread_there = 0  # bytes under way, or not known to be read
        self._under_way: deque[bytes | Signal] = deque()
        self._write_bytes_max = WRITE_BUFFER_BYTES_MAX
        self._write_bytes_low = WRITE_BUFFER_BYTES_MAX // 4
        self._is_congested = False  # the protocol was told to pause
        self._wants_fin = False
        self._sent_fin = False

        self._received = bytearray()
        self._read_since_report = 0
        self._got_fin = False
        self._is_reading = True
        self._is_read_scheduled = False

        self._is_closing = False
        self._is_lost = False
        self._error: Exception | None = None
        host.ends[self] = None

    # asyncio's side.

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    def establish(self, protocol: asyncio.BaseProtocol) -> None:
        """Give it its protocol, on the loop; reading begins."""
        self._protocol = protocol
        protocol.connection_made(self)
        if self._is_lost:  # it broke before
            self._loop.call_soon(protocol.connection_lost, self._error)
        self._schedule_read()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing or self._wants_fin or self._loop.is_dead:
            return
        self._unsent += data
        self._pump()
        if len(self._unsent) > self._write_bytes_max and not self._is_congested:
            self._is_congested = True
            self.get_protocol().pause_writing()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self._wants_fin = True
        self._pump()

    def is_reading(self) -> bool:
        return self._is_reading and not self._is_closing

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        self._schedule_read()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = WRITE_BUFFER_BYTES_MAX if low is None else 4 * low
        self._write_bytes_max = high
        self._write_bytes_low = high // 4 if low is None else low

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._write_bytes_low, self._write_bytes_max

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        """Send what was written, then say so; no more is read."""
        if self._is_closing or self._loop.is_dead:
            return
        self._is_closing = self._wants_fin = True
        self._pump()
        if not self._unsent:
            self._loop.call_soon(self._lose, None)

    def abort(self) -> None:
        """Close now; what has not left is lost."""
        if self._is_lost or self._loop.is_dead:
            return
        self._unsent.clear()
        if not self._is_closing:
            self.close()
        else:
            self._pump()
            self._loop.call_soon(self._lose, None)

    def _lose(self, error: Exception | None) -> None:
        if self._is_lost:
            return
        self._is_lost = True
        self._error = error
        self._host.ends.pop(self, None)
        if self._protocol is not None:
            self._protocol.connection_lost(error)

    def _schedule_read(self) -> None:
        is_due = self._received or self._got_fin
        if is_due and self.is_reading() and self._protocol and not self._is_read_scheduled:
            self._is_read_scheduled = True
            self._loop.call_soon(self._read)

    def _read(self) -> None:
        self._is_read_scheduled = False
        if not self.is_reading():
            return
        if self._received:
            self._report_read(self._hand_over())
            self._schedule_read()
        elif self._got_fin:
            self._got_fin = False
            protocol = self.get_protocol()
            assert isinstance(protocol, asyncio.Protocol | asyncio.BufferedProtocol)
            if not protocol.eof_received():
                self.close()

    def _hand_over(self) -> int:
        protocol = self.get_protocol()
        if isinstance(protocol, asyncio.BufferedProtocol):
            space = memoryview(protocol.get_buffer(-1))
            size = min(len(space), len(self._received))
            assert size, "get_buffer gave no space"
            space[:size] = self._received[:size]
            del self._received[:size]
            protocol.buffer_updated(size)
            return size
        assert isinstance(protocol, asyncio.Protocol)
        data = bytes(self._received[:READ_BYTES_MAX])
        del self._received[: len(data)]
        protocol.data_received(data)
        return len(data)

    # The kernel's side.

    def _pump(self) -> None:
        unsent = self._unsent
        while unsent and self._unread_there < WINDOW_BYTES_MAX:
            room = min(WINDOW_BYTES_MAX - self._unread_there, SEGMENT_BYTES_MAX)
            size = self._out.draw_size(min(len(unsent), room))
            self._unread_there += size
            self._send(bytes(unsent[:size]))
            del unsent[:size]
        if self._wants_fin and not unsent and not self._sent_fin:
            self._sent_fin = True
            self._send(Signal.FIN)

    def _send(self, item: bytes | Signal) -> None:
        self._under_way.append(item)
        self._out.carry(len(item) if isinstance(item, bytes) else 0, self._arrive)

    def _arrive(self) -> None:
        self.other._on_arrival(self._under_way.popleft())

    def _on_arrival(self, item: bytes | Signal) -> None:
        host = self._host
        if not host.has_kernel:
            host.missed[self] = None
            return
        if isinstance(item, bytes):
            host.note(f"{self.peer[0]}:{self.peer[1]} sent {len(item)} {crc32(item):08x}")
        else:
            host.note(f"{self.peer[0]}:{self.peer[1]} sent {item.value}")
        if item is Signal.RST:
            self.on_reset()
        elif self._is_lost or self._is_closing or self._life != host.life:
            if item is not Signal.FIN:
                self.send_reset()
        elif item is Signal.FIN:
            self._got_fin = True
            self._schedule_read()
        else:
            self._received += item
            self._schedule_read()

    def send_reset(self) -> None:
        """Say that nobody is here any more."""
        self._send(Signal.RST)

    def on_reset(self) -> None:
        """Break, as when the peer's kernel does not know the connection."""
        if self._is_lost or self._loop.is_dead:
            return
        self._unsent.clear()
        self._is_closing = True
        error = ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
        self._loop.call_soon(self._lose, error)

    def on_process_end(self) -> None:
        """Say goodbye for a process that was killed; its kernel does it."""
        self._unsent.clear()
        self._wants_fin = True
        self._pump()

    def _report_read(self, size: int) -> None:
        self._read_since_report += size
        if self._read_since_report >= WINDOW_BYTES_MAX // 2:
            size, self._read_since_report = self._read_since_report, 0
            self._out.carry(0, self.other._on_report, size)

    def _on_report(self, size: int) -> None:
        self._unread_there -= size
        assert self._unread_there >= 0
        if self._loop.is_dead or self._is_lost:
            return
        self._pump()
        if self._is_closing and not self._unsent:
            self._loop.call_soon(self._lose, None)
        elif self._is_congested and len(self._unsent) <= self._write_bytes_low:
            self._loop.call_soon(self._relieve)

    def _relieve(self) -> None:
        if self._is_congested and not self._is_lost and len(self._unsent) <= self._write_bytes_low:
            self._is_congested = False
            self.get_protocol().resume_writing()
