"""Producer ids for clients, out of blocks that the controller hands out.

A block is written into the metadata log before the first id of it is used, so no id is ever given
twice; what is left of a block when a node stops is lost, and there are plenty.
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from odradek.core.errors import ApiError, ErrorCode
from odradek.protocol.generated.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from odradek.protocol.message import Message

if TYPE_CHECKING:
    from odradek.broker.broker_server import BrokerServer


class _Waiting(NamedTuple):
    then: Callable[[int], None]
    failed: Callable[[ErrorCode], None]


class ProducerIds:
    def __init__(self, broker: "BrokerServer") -> None:
        self._broker = broker
        self._next = self._end = 0
        self._waiting: deque[_Waiting] = deque()

    def next(self, then: Callable[[int], None], failed: Callable[[ErrorCode], None]) -> None:
        """Call ``then`` with a new id, now or when there is a new block.

        ``failed`` is called if the controller gives no block: with what Kafka says then, so that
        producers try again.
        """
        if self._next < self._end:
            self._next += 1
            then(self._next - 1)
            return
        self._waiting.append(_Waiting(then, failed))
        if len(self._waiting) == 1:
            request = AllocateProducerIdsRequest(
                broker_id=self._broker.node_id, broker_epoch=self._broker.broker_epoch
            )
            self._broker.controller.ask(request, self._on_block, self._on_failed)

    def _on_block(self, reply: Message) -> None:
        assert isinstance(reply, AllocateProducerIdsResponse)
        if reply.error_code:
            self._on_failed(ApiError(ErrorCode(reply.error_code)))
            return
        self._next = reply.producer_id_start
        self._end = self._next + reply.producer_id_len
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            self.next(each.then, each.failed)

    def _on_failed(self, _error: ApiError) -> None:
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            each.failed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
