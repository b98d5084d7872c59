"""DescribeTransactions (key 65), version 0: the state of transactional ids (KIP-664)."""

from odradek.broker.context import Answer, RequestContext
from odradek.core.errors import ApiError
from odradek.protocol.generated.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)


def handle(context: RequestContext, request: DescribeTransactionsRequest) -> Answer:
    states = [_describe(context, each) for each in request.transactional_ids]
    return DescribeTransactionsResponse(transaction_states=states)


def _describe(context: RequestContext, transactional_id: str) -> TransactionState:
    try:
        return context.node.transactions.shard_for(transactional_id).describe(transactional_id)
    except ApiError as error:
        return TransactionState(transactional_id=transactional_id, error_code=error.code)
