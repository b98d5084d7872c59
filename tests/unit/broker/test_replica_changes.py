"""Which log a partition gets: by topic id, and never an empty one while another may be offline."""

import asyncio
import errno
import gc
import time
from pathlib import Path, PurePath

import pytest

from odradek.broker.broker_server import BrokerServer
from odradek.broker.partition import Partition
from odradek.core.config import STANDALONE, load_broker_config, parse_overrides
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import TopicPartition, Uuid
from odradek.metadata.image import ClusterImage, MetadataUpdate
from odradek.node.node import Node
from odradek.node.ports import real_ports
from odradek.protocol.generated.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.protocol.generated.metadata_records import (
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from odradek.protocol.message import Message
from odradek.records import BatchBuilder
from odradek.storage.disk import OsDisk, OsLock
from odradek.storage.log_dir_files import write_partition_metadata
from odradek.testing.broker import Broker
from tests.unit.broker.test_node_turns import TURN_SECONDS_MAX, Turns

PARTITIONS = 3_000
T0 = TopicPartition("t", 0)
MINE, OTHER = 0, 7
"""The node under test, and one that is not there."""
NEW_ID = Uuid(b"created-again-16")


def led(server: BrokerServer, at: TopicPartition = T0) -> Partition:
    found = server.replicas.find(at)
    assert found is not None
    assert found.is_leader
    return found


def append(server: BrokerServer, count: int = 3) -> None:
    builder = BatchBuilder()
    for _ in range(count):
        builder.append(0, None, b"value")
    led(server).append(bytearray(builder.build()), server.clock.now_ms())


def created(name: str, topic_id: Uuid, partitions: int = 1, **fields: object) -> list[Message]:
    """Return the records of a topic led by the node under test, but for ``fields``."""
    known = {"replicas": [MINE], "isr": [MINE], "leader": MINE, **fields}
    return [
        TopicRecord(name=name, topic_id=topic_id),
        *(
            PartitionRecord(topic_id=topic_id, partition_id=number, **known)  # type: ignore[arg-type]
            for number in range(partitions)
        ),
    ]


async def take_effect(server: BrokerServer, *updates: MetadataUpdate) -> None:
    done = asyncio.get_running_loop().create_future()
    for update in updates:
        server.publisher.publish(update)
    server.publisher.when_published(lambda: done.set_result(None))
    await asyncio.wait_for(done, 120)


def in_memory() -> Broker:
    return Broker(topics=["t"], memory=True, own_thread=False, config={"node.id": str(MINE)})


def test_a_topic_recreated_in_one_update_is_another_topic() -> None:
    async def story() -> None:
        async with in_memory() as broker:
            server = broker.node.broker
            append(server)
            old = led(server)
            gone = RemoveTopicRecord(topic_id=old.topic_id)
            await take_effect(server, server.image.advance([gone, *created("t", NEW_ID)]))
            again = led(server)
            assert (again.topic_id, again.log.log_end_offset) == (NEW_ID, 0)
            assert server.store.topic_id(T0) == NEW_ID
            assert server.replicas.topic_name(NEW_ID) == "t"
            with pytest.raises(ApiError):
                server.replicas.topic_name(old.topic_id)

    asyncio.run(story())


def test_a_snapshot_in_which_a_topic_was_recreated_deletes_the_old_log() -> None:
    async def story() -> None:
        async with in_memory() as broker:
            server = broker.node.broker
            append(server)
            old = server.image
            gone = RemoveTopicRecord(topic_id=led(server).topic_id)
            new = old.advance([gone, *created("t", NEW_ID)]).image
            await take_effect(server, MetadataUpdate(new, new.changes_since(old)))
            assert (led(server).topic_id, led(server).log.log_end_offset) == (NEW_ID, 0)

    asyncio.run(story())


def test_the_log_of_a_topic_that_was_deleted_unnoticed_is_set_aside() -> None:
    """As after a deletion whose log could not be taken away: identity is the id in the log."""

    async def story() -> None:
        async with in_memory() as broker:
            server = broker.node.broker
            append(server)
            old_id = led(server).topic_id
            later = ClusterImage().advance(created("t", NEW_ID)).image
            update = later.advance([change(NEW_ID, leader=MINE)])
            await take_effect(server, update)
            assert (led(server).topic_id, led(server).log.log_end_offset) == (NEW_ID, 0)
            assert old_id != NEW_ID

    asyncio.run(story())


def change(topic_id: Uuid, **fields: object) -> PartitionChangeRecord:
    return PartitionChangeRecord(topic_id=topic_id, partition_id=0, **fields)  # type: ignore[arg-type]


def test_a_replica_that_this_node_has_no_longer_is_deleted_and_comes_back_empty() -> None:
    async def story() -> None:
        async with in_memory() as broker:
            server = broker.node.broker
            append(server)
            topic_id = led(server).topic_id
            fields = {"leader": OTHER, "replicas": [OTHER], "isr": [OTHER], "directories": [NEW_ID]}
            away = server.image.advance([change(topic_id, **fields)])
            await take_effect(server, away)
            assert server.replicas.find(T0) is None
            assert server.store.get(T0) is None
            fields = {"replicas": [MINE, OTHER], "directories": [NEW_ID, NEW_ID], "leader": OTHER}
            await take_effect(server, away.image.advance([change(topic_id, **fields)]))
            follower = server.replicas.find(T0)
            assert follower is not None
            assert follower.following is not None
            assert follower.log.log_end_offset == 0

    asyncio.run(story())


# Log directories that fail.


class BrokenDisk(OsDisk):
    """Everything below ``broken`` fails."""

    def __init__(self) -> None:
        super().__init__(syncs=False)
        self.broken: PurePath | None = None

    def lock(self, path: PurePath) -> OsLock:
        if self.broken is not None and self.broken in path.parents:
            raise OSError(errno.EIO, "Input/output error", str(path))
        return super().lock(path)


def node_in(disk: OsDisk, *folders: Path) -> Node:
    texts = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": ",".join(map(str, folders))}
    overrides = parse_overrides(f"{name}={value}" for name, value in texts.items())
    base = {**STANDALONE, "log.cleaner.enable": "false"}
    return Node(load_broker_config(overrides, base=base).config, real_ports(disk=disk))


async def create(server: BrokerServer, name: str = "t", partitions: int = 1) -> None:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    answered: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    request = CreateTopicsRequest(topics=[topic])
    server.controller.ask(request, answered.set_result, answered.set_exception)
    await asyncio.wait_for(answered, 120)


def test_a_directory_that_is_offline_at_a_start_may_have_the_log(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    disk = BrokenDisk()

    async def before() -> list[str]:
        node = node_in(disk, *folders)
        await node.start()
        try:
            await create(node.broker, partitions=2)
            return sorted(str(each.folder.parent.name) for each in node.broker.store.logs)
        finally:
            await node.stop()

    async def after() -> None:
        disk.broken = folders[1]
        node = node_in(disk, *folders)
        await node.start()
        try:
            server = node.broker
            found = [server.replicas.find(TopicPartition("t", number)) for number in range(2)]
            assert [each is None for each in found].count(True) == 1
            assert len(server.store.logs) == 1, "no empty log in place of the one that is offline"
            # A partition that is new for this node has its log in the other directory.
            await create(server, "new")
            assert server.replicas.find(TopicPartition("new", 0)) is not None
        finally:
            await node.stop()

    assert asyncio.run(before()) == ["a", "b"]
    asyncio.run(after())


def test_a_topic_with_a_log_in_an_offline_directory_can_be_deleted_and_recreated(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        node = node_in(OsDisk(syncs=False), tmp_path / "a", tmp_path / "b")
        await node.start()
        try:
            server = node.broker
            server.directory_assignments.close()  # or the controller would contradict the updates
            await create(server, partitions=2)
            directory = server.store.directory_of(T0)
            directory.fail(OSError(errno.EIO, "Input/output error"))
            gone = RemoveTopicRecord(topic_id=server.image.topics["t"].topic_id)
            deleted = server.image.advance([gone])
            fields = {"replicas": [server.node_id], "isr": [server.node_id]}
            records = created("t", NEW_ID, 2, leader=server.node_id, **fields)
            again = deleted.image.advance(records)
            await take_effect(server, deleted, again)
            for number in range(2):
                at = TopicPartition("t", number)
                assert led(server, at).topic_id == NEW_ID
                assert server.store.directory_of(at) is not directory
        finally:
            await node.stop()

    asyncio.run(story())


def test_a_topic_recreated_while_the_node_was_down_is_another_topic(tmp_path: Path) -> None:
    disk = OsDisk(syncs=False)

    async def before() -> None:
        node = node_in(disk, tmp_path)
        await node.start()
        await create(node.broker)
        append(node.broker)
        await node.stop()

    async def after() -> None:
        node = node_in(disk, tmp_path)
        await node.start()
        try:
            assert led(node.broker).log.log_end_offset == 0
            assert led(node.broker).topic_id != NEW_ID
            assert len(list(tmp_path.glob("t-0.*-stray"))) == 1
        finally:
            await node.stop()

    asyncio.run(before())
    # What the disk has is of a topic of which the metadata does not know any more.
    (tmp_path / "t-0" / "partition.metadata").unlink()
    write_partition_metadata(disk, tmp_path / "t-0", NEW_ID)
    asyncio.run(after())


# Many partitions.


def test_updates_during_a_start_take_effect_after_it() -> None:
    async def story() -> None:
        async with in_memory() as broker:
            server = broker.node.broker
            many = server.image.advance(created("many", NEW_ID, 300)).image
            server.publisher.publish_all(many)
            assert server.replicas.find(TopicPartition("many", 299)) is None, "in slices"
            await take_effect(server, many.advance([RemoveTopicRecord(topic_id=NEW_ID)]))
            assert server.replicas.partitions == [T0]

    asyncio.run(story())


@pytest.mark.slow
def test_no_turn_of_a_start_with_thousands_of_partitions_is_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = Turns()

    async def story() -> None:
        async with in_memory() as broker:
            server = broker.node.broker
            image = server.image.advance(created("many", NEW_ID, PARTITIONS)).image
            turns.reset()
            began = time.thread_time()
            server.publisher.publish_all(image)
            first = time.thread_time() - began
            await take_effect(server)
            assert len(server.replicas.partitions) == PARTITIONS + 1
            assert max(first, turns.longest) < TURN_SECONDS_MAX, turns.longest_of
            assert turns.count > 20

    gc.disable()
    try:
        with turns.measured(monkeypatch):
            asyncio.run(story())
    finally:
        gc.enable()


def test_an_update_that_fails_stops_the_node() -> None:
    """What comes later rests on it: to hang without a word would be the worst."""

    async def story() -> None:
        async with in_memory() as broker:
            server = broker.node.broker
            failures: list[str] = []
            server.fail = lambda what, _error: failures.append(what)
            server.publisher._changes._lead = None  # type: ignore[method-assign, assignment]
            server.publisher.publish(server.image.advance(created("u", NEW_ID)))
            async with asyncio.timeout(120):
                while not failures:
                    await asyncio.sleep(0)
            assert failures == ["a change of the metadata could not take effect"]

    asyncio.run(story())


def test_one_bad_partition_does_not_fail_its_neighbours() -> None:
    async def story() -> None:
        async with in_memory() as broker:
            server = broker.node.broker
            lead = server.replicas.lead

            def refuse_one(at: TopicPartition, *rest: object) -> Partition:
                if at.partition == 1:
                    raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "its disk")
                return lead(at, *rest)  # type: ignore[arg-type]

            server.replicas.lead = refuse_one  # type: ignore[method-assign, assignment]
            await take_effect(server, server.image.advance(created("u", NEW_ID, 3)))
            found = [server.replicas.find(TopicPartition("u", number)) for number in range(3)]
            assert [each is None for each in found] == [False, True, False]

    asyncio.run(story())
