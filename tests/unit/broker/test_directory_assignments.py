"""The controller knows in which log directory each replica lies, and acts when one fails."""

import asyncio
import errno
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek.broker.broker_server import BrokerServer
from odradek.broker.directory_assignments import ASSIGNMENTS_MAX, DirectoryAssignments
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import TopicPartition, Uuid
from odradek.metadata import NO_LEADER, ClusterImage, PartitionImage
from odradek.metadata.partition import DIRECTORY_UNASSIGNED
from odradek.metadata.touched import TopicIdPartition
from odradek.protocol.generated.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from odradek.protocol.generated.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    ResponseDirectoryData,
    ResponsePartitionData,
    ResponseTopicData,
)
from odradek.protocol.generated.metadata_records import (
    FeatureLevelRecord,
    PartitionRecord,
    TopicRecord,
)
from odradek.protocol.message import Message
from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection

SECONDS_MAX = 120
NODE = 1
EPOCH = 7
TOPIC = Uuid(b"0123456789abcdef")
A, B = Uuid(b"directory-number"), Uuid(b"directory-letter")
PARTITIONS = ASSIGNMENTS_MAX + 10


class FakeChannel:
    def __init__(self) -> None:
        self.asked: list[
            tuple[
                AssignReplicasToDirsRequest, Callable[[Message], None], Callable[[ApiError], None]
            ]
        ] = []

    def ask(
        self,
        request: Message,
        then: Callable[[Message], None],
        failed: Callable[[ApiError], None],
    ) -> None:
        assert isinstance(request, AssignReplicasToDirsRequest)
        self.asked.append((request, then, failed))

    def close(self) -> None: ...

    def take(self) -> tuple[dict[int, Uuid], Callable[[Message], None], Callable[[Any], None]]:
        """Return the only request that is under way: directories by partition."""
        ((request, then, failed),) = self.asked
        self.asked.clear()
        assert (request.broker_id, request.broker_epoch) == (NODE, EPOCH)
        named = {
            partition.partition_index: directory.id
            for directory in request.directories
            for topic in directory.topics
            for partition in topic.partitions
        }
        return named, then, failed


def answer(codes: dict[int, int]) -> AssignReplicasToDirsResponse:
    partitions = [
        ResponsePartitionData(partition_index=number, error_code=code)
        for number, code in codes.items()
    ]
    topic = ResponseTopicData(topic_id=TOPIC, partitions=partitions)
    return AssignReplicasToDirsResponse(directories=[ResponseDirectoryData(id=A, topics=[topic])])


def at(number: int) -> TopicIdPartition:
    return TopicIdPartition(TOPIC, number)


def image_of(*placed: Uuid) -> ClusterImage:
    """Return a topic whose first partitions lie where it is said, and the others nowhere yet."""
    directories = [*placed, *[DIRECTORY_UNASSIGNED] * (PARTITIONS - len(placed))]
    partitions = [
        PartitionRecord(
            topic_id=TOPIC,
            partition_id=number,
            replicas=[NODE],
            isr=[NODE],
            leader=NODE,
            directories=[directory],
        )
        for number, directory in enumerate(directories)
    ]
    version = FeatureLevelRecord(name="metadata.version", feature_level=25)
    records: list[Message] = [version, TopicRecord(name="t", topic_id=TOPIC), *partitions]
    return ClusterImage().advance(records).image


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while not condition():
            await asyncio.sleep(0)


def made(image: ClusterImage) -> tuple[DirectoryAssignments, FakeChannel]:
    channel = FakeChannel()
    metadata = SimpleNamespace(image=image)
    broker = SimpleNamespace(node_id=NODE, broker_epoch=EPOCH, metadata=metadata)
    return DirectoryAssignments(cast("BrokerServer", broker), channel), channel


def test_what_is_under_way_is_one_request_and_the_newest_counts() -> None:
    async def story() -> None:
        assignments, channel = made(image_of())
        assignments.assign(at(0), A)
        assignments.assign(at(1), A)
        assignments.assign(at(1), B)
        await until(lambda: bool(channel.asked))
        named, then, _ = channel.take()
        assert named == {0: A, 1: B}
        assignments.assign(at(0), B)
        for _ in range(10):
            await asyncio.sleep(0)
        assert channel.asked == []
        then(answer({0: 0, 1: 0}))
        await until(lambda: bool(channel.asked))
        assert channel.take()[0] == {0: B}

    asyncio.run(story())


