"""InitProducerId (key 22), versions 0-5: get a producer id, without a transactional id.

v2  flexible.  v3  a producer may ask for the next epoch of the id it has; it gets a new id.

Not implemented: transactional ids (refused with COORDINATOR_NOT_AVAILABLE).
"""

from odradek.broker.context import PENDING, Answer, RequestContext
from odradek.core.errors import ErrorCode
from odradek.protocol.generated.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)


def handle(context: RequestContext, request: InitProducerIdRequest) -> Answer:
    if request.transactional_id is not None:
        return InitProducerIdResponse(
            error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, producer_id=-1, producer_epoch=-1
        )
    context.node.producer_ids.next(
        lambda producer_id: context.reply(
            InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
        )
    )
    return PENDING
