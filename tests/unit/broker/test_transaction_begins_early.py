"""A producer begins its next transaction while the markers of its last one are still written."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from odradek.broker.broker_server import BrokerServer
from odradek.core.errors import ErrorCode
from odradek.protocol.generated.produce import ProduceResponse
from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection
from tests.transaction_requests import T0, T1, TransactionalProducer
from tests.unit.broker.held_commits import is_answered, wait_until
from tests.unit.broker.transaction_broker import SMALL, running

PRODUCE_VERSION = 12
BACKOFF = "add.partitions.to.txn.retry.backoff.ms"
BACKOFF_MAX = "add.partitions.to.txn.retry.backoff.max.ms"


@contextmanager
def ending(broker: Broker, connection: BrokerConnection) -> Iterator[TransactionalProducer]:
    """Hold back the marker of a transaction that its producer has ended already."""
    producer = TransactionalProducer(connection).begin()
    assert producer.produce(b"first", partition=T1) is ErrorCode.NONE
    with broker.hold_commits("t", 1):
        assert producer.end(commit=True) is ErrorCode.NONE
        yield producer


def count_questions(broker: Broker, patch: pytest.MonkeyPatch) -> list[object]:
    """Return a list that grows with every question to the transaction's coordinator."""
    server: BrokerServer = broker.node.broker
    ask = server.transactions.ask_coordinator
    asked: list[object] = []

    def counted(*arguments: object, **options: object) -> None:
        asked.append(arguments)
        ask(*arguments, **options)  # type: ignore[arg-type]

    patch.setattr(server.transactions, "ask_coordinator", counted)
    return asked


@pytest.mark.parametrize(
    ("backoff_ms", "max_ms", "questions"), [(1, 0, 1), (1, 5, 6), (2, 5, 4), (10, 5, 2)]
)
def test_it_is_asked_for_as_often_as_the_configs_say(
    backoff_ms: int, max_ms: int, questions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running({**SMALL, BACKOFF: str(backoff_ms), BACKOFF_MAX: str(max_ms)}) as (broker, conn):
        asked = count_questions(broker, monkeypatch)
        with ending(broker, conn) as producer:
            asked.clear()
            assert producer.produce(b"next") is ErrorCode.CONCURRENT_TRANSACTIONS
        assert len(asked) == questions


def test_the_write_is_done_as_soon_as_the_last_transaction_is_complete(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with running({**SMALL, BACKOFF: "1", BACKOFF_MAX: "1000000"}) as (broker, connection):
        asked = count_questions(broker, monkeypatch)
        with ending(broker, connection) as producer:
            asked.clear()
            connection.send(producer.produce_request(b"next", partition=T0), PRODUCE_VERSION)
            wait_until(lambda: len(asked) > 2, "it should be asked again")
            assert not is_answered(connection)
        answer = connection.receive(ProduceResponse, PRODUCE_VERSION)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        assert producer.end(commit=True) is ErrorCode.NONE


def test_older_producers_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """They add their partitions themselves, and have waited for that."""
    with running({**SMALL, BACKOFF: "1", BACKOFF_MAX: "1000000"}) as (broker, connection):
        with ending(broker, connection) as producer:
            asked = count_questions(broker, monkeypatch)
            assert producer.produce(b"next", version=11) is ErrorCode.NOT_ENOUGH_REPLICAS
        assert len(asked) == 1
