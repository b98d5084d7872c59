"""New logs wait for the disk on threads: others are served meanwhile, nobody sees half of it."""

import asyncio
import errno
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path, PurePath

from odradek.broker.metadata_publisher import LOGS_PER_TURN_MAX
from odradek.controller import Controller
from odradek.core.config import STANDALONE, load_broker_config, parse_overrides
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from odradek.node.node import Node
from odradek.node.ports import real_ports
from odradek.protocol.generated.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.protocol.generated.delete_topics import DeleteTopicsRequest
from odradek.protocol.generated.metadata import MetadataRequest, MetadataResponse
from odradek.protocol.generated.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.records import BatchBuilder
from odradek.storage.disk import OsDisk
from tests.broker_connection import BrokerConnection

SECONDS_MAX = 120
MANY = LOGS_PER_TURN_MAX + 10
NOT_YET = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER}


class GatedDisk(OsDisk):
    """Lets nobody sync a new log before the gate is open; a broken folder fails at that."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.reached = threading.Event()
        self.broken: PurePath | None = None

    def sync_file(self, path: PurePath) -> None:
        if path.name.startswith("partition.metadata"):
            self.reached.set()
            assert self.gate.wait(SECONDS_MAX)
            if self.broken in path.parents:
                raise OSError(errno.EIO, "Input/output error", str(path))
        super().sync_file(path)


@asynccontextmanager
async def running(disk: GatedDisk, *folders: Path) -> AsyncIterator[Node]:
    texts = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": ",".join(map(str, folders))}
    overrides = parse_overrides(f"{name}={value}" for name, value in texts.items())
    base = {**STANDALONE, "log.cleaner.enable": "false"}
    node = Node(load_broker_config(overrides, base=base).config, real_ports(disk=disk))
    await node.start()
    try:
        yield node
    finally:
        disk.gate.set()  # or a test that fails would take its time
        await node.stop()


def create(node: Node, name: str, partitions: int = 1) -> "asyncio.Future[object]":
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    request = CreateTopicsRequest(topics=[topic])
    return change(node, lambda controller: controller.create_topics(request, node.broker.random))


def change(node: Node, plan: "Callable[[Controller], object]") -> "asyncio.Future[object]":
    done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    node.controller.host.submit(plan, done.set_result)  # type: ignore[arg-type]
    return done


async def reply(future: "asyncio.Future[object]") -> object:
    return await asyncio.wait_for(future, SECONDS_MAX)


def _note(order: list[str], name: str, _done: "asyncio.Future[object]") -> None:
    order.append(name)


def topics(connection: BrokerConnection) -> dict[str, int]:
    answer = connection.ask(MetadataRequest(topics=None), MetadataResponse)
    return {each.name or "": len(each.partitions) for each in answer.topics}


def produce(connection: BrokerConnection, topic: str, number: int = 0) -> ErrorCode:
    builder = BatchBuilder()
    builder.append(0, None, b"value")
    data = PartitionProduceData(index=number, records=builder.build())
    request = ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )
    answer = connection.ask(request, ProduceResponse, 12)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def test_others_are_served_while_the_logs_of_a_topic_are_made(tmp_path: Path) -> None:
    disk = GatedDisk()

    def meanwhile(port: int) -> None:
        assert disk.reached.wait(SECONDS_MAX)
        with BrokerConnection(port) as connection:
            assert topics(connection) == {"before": 1}
            assert produce(connection, "before") is ErrorCode.NONE
            assert produce(connection, "big") in NOT_YET

    def afterwards(port: int) -> None:
        with BrokerConnection(port) as connection:
            assert topics(connection) == {"before": 1, "big": MANY}
            assert produce(connection, "big", MANY - 1) is ErrorCode.NONE

    async def story() -> None:
        async with running(disk, tmp_path) as node:
            await reply(create(node, "before"))
            port = node.server.endpoints["PLAINTEXT"][1]
            disk.gate.clear()
            disk.reached.clear()
            created = create(node, "big", MANY)
            await asyncio.to_thread(meanwhile, port)
            assert not created.done()
            disk.gate.set()
            await reply(created)
            await asyncio.to_thread(afterwards, port)

    asyncio.run(story())


def test_what_is_committed_later_takes_effect_later(tmp_path: Path) -> None:
    disk = GatedDisk()

    async def story() -> None:
        async with running(disk, tmp_path) as node:
            order: list[str] = []
            disk.gate.clear()
            created = create(node, "t")
            request = DeleteTopicsRequest(topic_names=["t"])
            deleted = change(node, lambda controller: controller.delete_topics(request))
            again = create(node, "t", 2)
            for name, future in (("created", created), ("deleted", deleted), ("again", again)):
                future.add_done_callback(partial(_note, order, name))
            assert await asyncio.to_thread(disk.reached.wait, SECONDS_MAX)
            assert node.broker.image.topics == {}
            disk.gate.set()
            await reply(again)
            assert order == ["created", "deleted", "again"]
            assert node.broker.replicas.partitions == [
                TopicPartition("t", 0),
                TopicPartition("t", 1),
            ]
            node.broker.store.check_invariants()

    asyncio.run(story())


def test_a_directory_that_fails_leaves_the_others(tmp_path: Path) -> None:
    disk = GatedDisk()
    good, bad = tmp_path / "good", tmp_path / "bad"

    def codes(port: int) -> list[ErrorCode]:
        with BrokerConnection(port) as connection:
            return sorted(produce(connection, "t", number) for number in range(2))

    async def story() -> None:
        async with running(disk, good, bad) as node:
            disk.broken = bad
            await reply(create(node, "t", 2))
            port = node.server.endpoints["PLAINTEXT"][1]
            found = await asyncio.to_thread(codes, port)
            assert found == [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR]
            assert [each.is_online for each in node.broker.store.directories] == [True, False]
            # And it goes on: there is a place for the next one.
            await reply(create(node, "u"))
            assert node.broker.replicas.find(TopicPartition("u", 0)) is not None

    asyncio.run(story())


def test_a_node_that_stops_meanwhile_goes_on_at_the_next_start(tmp_path: Path) -> None:
    disk = GatedDisk()

    async def story() -> None:
        async with running(disk, tmp_path) as node:
            disk.gate.clear()
            create(node, "big", MANY)
            assert await asyncio.to_thread(disk.reached.wait, SECONDS_MAX)
            asyncio.get_running_loop().call_soon(disk.gate.set)
        async with running(disk, tmp_path) as node:
            assert len(node.broker.replicas.partitions) == MANY
            assert node.broker.store.problems == []

    asyncio.run(story())
