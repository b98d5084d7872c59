"""Configs of all logs together, seen through a running node: each test would fail by default."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath

from odradek.core.ids import TopicPartition
from odradek.protocol.generated.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from odradek.protocol.generated.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.storage.log import Log
from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection
from tests.storage_batches import make_batch

VERSION = 12  # of Produce: the last one that names topics
T0 = TopicPartition("t", 0)


@contextmanager
def running(**configs: str) -> Iterator[tuple[Broker, BrokerConnection]]:
    config = {name.replace("_", "."): value for name, value in configs.items()}
    with Broker(config=config) as broker, BrokerConnection(broker.port) as connection:
        yield broker, connection


def produce(broker: Broker, connection: BrokerConnection, producer_id: int = -1) -> None:
    number = min(producer_id, 0)  # epoch and sequence of a producer's first batch, or none
    batch = make_batch(
        [b"x"],
        timestamp=broker.clock.now_ms(),
        producer_id=producer_id,
        producer_epoch=number,
        base_sequence=number,
    )
    data = PartitionProduceData(index=0, records=bytes(batch))
    topic = TopicProduceData(name="t", partition_data=[data])
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])
    answer = connection.ask(request, ProduceResponse, VERSION)
    assert answer.responses[0].partition_responses[0].error_code == 0


def log_of(broker: Broker) -> Log:
    log = broker.node.broker.store.get(T0)
    assert log is not None
    return log


def checkpoint_of(broker: Broker, name: str) -> str | None:
    folder: PurePath = broker.node.broker.store.directories[0].path
    path = Path(folder / name)
    return path.read_text() if path.exists() else None


def test_retention_is_checked_as_often_as_the_config_says() -> None:
    with running(log_retention_check_interval_ms="10000") as (broker, connection):
        broker.create_topic("t", retention_ms="1000")
        produce(broker, connection)
        broker.clock.advance(31)  # the first check comes after log.initial.task.delay.ms
        assert log_of(broker).log_start_offset == 1
        produce(broker, connection)
        broker.clock.advance(11)
        assert log_of(broker).log_start_offset == 2


def test_the_first_check_of_the_logs_comes_when_the_config_says() -> None:
    with running(log_initial_task_delay_ms="2000") as (broker, connection):
        broker.create_topic("t", retention_ms="100")
        produce(broker, connection)
        broker.clock.advance(3)
        assert log_of(broker).log_start_offset == 1


def test_recovery_points_are_written_as_often_as_the_config_says() -> None:
    with running(log_flush_offset_checkpoint_interval_ms="2000") as (broker, connection):
        broker.create_topic("t", flush_messages="1")
        produce(broker, connection)
        broker.clock.advance(3)
        assert checkpoint_of(broker, "recovery-point-offset-checkpoint") == "0\n1\nt 0 1\n"


def test_log_starts_are_written_as_often_as_the_config_says() -> None:
    with running(log_flush_start_offset_checkpoint_interval_ms="2000") as (broker, connection):
        broker.create_topic("t")
        produce(broker, connection)
        produce(broker, connection)
        partition = DeleteRecordsPartition(partition_index=0, offset=1)
        topic = DeleteRecordsTopic(name="t", partitions=[partition])
        request = DeleteRecordsRequest(topics=[topic], timeout_ms=1000)
        connection.ask(request, DeleteRecordsResponse)
        broker.clock.advance(3)
        assert checkpoint_of(broker, "log-start-offset-checkpoint") == "0\n1\nt 0 1\n"


def test_high_watermarks_are_written_as_often_as_the_config_says() -> None:
    with running(replica_high_watermark_checkpoint_interval_ms="3600000") as (broker, connection):
        broker.create_topic("t")
        produce(broker, connection)
        broker.clock.advance(3000)
        assert checkpoint_of(broker, "replication-offset-checkpoint") is None
        broker.clock.advance(700)
        assert checkpoint_of(broker, "replication-offset-checkpoint") == "0\n1\nt 0 1\n"


def test_a_checkpoint_interval_of_0_writes_once() -> None:
    """Kafka's scheduler takes a period of 0 for a task that runs once."""
    with running(replica_high_watermark_checkpoint_interval_ms="0") as (broker, connection):
        broker.create_topic("t")
        produce(broker, connection)
        broker.clock.advance(3000)
        written = checkpoint_of(broker, "replication-offset-checkpoint")
        produce(broker, connection)
        broker.clock.advance(3000)
        assert checkpoint_of(broker, "replication-offset-checkpoint") == written


def test_idle_producers_are_looked_for_as_often_as_the_config_says() -> None:
    """The first check waits that interval, too, as in Kafka."""
    intervals = {"producer_id_expiration_check_interval_ms": "120000"}
    with running(producer_id_expiration_ms="1000", **intervals) as (broker, connection):
        broker.create_topic("t")
        produce(broker, connection, producer_id=7)
        broker.clock.advance(60)
        assert list(log_of(broker).producer_states.active_producers) == [7]
        broker.clock.advance(61)
        assert not log_of(broker).producer_states.active_producers
