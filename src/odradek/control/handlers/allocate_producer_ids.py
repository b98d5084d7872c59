"""AllocateProducerIds (key 67), version 0: a broker gets a block of producer ids.

A block is never given twice: a broker whose answer is lost gets another.
"""

from odradek.control.context import ControlContext
from odradek.protocol.generated.allocate_producer_ids import AllocateProducerIdsRequest


def handle(context: ControlContext, request: AllocateProducerIdsRequest) -> None:
    context.change(lambda controller: controller.allocate_producer_ids(request))
