"""The wall clock is set back by an hour: whatever is due goes on by the steady clock."""

from pathlib import Path

from odradek.protocol.generated.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from odradek.testing.broker import Broker
from tests.transaction_requests import T0, TransactionalProducer
from tests.unit.broker.test_store_configs import checkpoint_of, log_of, produce, running
from tests.unit.broker.transaction_broker import running as transactions_running
from tests.unit.broker.transaction_broker import state_of

BACK = -3600


def folder_of(broker: Broker) -> Path:
    return Path(broker.node.broker.store.directories[0].path)


def test_checkpoints_are_written() -> None:
    with running() as (broker, connection):
        broker.create_topic("t")
        broker.clock.step_wall(BACK)
        produce(broker, connection)
        broker.clock.advance(6)
        assert checkpoint_of(broker, "replication-offset-checkpoint") == "0\n1\nt 0 1\n"


def test_retention_deletes() -> None:
    with running() as (broker, connection):
        broker.create_topic("t", retention_ms="1000")
        broker.clock.step_wall(BACK)
        produce(broker, connection)
        broker.clock.advance(31)
        assert log_of(broker).log_start_offset == 1


def test_the_age_of_a_record_goes_by_the_wall_clock() -> None:
    with running() as (broker, connection):
        broker.create_topic("t", retention_ms="1000")
        produce(broker, connection)
        broker.clock.step_wall(BACK)
        broker.clock.advance(31)
        assert log_of(broker).log_start_offset == 0
        broker.clock.step_wall(-BACK)
        broker.clock.advance(301)
        assert log_of(broker).log_start_offset == 1


def test_flush_ms_is_kept_to() -> None:
    with running() as (broker, connection):
        broker.create_topic("t", flush_ms="60000")
        broker.clock.step_wall(BACK)
        produce(broker, connection)
        broker.clock.advance(61)
        assert log_of(broker).recovery_point == 1


def test_files_of_deleted_segments_go() -> None:
    with running() as (broker, connection):
        broker.create_topic("t", retention_ms="1000")
        produce(broker, connection)
        broker.clock.advance(31)
        assert list(folder_of(broker).glob("t-0/*.deleted"))
        broker.clock.step_wall(BACK)
        broker.clock.advance(61)
        assert not list(folder_of(broker).glob("t-0/*.deleted"))


def test_folders_of_deleted_topics_go() -> None:
    with running() as (broker, connection):
        broker.create_topic("t")
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000)
        connection.ask(request, DeleteTopicsResponse)
        assert list(folder_of(broker).glob("t-0.*-delete"))
        broker.clock.step_wall(BACK)
        broker.clock.advance(61)
        assert not list(folder_of(broker).glob("t-0.*-delete"))


def test_idle_producers_are_forgotten() -> None:
    interval = {"producer_id_expiration_check_interval_ms": "60000"}
    with running(producer_id_expiration_ms="1000", **interval) as (broker, connection):
        broker.create_topic("t")
        broker.clock.step_wall(BACK)
        produce(broker, connection, producer_id=7)
        broker.clock.advance(61)
        assert not log_of(broker).producer_states.active_producers


def test_a_transaction_runs_out() -> None:
    """Else its readers would wait for as long as the step."""
    with transactions_running() as (broker, connection):
        producer = TransactionalProducer(connection, timeout_ms=300_000).begin()
        producer.add(T0)
        broker.clock.step_wall(BACK)
        broker.clock.advance(150)
        assert state_of(connection) == "Ongoing"
        broker.clock.advance(200)
        assert state_of(connection) == "CompleteAbort"


def test_a_transaction_of_the_time_before_a_restart_has_its_whole_time_at_most(
    tmp_path: Path,
) -> None:
    with transactions_running(data_dir=tmp_path) as (broker, connection):
        broker.clock.step_wall(-BACK)  # so that the next one starts an hour earlier
        TransactionalProducer(connection, timeout_ms=300_000).begin().add(T0)
    with transactions_running(data_dir=tmp_path) as (broker, connection):
        broker.clock.advance(350)
        assert state_of(connection) == "CompleteAbort"


def test_a_clock_that_is_set_on_ends_no_transaction() -> None:
    with transactions_running() as (broker, connection):
        TransactionalProducer(connection, timeout_ms=300_000).begin().add(T0)
        broker.clock.step_wall(-BACK)
        broker.clock.advance(150)
        assert state_of(connection) == "Ongoing"
