"""What a coordinator's shard has said, kept until everything that it rests on is committed.

An answer may rest on anything the shard has replayed, also on what others had it write: it waits
for the end of the log as it is when the answer is made, with records of its own or without.

What is not committed in time is refused with REQUEST_TIMED_OUT. The records stay: they may be
committed later, and the shard goes on from them.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from odradek.broker.partition import Partition
from odradek.core.errors import ErrorCode

HELD_MAX: Final = 100_000
"""Answers that one shard may hold back; further ones are refused as timed out."""
NONE_DUE: Final = 1 << 62


class _Held(NamedTuple):
    offset: int
    deadline_ms: int
    send: Callable[[], None]
    refuse: Callable[[ErrorCode], None]


class CoordinatorOutbox:
    def __init__(self, partition: Partition, on_committed: Callable[[], None]) -> None:
        """``on_committed`` is called when more is committed than there was, after the sending."""
        self._partition = partition
        self._on_committed = on_committed
        self._held: deque[_Held] = deque()
        self._is_sending = False
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._held)

    def put(
        self, deadline_ms: int, send: Callable[[], None], refuse: Callable[[ErrorCode], None]
    ) -> None:
        """Call ``send`` when all that is written now is committed, or else ``refuse``."""
        if self.is_settled:
            send()
        elif len(self._held) >= HELD_MAX:
            refuse(ErrorCode.REQUEST_TIMED_OUT)
        else:
            end_offset = self._partition.log.log_end_offset
            self._held.append(_Held(end_offset, deadline_ms, send, refuse))
            self.watch()

    @property
    def is_settled(self) -> bool:
        """Whether all that the shard has written is committed, and all that it said is sent."""
        log = self._partition.log
        return not self._held and log.high_watermark >= log.log_end_offset

    def pause(self) -> None:
        """Send nothing until ``resume``: records are being written, and not replayed yet."""
        self._partition.on_advanced = None

    def resume(self) -> None:
        """Send what was committed meanwhile, and go on."""
        if self.is_settled:
            return  # nothing to send or to watch: as nearly always without followers
        if self._held and self._held[0].offset <= self._partition.log.high_watermark:
            self._on_advanced()
        else:
            self.watch()

    def watch(self) -> None:
        """Have the partition call when its watermark moves, if that has not reached everything.

        To be called after the shard has written. While all is committed nothing is called.
        """
        if self._is_closed:
            return  # another may be there for the partition's next shard
        self._partition.on_advanced = None if self.is_settled else self._on_advanced

    def _on_advanced(self) -> None:
        self._send_committed()
        self._on_committed()
        self.watch()

    def _send_committed(self) -> None:
        if self._is_sending:
            return  # further up, in order
        self._is_sending = True
        try:
            while self._held and self._held[0].offset <= self._partition.log.high_watermark:
                self._held.popleft().send()
        finally:
            self._is_sending = False

    def next_deadline_ms(self) -> int:
        return self._held[0].deadline_ms if self._held else NONE_DUE

    def expire(self, now_ms: int) -> None:
        """Refuse what should have been committed by now; deadlines are in the order of offsets."""
        while self._held and self._held[0].deadline_ms <= now_ms:
            self._held.popleft().refuse(ErrorCode.REQUEST_TIMED_OUT)

    def close(self, code: ErrorCode) -> None:
        """Refuse all that is held; the shard is given up."""
        self._is_closed = True
        self._partition.on_advanced = None
        while self._held:
            self._held.popleft().refuse(code)
