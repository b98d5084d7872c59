"""Producer ids for clients, out of blocks that the controller hands out.

A block is written into the metadata log before the first id of it is used, so no id is ever given
twice; what is left of a block when a node stops is lost, and there are plenty.
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.protocol.generated.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

if TYPE_CHECKING:
    from odradek.broker.node import Node


class ProducerIds:
    def __init__(self, node: "Node") -> None:
        self._node = node
        self._next = self._end = 0
        self._waiting: deque[Callable[[int], None]] = deque()

    def next(self, then: Callable[[int], None]) -> None:
        """Call ``then`` with a new id, now or when there is a new block."""
        if self._next < self._end:
            self._next += 1
            then(self._next - 1)
            return
        self._waiting.append(then)
        if len(self._waiting) == 1:
            self._ask_for_block()

    def _ask_for_block(self) -> None:
        request = AllocateProducerIdsRequest(
            broker_id=self._node.node_id, broker_epoch=self._node.broker_epoch
        )
        self._node.change(
            lambda controller: controller.allocate_producer_ids(request), self._on_block
        )

    def _on_block(self, reply: AllocateProducerIdsResponse) -> None:
        self._next = reply.producer_id_start
        self._end = self._next + reply.producer_id_len
        waiting, self._waiting = self._waiting, deque()
        for then in waiting:
            self.next(then)
