"""EndTxn (key 26), versions 0-5: commit or abort a transaction.

v2  PRODUCER_FENCED.  v3  flexible.  v4  TRANSACTION_ABORTABLE.  v5  answers with the epoch of the
next transaction (KIP-890).
"""

from odradek.broker.context import PENDING, Answer, RequestContext
from odradek.protocol.generated.end_txn import EndTxnRequest, EndTxnResponse


def handle(context: RequestContext, request: EndTxnRequest) -> Answer:
    transactions = context.broker.transactions

    def end(new_producer_id: int | None) -> None:
        transactions.write(
            context,
            request.transactional_id,
            lambda shard, caller, now: shard.end(request, caller, now, new_producer_id),
            lambda code: EndTxnResponse(error_code=code),
        )

    transactions.with_producer_id(
        request.transactional_id,
        lambda shard: shard.end_needs_producer_id(request, context.version),
        end,
        lambda code: context.reply(EndTxnResponse(error_code=code)),
    )
    return PENDING
