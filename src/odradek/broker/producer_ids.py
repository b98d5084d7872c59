"""Producer ids for clients, out of blocks that the controller hands out.

A block is committed to the metadata log before it is answered, so no id is ever given twice: what
is left of a block when a broker stops is lost, and so is a block whose answer is lost. There are
plenty.

The next block is asked for when nine tenths of the current one are used, so that clients hardly
ever wait. One request is under way. What the controller refuses, or what makes no sense, is asked
again after a moment, in the words of that time: a broker that has just registered may still have
said its old epoch (STALE_BROKER_EPOCH).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from odradek.broker.controller_port import ControllerPort
from odradek.core.errors import ApiError, ErrorCode
from odradek.protocol.generated.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from odradek.protocol.message import Message

if TYPE_CHECKING:
    from odradek.broker.broker_server import BrokerServer

PREFETCH_AT: Final = 0.9
"""The part of a block after which the next one is asked for."""
RETRY_MS: Final = 50
WAITING_MAX: Final = 10_000
"""Clients that may wait for a block; further ones are refused."""
PRODUCER_ID_MAX: Final = 2**63 - 1
_log: Final = logging.getLogger("odradek.transactions")


class _Waiting(NamedTuple):
    then: Callable[[int], None]
    failed: Callable[[ErrorCode], None]


class ProducerIds:
    def __init__(self, broker: "BrokerServer") -> None:
        self._broker = broker
        self._next = self._end = 0
        self._prefetch_at = 0
        self._block: range | None = None
        """The next block, while there is some of the current one."""
        self._highest = -1
        """Of all ids that were handed to this broker."""
        self._waiting: deque[_Waiting] = deque()
        self._is_asking = False
        self._retry: asyncio.TimerHandle | None = None

    def next(self, then: Callable[[int], None], failed: Callable[[ErrorCode], None]) -> None:
        """Call ``then`` with a new id, now or when there is a new block.

        ``failed`` is called if the controller gives no block: with what Kafka says then, so that
        producers try again.
        """
        if self._next == self._end and self._block is not None:
            self._begin(self._block)
        if self._next < self._end:
            producer_id = self._next
            self._next += 1
            if producer_id >= self._prefetch_at:
                self._ask()
            then(producer_id)
        elif len(self._waiting) >= WAITING_MAX:
            failed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        else:
            self._waiting.append(_Waiting(then, failed))
            self._ask()

    def close(self) -> None:
        """Ask no more."""
        self._is_asking = True
        if self._retry is not None:
            self._retry.cancel()

    def _begin(self, block: range) -> None:
        self._block = None
        self._next, self._end = block.start, block.stop
        self._prefetch_at = block.start + int(len(block) * PREFETCH_AT)

    def _ask(self) -> None:
        if self._is_asking or self._retry is not None or self._block is not None:
            return
        self._is_asking = True
        request = AllocateProducerIdsRequest(
            broker_id=self._broker.node_id, broker_epoch=self._broker.broker_epoch
        )
        controller: ControllerPort = self._broker.controller
        controller.ask(request, self._on_answer, self._on_failed)

    def _on_answer(self, answer: Message) -> None:
        assert isinstance(answer, AllocateProducerIdsResponse)
        self._is_asking = False
        start, end = answer.producer_id_start, answer.producer_id_start + answer.producer_id_len
        if answer.error_code:
            self._refuse(f"error {answer.error_code}")
        elif not self._highest < start < end <= PRODUCER_ID_MAX:
            # Better none than ids that another producer may have.
            self._refuse(f"ids from {start} to {end - 1}, after {self._highest}")
        else:
            self._highest = end - 1
            self._block = range(start, end)
            self._serve()

    def _on_failed(self, error: ApiError) -> None:
        self._is_asking = False
        self._refuse(str(error))

    def _serve(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            self.next(each.then, each.failed)

    def _refuse(self, why: str) -> None:
        _log.warning("no block of producer ids: %s", why)
        self._retry = asyncio.get_running_loop().call_later(RETRY_MS / 1000, self._on_retry)
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            each.failed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def _on_retry(self) -> None:
        """Let the next client that needs it ask again."""
        self._retry = None
        if self._waiting:
            self._ask()
