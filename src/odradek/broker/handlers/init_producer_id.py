"""InitProducerId (key 22), versions 0-6: get a producer id and epoch, and fence older producers.

v2  flexible.  v3  a producer may ask for the next epoch of the id it has.  v4  PRODUCER_FENCED.
v6  two-phase commit (KIP-939); unstable, so spoken only where ``unstable.api.versions.enable`` is
set, as in Kafka, or ``transaction.two.phase.commit.enable``.

Without a transactional id a producer gets a new id each time.
"""

from odradek.broker.context import PENDING, Answer, RequestContext
from odradek.core.errors import ErrorCode
from odradek.protocol.generated.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)


def handle(context: RequestContext, request: InitProducerIdRequest) -> Answer:
    def refused(code: ErrorCode) -> InitProducerIdResponse:
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)

    if request.transactional_id is None:
        context.broker.producer_ids.next(
            lambda producer_id: context.reply(
                InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
            ),
            lambda code: context.reply(refused(code)),
        )
        return PENDING

    transactional_id = request.transactional_id
    transactions = context.broker.transactions

    def init(new_producer_id: int | None) -> None:
        transactions.write(
            context,
            transactional_id,
            lambda shard, caller, now: shard.init_producer_id(
                request, caller, now, new_producer_id
            ),
            refused,
        )

    transactions.with_producer_id(
        transactional_id,
        lambda shard: shard.needs_producer_id(request),
        init,
        lambda code: context.reply(refused(code)),
    )
    return PENDING
