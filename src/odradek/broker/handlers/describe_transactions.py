"""DescribeTransactions (key 65), version 0: the state of transactional ids (KIP-664)."""

from odradek.broker.context import PENDING, Answer, RequestContext
from odradek.core.errors import ErrorCode
from odradek.protocol.generated.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)


def handle(context: RequestContext, request: DescribeTransactionsRequest) -> Answer:
    def described(states: list[TransactionState]) -> None:
        context.reply(DescribeTransactionsResponse(transaction_states=states))

    context.broker.transactions.read_each(
        request.transactional_ids,
        str,
        lambda shard, transactional_id: shard.describe(transactional_id),
        _refused,
        described,
    )
    return PENDING


def _refused(transactional_id: str, code: ErrorCode) -> TransactionState:
    return TransactionState(transactional_id=transactional_id, error_code=code)
