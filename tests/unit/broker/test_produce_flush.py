"""With flush.messages an append is acknowledged after its fsync, and never if that failed."""

import errno
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePath
from threading import Event

import pytest

from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from odradek.metadata.partition import NO_LEADER
from odradek.protocol.generated.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.storage.disk import OsDisk
from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection
from tests.storage_batches import make_batch
from tests.unit.broker.held_commits import ELSEWHERE, Leadership, partition_of, wait_until

VERSION = 12  # the last one that names topics


def produce(connection: BrokerConnection, partition: int = 0) -> PartitionProduceResponse:
    data = PartitionProduceData(index=partition, records=bytes(make_batch([b"x"])))
    topic = TopicProduceData(name="t", partition_data=[data])
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])
    answer = connection.ask(request, ProduceResponse, VERSION)
    return answer.responses[0].partition_responses[0]


def test_what_is_acknowledged_was_synced(broker: Broker, connection: BrokerConnection) -> None:
    broker.create_topic("t", flush_messages="1")
    answer = produce(connection)
    assert (answer.error_code, answer.base_offset) == (0, 0)
    log = broker.node.broker.store.get(TopicPartition("t", 0))
    assert log is not None
    assert log.recovery_point == 1


def failing_in(folder: PurePath) -> Callable[[OsDisk, PurePath], None]:
    """Return an ``OsDisk.sync_file`` that fails in one log directory: others are in use, too."""
    sync_file = OsDisk.sync_file

    def sync(disk: OsDisk, path: PurePath) -> None:
        if folder in path.parents:
            raise OSError(errno.EIO, "Input/output error", str(path))
        sync_file(disk, path)

    return sync


def folder_of(broker: Broker) -> PurePath:
    return broker.node.broker.store.directories[0].path


def test_a_failed_sync_is_an_error_and_not_an_acknowledgement(
    broker: Broker, connection: BrokerConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("t", flush_messages="1")
    with monkeypatch.context() as patched:
        patched.setattr(OsDisk, "sync_file", failing_in(folder_of(broker)))
        answer = produce(connection)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)


def test_a_node_whose_last_directory_failed_gives_up(
    broker: Broker, connection: BrokerConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("t", flush_messages="1")
    monkeypatch.setattr(OsDisk, "sync_file", failing_in(folder_of(broker)))
    produce(connection)
    assert broker.node.failed.is_set()
    with pytest.raises(ConnectionError):
        produce(connection)


def leader_of(broker: Broker, partition: int) -> int:
    return broker.node.broker.image.topics["t"].partitions[partition].leader


def test_a_directory_that_failed_leaves_the_others_at_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [tmp_path / "metadata", tmp_path / "broken"]
    config = {
        "log.dirs": ",".join(map(str, folders)),
        "metadata.log.dir": str(folders[0]),
        "log.flush.interval.messages": "1",
    }
    with Broker(config=config) as broker, BrokerConnection(broker.port) as connection:
        broker.create_topic("t", 2)  # a partition in each directory
        broken = next(
            number
            for number in range(2)
            if broker.node.broker.store.directory_of(TopicPartition("t", number)).path == folders[1]
        )
        with monkeypatch.context() as patched:
            patched.setattr(OsDisk, "sync_file", failing_in(folders[1]))
            assert produce(connection, broken).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert not broker.node.failed.is_set()
        assert produce(connection, broken).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        # The controller hears of the directory and takes the leadership away: no other answer.
        wait_until(lambda: leader_of(broker, broken) == NO_LEADER, "leadership is taken away")
        assert produce(connection, broken).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert produce(connection, 1 - broken).error_code == 0


def test_what_another_leader_commits_during_a_sync_is_not_acknowledged(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records at these offsets may be others by then."""
    broker.create_topic("t", flush_messages="1")
    may_sync = Event()
    sync_file = OsDisk.sync_file

    def sync(disk: OsDisk, path: PurePath) -> None:
        if path.parent.name == "t-0":
            may_sync.wait(120)
        sync_file(disk, path)

    monkeypatch.setattr(OsDisk, "sync_file", sync)
    led = partition_of(broker.node.broker, TopicPartition("t", 0))
    metadata = Leadership(broker)
    with (
        broker.hold_commits("t"),
        ThreadPoolExecutor(1) as pool,
        BrokerConnection(broker.port) as connection,
    ):
        answer = pool.submit(produce, connection)
        wait_until(lambda: led.log.log_end_offset == 1, "the record is written")
        metadata.give("t", ELSEWHERE)
        broker._call(lambda: led.log.update_high_watermark(1))
        may_sync.set()
        assert answer.result(120).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
