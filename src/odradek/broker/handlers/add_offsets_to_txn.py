"""AddOffsetsToTxn (key 25), versions 0-4: make a group's offsets part of a transaction.

v2  PRODUCER_FENCED.  v3  flexible.  v4  TRANSACTION_ABORTABLE.
"""

from typing import Final

from odradek.broker.context import PENDING, Answer, RequestContext
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)

VERSION_FENCED: Final = 2


def handle(context: RequestContext, request: AddOffsetsToTxnRequest) -> Answer:
    def added(errors: dict[TopicPartition, ErrorCode]) -> None:
        (code,) = errors.values()
        if code is ErrorCode.PRODUCER_FENCED and context.version < VERSION_FENCED:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        context.reply(AddOffsetsToTxnResponse(error_code=code))

    def ready(code: ErrorCode, _message: str | None) -> None:
        if code:
            context.reply(AddOffsetsToTxnResponse(error_code=code))
            return
        context.broker.transactions.add_or_verify(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            [context.broker.groups.partition_for(request.group_id)],
            added,
            is_add=True,
            version=0,
        )

    context.broker.internal_topics.ensure(context.broker.groups.topic, ready)
    return PENDING
