"""ListTransactions (key 66), versions 0-2: the transactions that this broker coordinates.

v1  filter by how long it has run.  v2  filter by a pattern for the transactional id.
"""

from odradek.broker.context import PENDING, Answer, RequestContext
from odradek.core.errors import ApiError, ErrorCode
from odradek.protocol.generated.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)


def handle(context: RequestContext, request: ListTransactionsRequest) -> Answer:
    # Imported with the first request: a node that has no transactions needs none of it.
    from odradek.coordinator.transaction.listing import TransactionFilter

    now = context.broker.transactions.now()
    try:
        wanted = TransactionFilter.from_request(request)
    except ApiError as error:
        return ListTransactionsResponse(error_code=error.code)

    def listed(states: list[TransactionState]) -> None:
        response = ListTransactionsResponse(
            transaction_states=states, unknown_state_filters=list(wanted.unknown_states)
        )
        context.reply(response)

    def failed(code: ErrorCode) -> None:
        context.reply(ListTransactionsResponse(error_code=code))

    context.broker.transactions.read_all(
        lambda shard: shard.list_transactions(wanted, now), listed, failed
    )
    return PENDING
