"""AlterReplicaLogDirs: over the wire, on a node with two log directories."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

import pytest

from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from odradek.protocol.generated.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from odradek.protocol.generated.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from odradek.protocol.generated.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.storage.log_move import LogMoves
from odradek.storage.log_upkeep import NEVER_MS
from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection
from tests.storage_batches import make_batch

BY_NAME = 12
T0 = TopicPartition("t", 0)
DEADLINE_SECONDS = 120


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    folders = f"{tmp_path / 'a'},{tmp_path / 'b'}"
    with Broker(topics=["t"], config={"log.dirs": folders}) as started:
        yield started


def alter(connection: BrokerConnection, path: Path | str, *topics: str) -> dict[str, int]:
    wanted = [AlterReplicaLogDirTopic(name=name, partitions=[0]) for name in topics]
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=str(path), topics=wanted)])
    response = connection.ask(request, AlterReplicaLogDirsResponse)
    return {each.topic_name: each.partitions[0].error_code for each in response.results}


def where(connection: BrokerConnection) -> dict[str, bool]:
    """Return the directories with a log of the topic, and whether it is a future one."""
    response = connection.ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
    return {
        Path(result.log_dir).name: topic.partitions[0].is_future_key
        for result in response.results
        for topic in result.topics
        if topic.name == "t"
    }


def produce(connection: BrokerConnection, *values: bytes) -> int:
    data = PartitionProduceData(index=0, records=bytes(make_batch(values)))
    topic = TopicProduceData(name="t", partition_data=[data])
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])
    answer = connection.ask(request, ProduceResponse, BY_NAME).responses[0].partition_responses[0]
    assert answer.error_code == 0
    return answer.base_offset


@contextmanager
def moves_held_back() -> Iterator[None]:
    """Have moves begun but not gone on with: who looks at one would often come too late."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(LogMoves, "tick", lambda _moves, _now_ms: [])
        patched.setattr(LogMoves, "next_deadline_ms", lambda _moves: NEVER_MS)
        yield


def test_a_replica_moves_and_is_used_all_the_time(
    broker: Broker, connection: BrokerConnection, tmp_path: Path
) -> None:
    (before,) = where(connection)
    after = "b" if before == "a" else "a"
    written = 0
    for _ in range(20):
        produce(connection, b"x" * 200_000)
        written += 1
    with moves_held_back():
        assert alter(connection, tmp_path / after, "t") == {"t": 0}
        assert where(connection) == {before: False, after: True}
    deadline = monotonic() + DEADLINE_SECONDS
    while where(connection) != {after: False}:
        assert monotonic() < deadline, "it does not come to an end"
        assert produce(connection, b"meanwhile") == written
        written += 1
        sleep(0.01)
    assert produce(connection, b"after") == written
    wanted = FetchPartition(fetch_offset=written, partition_max_bytes=1000)
    fetch = FetchRequest(max_bytes=1000, topics=[FetchTopic(topic="t", partitions=[wanted])])
    answered = connection.ask(fetch, FetchResponse, BY_NAME).responses[0].partitions[0]
    assert b"after" in bytes(answered.records or b"")
    log = broker.node.broker.store.get(T0)
    assert log is not None
    assert log.folder.parent == tmp_path / after
    assert log.high_watermark == written + 1


def test_each_partition_has_an_error_of_its_own(
    connection: BrokerConnection, tmp_path: Path
) -> None:
    (here,) = where(connection)
    assert alter(connection, tmp_path / here, "t", "u", "x" * 249) == {
        "t": 0,
        "u": ErrorCode.REPLICA_NOT_AVAILABLE,
        "x" * 249: ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert alter(connection, tmp_path / "c", "t") == {"t": ErrorCode.LOG_DIR_NOT_FOUND}


def test_a_topic_is_created_where_it_was_wanted(
    broker: Broker, connection: BrokerConnection, tmp_path: Path
) -> None:
    (busy,) = where(connection)
    alter(connection, tmp_path / busy, "u")
    broker.create_topic("u")
    log = broker.node.broker.store.get(TopicPartition("u", 0))
    assert log is not None
    assert log.folder == tmp_path / busy / "u-0"


def test_a_move_is_resumed_by_the_next_start(tmp_path: Path) -> None:
    config = {"log.dirs": f"{tmp_path / 'a'},{tmp_path / 'b'}"}
    with (
        moves_held_back(),
        Broker(topics=["t"], config=config) as broker,
        BrokerConnection(broker.port) as connection,
    ):
        (before,) = where(connection)
        after = "b" if before == "a" else "a"
        for _ in range(20):
            produce(connection, b"x" * 200_000)
        alter(connection, tmp_path / after, "t")
        assert where(connection)[after] is True
    with Broker(config=config) as broker, BrokerConnection(broker.port) as connection:
        deadline = monotonic() + DEADLINE_SECONDS
        while where(connection) != {after: False}:
            assert monotonic() < deadline, "it does not go on"
            sleep(0.01)
        assert produce(connection, b"after") == 20
