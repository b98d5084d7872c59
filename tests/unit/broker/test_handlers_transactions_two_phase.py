"""Two-phase commit over the wire (KIP-939): who prepared a transaction need not be who ends it."""

from pathlib import Path

import pytest

from odradek.core.errors import ErrorCode
from odradek.protocol.generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.generated.init_producer_id import InitProducerIdRequest
from tests.broker_connection import BrokerConnection
from tests.transaction_requests import T0, T1, TransactionalProducer
from tests.unit.broker.transaction_broker import DAY_SECONDS, SMALL, offsets, running, state_of

NONE = ErrorCode.NONE
TWO_PHASE = {**SMALL, "transaction.two.phase.commit.enable": "true"}


def init_version_max(connection: BrokerConnection) -> int:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    keys = connection.ask(request, ApiVersionsResponse).api_keys
    return next(each.max_version for each in keys if each.api_key == InitProducerIdRequest.ID)


@pytest.mark.parametrize(
    ("config", "newest"),
    [(SMALL, 5), (TWO_PHASE, 6), ({**SMALL, "unstable.api.versions.enable": "true"}, 6)],
)
def test_the_version_for_two_phase_commit_is_spoken_where_that_is_enabled(
    config: dict[str, str], newest: int
) -> None:
    with running(config) as (broker, connection):
        assert init_version_max(connection) == newest
        producer = TransactionalProducer(connection).begin()
        assert producer.init(newest).error_code == NONE
        if newest < 6:
            with pytest.raises(ConnectionError), BrokerConnection(broker.port) as another:
                TransactionalProducer(another).init(6)
        elif config is not TWO_PHASE:
            refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            assert producer.init(6, two_phase=True).error_code == refused
            refused = ErrorCode.UNSUPPORTED_VERSION
            assert producer.init(6, keep=True).error_code == refused


def prepared(connection: BrokerConnection) -> TransactionalProducer:
    """Return a producer that died when its transaction was prepared."""
    producer = TransactionalProducer(connection, timeout_ms=1).begin()
    given = producer.init(6, two_phase=True)
    assert given.error_code == NONE
    producer.take(given)
    assert producer.produce(b"x") == NONE
    assert producer.produce(b"y", partition=T1) == NONE
    return producer


@pytest.mark.parametrize("commit", [True, False])
def test_a_prepared_transaction_waits_for_whoever_decides_it(tmp_path: Path, commit: bool) -> None:
    with running(TWO_PHASE, tmp_path) as (broker, connection):
        before = prepared(connection)
        broker.clock.advance(30 * DAY_SECONDS)
        assert state_of(connection) == "Ongoing"
    with running(TWO_PHASE, tmp_path) as (broker, connection):
        after = TransactionalProducer(connection)
        given = after.init(6, two_phase=True, keep=True)
        assert given.error_code == NONE
        ongoing = (given.ongoing_txn_producer_id, given.ongoing_txn_producer_epoch)
        assert ongoing == (before.producer_id, before.producer_epoch)
        after.take(given)
        assert after.produce(b"z") == ErrorCode.INVALID_TXN_STATE  # it is to be ended
        stale = TransactionalProducer(connection)
        stale.producer_id, stale.producer_epoch = ongoing
        assert stale.end(commit=not commit) == ErrorCode.PRODUCER_FENCED

        assert after.end(commit=commit) == NONE
        assert state_of(connection) == ("CompleteCommit" if commit else "CompleteAbort")
        assert offsets(broker, T0) == offsets(broker, T1) == (2, 2)
        assert after.produce(b"z") == NONE
        assert after.end(commit=True) == NONE


def test_whoever_keeps_nothing_has_a_prepared_transaction_aborted() -> None:
    with running(TWO_PHASE) as (broker, connection):
        prepared(connection)
        TransactionalProducer(connection).begin()
        assert offsets(broker) == (2, 2)


def test_keeping_where_nothing_is_prepared_starts_anew() -> None:
    with running(TWO_PHASE) as (_, connection):
        producer = TransactionalProducer(connection).begin()
        given = producer.init(6, two_phase=True, keep=True)
        assert (given.error_code, given.producer_epoch) == (NONE, 1)
        assert (given.ongoing_txn_producer_id, given.ongoing_txn_producer_epoch) == (-1, -1)
        producer.take(given)
        assert producer.produce(b"x") == NONE
