"""A node without space: what it refuses, what it goes on with, and that it comes back by itself."""

import asyncio
import errno
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import TopicPartition
from odradek.node.node import Node
from odradek.protocol.generated.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from odradek.protocol.generated.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.protocol.generated.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from odradek.protocol.generated.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.storage.disk import Buffer, OsFile
from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection
from tests.storage_batches import make_batch
from tests.unit.node.test_node_failure import create_topic, load

SECONDS_MAX = 120
VERSION = 12  # the last one that names topics
FULL = OSError(errno.ENOSPC, "No space left on device")


def produce(
    connection: BrokerConnection, topic: str = "t", size: int = 10_000
) -> PartitionProduceResponse:
    batch = make_batch([b"x" * size], timestamp=time.time_ns() // 1_000_000)
    data = PartitionProduceData(index=0, records=bytes(batch))
    topics = [TopicProduceData(name=topic, partition_data=[data])]
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics)
    answer = connection.ask(request, ProduceResponse, VERSION)
    return answer.responses[0].partition_responses[0]


def wait_until(what: str, is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def test_a_broker_in_memory_that_is_full_comes_back_when_a_topic_is_deleted() -> None:
    with (
        Broker(memory=True, memory_bytes_max=2_000_000) as broker,
        BrokerConnection(broker.port) as connection,
    ):
        broker.create_topic("t")
        broker.create_topic("other")
        for _ in range(100):
            assert produce(connection, "other").error_code == 0
        acknowledged = 0
        while not (told := produce(connection)).error_code:
            acknowledged += 1
        assert told.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert "is full" in (told.error_message or "")
        assert acknowledged > 50
        log = broker.node.broker.store.get(TopicPartition("t", 0))
        assert log is not None
        assert log.log_end_offset == acknowledged

        wanted = CreatableTopic(name="new", num_partitions=1, replication_factor=1)
        new = CreateTopicsRequest(topics=[wanted])
        refused = connection.ask(new, CreateTopicsResponse).topics[0]
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        more = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=2)])
        grown = connection.ask(more, CreatePartitionsResponse).results[0]
        assert grown.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert "is full" in broker.node.problems[0]

        gone = DeleteTopicsRequest(topics=[DeleteTopicState(name="other")])
        assert connection.ask(gone, DeleteTopicsResponse).responses[0].error_code == 0
        wait_until("there is space", lambda: produce(connection).error_code == 0)
        assert broker.node.problems == []
        assert log.log_end_offset == acknowledged + 1
        assert connection.ask(new, CreateTopicsResponse).topics[0].error_code == 0


def test_a_change_of_the_metadata_without_space_is_refused_and_the_node_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(load(tmp_path).config)
    write = OsFile.write

    def fail(file: OsFile, position: int, buffers: Sequence[Buffer]) -> None:
        if tmp_path in file.path.parents:
            raise OSError(FULL.errno, FULL.strerror, str(file.path))
        write(file, position, buffers)  # of a broker that other tests use

    async def story() -> None:
        await node.start()
        offset = node.metadata.log.log_end_offset
        with monkeypatch.context() as patched:
            patched.setattr(OsFile, "write", fail)
            # It waits for what the start of the node may still have in flight.
            refused: asyncio.Future[ApiError] = asyncio.get_running_loop().create_future()
            create_topic(node, lambda _reply: None, refused.set_result)
            assert "no space for changes of the metadata" in str(await refused)
            assert node.metadata.log.log_end_offset == offset
        topics = node.controller.control.image.topics
        assert "t" not in topics, "what is not in the log did not happen"
        assert not node.failed.is_set()
        answered: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        create_topic(node, answered.set_result)
        await answered
        assert "t" in node.broker.image.topics
        await node.stop()

    asyncio.run(asyncio.wait_for(story(), SECONDS_MAX))
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_partitions_that_found_no_space_get_their_logs_when_there_is_some(tmp_path: Path) -> None:
    async def story() -> None:
        node = Node(load(tmp_path).config)
        await node.start()
        directory = node.broker.store.directories[0]
        directory.on_io_error(FULL)
        answered: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        create_topic(node, answered.set_result)  # past the check that requests go through
        await answered
        assert node.broker.replicas.find(TopicPartition("t", 0)) is None
        while node.broker.replicas.find(TopicPartition("t", 0)) is None:
            await asyncio.sleep(0.02)
        assert directory.is_writable
        assert node.broker.store.get(TopicPartition("t", 0)) is not None
        await node.stop()

    asyncio.run(asyncio.wait_for(story(), SECONDS_MAX))
