"""ListTransactions (key 66), versions 0-2: the transactions that this broker coordinates.

v1  filter by how long it has run.  v2  filter by a pattern for the transactional id.
"""

from odradek.broker.context import Answer, RequestContext
from odradek.core.errors import ApiError
from odradek.protocol.generated.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)


def handle(context: RequestContext, request: ListTransactionsRequest) -> Answer:
    # Imported with the first request: a node that has no transactions needs none of it.
    from odradek.coordinator.transaction.listing import TransactionFilter

    now = context.node.transactions.now()
    try:
        wanted = TransactionFilter.from_request(request)
        states = [
            state
            for shard in context.node.transactions.shards()
            for state in shard.list_transactions(wanted, now)
        ]
    except ApiError as error:
        return ListTransactionsResponse(error_code=error.code)
    return ListTransactionsResponse(
        transaction_states=states, unknown_state_filters=list(wanted.unknown_states)
    )
