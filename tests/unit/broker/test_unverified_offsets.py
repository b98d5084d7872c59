"""What a client hears when the coordinator of its transaction cannot say yes to its offsets."""

import pytest

from odradek.broker.transaction_verification import Errors
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from tests.transaction_requests import GROUP_KEY, TransactionalProducer, find_coordinator
from tests.unit.broker.held_commits import GROUP_TOPIC
from tests.unit.broker.transaction_broker import offsets, running

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
NOT_AVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE
NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE
INVALID_STATE = ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize(
    ("version", "code", "expected"),
    [
        # No new lookup of the group's coordinator: it is the transaction's that was not reached.
        (5, ErrorCode.NETWORK_EXCEPTION, LOADING),
        (3, ErrorCode.NETWORK_EXCEPTION, LOADING),
        (1, ErrorCode.NETWORK_EXCEPTION, NOT_AVAILABLE),
        (5, LOADING, LOADING),
        (5, NOT_AVAILABLE, NOT_AVAILABLE),
        (5, NOT_COORDINATOR, NOT_COORDINATOR),
        (5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOT_AVAILABLE),
        (5, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (5, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (4, ABORTABLE, ABORTABLE),
        (3, ABORTABLE, INVALID_STATE),
    ],
)
def test_codes_of_the_transactions_coordinator_in_the_words_of_a_groups(
    version: int, code: ErrorCode, expected: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running() as (broker, connection):
        producer = TransactionalProducer(connection).begin()
        find_coordinator(connection, "g", GROUP_KEY)
        partition = TopicPartition(GROUP_TOPIC, 0)

        def refuse(*arguments: object, **_: object) -> None:
            then = arguments[-1]
            assert callable(then)
            errors: Errors = {partition: code}
            then(errors)

        monkeypatch.setattr(broker.node.broker.transactions, "ask_coordinator", refuse)
        assert producer.commit_offset(3, version=version) is expected
        assert offsets(broker, partition) == (0, 0)