def test_many_go_in_several_requests() -> None:
    async def story() -> None:
        assignments, channel = made(image_of())
        for number in range(PARTITIONS):
            assignments.assign(at(number), A)
        await until(lambda: bool(channel.asked))
        named, then, _ = channel.take()
        assert len(named) == ASSIGNMENTS_MAX
        then(answer(dict.fromkeys(named, 0)))
        await until(lambda: bool(channel.asked))
        assert len(channel.take()[0]) == PARTITIONS - ASSIGNMENTS_MAX

    asyncio.run(story())


@pytest.mark.parametrize("how", ["refused", "refused at all", "no answer", "left out"])
def test_what_the_controller_did_not_take_is_sent_again(how: str) -> None:
    async def story() -> None:
        assignments, channel = made(image_of())
        assignments.assign(at(0), A)
        assignments.assign(at(1), A)
        await until(lambda: bool(channel.asked))
        _, then, failed = channel.take()
        assignments.assign(at(1), B)  # newer than what fails
        match how:
            case "refused":
                then(answer({0: 0, 1: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}))
            case "refused at all":
                then(AssignReplicasToDirsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
            case "no answer":
                failed(ApiError(ErrorCode.REQUEST_TIMED_OUT))
            case _:
                then(answer({0: 0}))
        assert channel.asked == [], "not at once"
        await until(lambda: bool(channel.asked))
        expected = {1: B} if how in ("refused", "left out") else {0: A, 1: B}
        assert channel.take()[0] == expected

    asyncio.run(story())


def test_what_the_metadata_has_already_is_not_sent() -> None:
    async def story() -> None:
        assignments, channel = made(image_of(A, B))
        assignments.assign(at(0), A)
        assignments.assign(at(1), A)
        assignments.assign(TopicIdPartition(B, 0), A)  # a topic that is gone
        await until(lambda: bool(channel.asked))
        assert channel.take()[0] == {1: A}

    asyncio.run(story())


# A whole node.


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.005)


def test_a_directory_that_fails_takes_its_leaders_with_it_and_no_others(tmp_path: Path) -> None:
    folders = f"{tmp_path / 'a'},{tmp_path / 'b'}"
    with Broker(topics={"t": 4}, config={"log.dirs": folders}) as broker:
        server = broker.node.broker

        def partitions() -> dict[int, PartitionImage]:
            return dict(server.metadata.image.topics["t"].partitions)

        def directories() -> dict[int, Uuid | None]:
            return {
                number: server.store.directory_of(TopicPartition("t", number)).directory_id
                for number in range(4)
            }

        def is_known() -> bool:
            known = {number: each.directories[0] for number, each in partitions().items()}
            return known == broker._call(directories)

        wait_until(is_known, "the controller should know where the replicas are")
        assert len(set(directories().values())) == 2
        # One is moved to the other's directory, and that is known, too.
        moved = next(n for n, where in directories().items() if where != directories()[0])
        path = str(server.store.directory_of(TopicPartition("t", 0)).path)
        with BrokerConnection(broker.port) as connection:
            wanted = AlterReplicaLogDirTopic(name="t", partitions=[moved])
            request = AlterReplicaLogDirsRequest(
                dirs=[AlterReplicaLogDir(path=path, topics=[wanted])]
            )
            assert connection.ask(request, AlterReplicaLogDirsResponse).results
        wait_until(lambda: directories()[moved] == directories()[0], "the replica should move")
        wait_until(is_known, "the controller should know of the move")
        # The directory fails.
        where = directories()
        failing = server.store.directory_of(TopicPartition("t", 0))

        def fail() -> None:
            failing.fail(OSError(errno.EIO, "Input/output error"))
            server.look_at_directories()

        broker._call(fail)
        lost = {number for number, each in where.items() if each == failing.directory_id}
        assert len(lost) == 3

        def leaderless() -> set[int]:
            return {number for number, each in partitions().items() if each.leader == NO_LEADER}

        wait_until(lambda: leaderless() == lost, "its partitions should have no leader")
        assert not server.metadata.image.brokers[server.node_id].fenced
