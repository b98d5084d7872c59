"""Where produced batches are opened: small ones at once, the others on a thread.

Unpacking is work that a peer can make of a few bytes. One turn of the loop unpacks no more than
``UNPACKED_PER_TURN_BYTES_MAX``, for all connections together. What is beyond that, and all that is
packed anew, is validated on a thread: the codecs and the walk through the records hold no GIL.
There is one thread, so one batch at a time is open there, of no more than ``unpacked_bytes_max``
bytes: that is the limit on memory for all together. Requests queue. Each has one batch in the
queue at a time, so that one with a thousand of them keeps others waiting for one.

Order: a connection has one request under way, so what one producer sends stays in order. Requests
of different connections to one partition are appended in the order in which they were opened.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from odradek.core.errors import ApiError, ErrorCode
from odradek.quorum.node_ports import Workers
from odradek.records.compression import Room
from odradek.storage.config import LogConfig
from odradek.storage.producer_state import AppendOrigin
from odradek.storage.validation import ValidBatch, validate

UNPACKED_PER_TURN_BYTES_MAX: Final = 2 * 1024 * 1024
"""Some 10 ms of gzip, the slowest codec; the usual batch has a hundredth of it."""

Opened = ValidBatch | ApiError
"""What became of a batch."""


class TurnBudget:
    """Bytes that this turn of the loop may still unpack."""

    __slots__ = ("_is_refill_due", "left", "room")

    def __init__(self) -> None:
        self.left = UNPACKED_PER_TURN_BYTES_MAX
        self.room = Room()
        self._is_refill_due = False

    def spend(self, count: int) -> None:
        self.left -= count
        if not self._is_refill_due:
            self._is_refill_due = True
            asyncio.get_running_loop().call_soon(self._refill)

    def _refill(self) -> None:
        self._is_refill_due = False
        self.left = UNPACKED_PER_TURN_BYTES_MAX


class ClosedBatch:
    """A produced batch that waits to be opened."""

    __slots__ = ("config", "now_ms", "opened", "records")

    def __init__(self, records: bytearray, config: LogConfig, now_ms: int) -> None:
        self.records = records
        self.config = config
        self.now_ms = now_ms
        self.opened: Opened | None = None

    def open(self) -> None:
        """Validate it; run on a thread."""
        try:
            self.opened = validate(self.records, self.config, AppendOrigin.CLIENT, self.now_ms)
        except ApiError as refusal:
            # Its traceback, and that of its cause, hold all that was unpacked.
            refusal.__cause__ = refusal.__context__ = None
            self.opened = refusal.with_traceback(None)


class Opening:
    def __init__(self, worker: Workers) -> None:
        self.budget = TurnBudget()
        self._worker = worker
        self.is_stopping = False

    def open_all(self, batches: Sequence[ClosedBatch], then: Callable[[], None]) -> None:
        """Open the batches one after the other, then call ``then`` on the loop.

        It is not called when the node stops before: nothing was appended, no client is there.
        """
        waiting = iter(batches)

        def open_next() -> None:
            if self.is_stopping:
                return
            batch = next(waiting, None)
            if batch is None:
                then()
                return

            def done(error: BaseException | None) -> None:
                if error is not None:  # out of memory, or a fault of ours
                    batch.opened = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, repr(error))
                open_next()

            self._worker.run(batch.open, done)

        open_next()

    async def stop(self) -> None:
        """Wait for the batch that is being opened; leave the others."""
        self.is_stopping = True
        await self._worker.stop()
