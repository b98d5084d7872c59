"""Three whole nodes in a simulated world, without any fault but those that a test asks for."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from odradek.broker.partition import Partition
from odradek.client import Admin, Consumer, NewTopic, Producer
from odradek.client.admin.configs import ConfigResource
from odradek.core.ids import TopicPartition
from odradek.metadata.partition import PartitionImage
from odradek.node.node import Node
from odradek.testing.simulation import SimNode, World
from tests.simulation.cluster.layout import CLIENT_PORT, SHAPES, Formatting, Layout
from tests.simulation.cluster.machine import Machine

T = TypeVar("T")

IDS = (1, 2, 3)
ORDERS = ConfigResource.topic("orders")
SHORT = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "log.flush.interval.messages": "9223372036854775807",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}


class ThreeNodes:
    """``orders`` has one partition, whose replicas are on 1, 2 and 3, and 1 is preferred."""

    def __init__(
        self,
        world: World,
        configs: Mapping[str, str],
        started: Collection[int] = IDS,
        racks: Mapping[int, str] | None = None,
    ) -> None:
        self.world = world
        self.layout = Layout(
            "3 combined", SHAPES["3 combined"], configs={**SHORT, **configs}, racks=racks or {}
        )
        formatting = Formatting(self.layout, world.random("format"))
        self.machines = {
            place.node_id: Machine(world, self.layout, place, formatting, self._on_exit)
            for place in self.layout.places
        }
        self.client: SimNode = world.add_node("client")
        for node_id in started:
            self.machines[node_id].start()
        self.wait_until(lambda: all(self.machines[each].is_serving for each in started))

    def _on_exit(self, machine: Machine, failure: BaseException) -> None:
        raise AssertionError(f"{machine.name} gave up: {failure!r}") from failure

    def wait_until(self, condition: Callable[[], bool], seconds_max: float = 60) -> float:
        """Run until something holds; return how long that took."""
        begun = self.world.now
        self.world.run_until(condition, seconds_max)
        return self.world.now - begun

    def run(self, work: Awaitable[T], seconds_max: float = 60) -> T:
        """Have the client do something."""

        async def do() -> T:
            return await work

        return self.world.run_until_done(self.client.spawn(do()), seconds_max)

    # What is where.

    @property
    def bystander(self) -> int:
        """A follower of ``orders`` that is not the active controller."""
        controller = self.node(1).metadata.leader_id
        return 3 if controller == 2 else 2

    def node(self, node_id: int) -> Node:
        node = self.machines[node_id].node
        assert isinstance(node, Node)
        return node

    def replica(self, node_id: int, topic: str = "orders", number: int = 0) -> Partition:
        found = self.node(node_id).broker.replicas.find(TopicPartition(topic, number))
        assert found is not None
        return found

    def partition(self, topic: str = "orders", number: int = 0) -> PartitionImage | None:
        """Return what the metadata says of a partition, as one of the nodes that run knows it."""
        running = [each for each in self.machines.values() if each.is_serving]
        node = running[0].node
        assert isinstance(node, Node)
        found = node.metadata.image.topics.get(topic)
        return None if found is None else found.partitions[number]

    def leader(self, topic: str = "orders", number: int = 0) -> int:
        found = self.partition(topic, number)
        return -1 if found is None else found.leader

    def isr(self, topic: str = "orders", number: int = 0) -> set[int]:
        found = self.partition(topic, number)
        return set() if found is None else set(found.isr)

    def ends(self) -> dict[int, tuple[int, int]]:
        """Return log end and high watermark of each replica of ``orders``."""
        return {
            node_id: (log.log_end_offset, log.high_watermark)
            for node_id in IDS
            if self.machines[node_id].is_serving
            for log in (self.replica(node_id).log,)
        }

    # What goes wrong.

    @contextmanager
    def cut(self, source: int, target: int) -> Iterator[None]:
        """Let nothing of one node arrive at another; what comes back arrives."""
        network, ends = self.world.network, (f"node-{source}", f"node-{target}")
        network.cut(*ends, both_ways=False)
        yield
        network.heal(*ends, both_ways=False)

    # What clients do.

    async def create(
        self, name: str = "orders", replicas: Sequence[int] = IDS, **configs: str
    ) -> None:
        named = {key.replace("_", "."): value for key, value in configs.items()}
        topic = NewTopic(name, assignments={0: list(replicas)}, configs=named)
        async with Admin(
            bootstrap_servers=self.layout.bootstrap_servers,
            random=self.world.random(f"admin {name}"),
        ) as admin:
            (await admin.create_topics([topic])).unwrap()

    async def configure(self, configs: Mapping[str, str], of: ConfigResource = ORDERS) -> None:
        async with Admin(
            bootstrap_servers=self.layout.bootstrap_servers, random=self.world.random("configure")
        ) as admin:
            (await admin.alter_configs({of: configs})).unwrap()

    async def send(
        self, *values: bytes, topic: str = "orders", servers: Iterable[int] = IDS, **settings: Any
    ) -> None:
        """Send one after the other; each is acknowledged before the next.

        The first of ``servers`` that answers says who leads.
        """
        async with Producer(
            bootstrap_servers=",".join(f"node-{each}:{CLIENT_PORT}" for each in servers),
            random=self.world.random("producer"),
            now_ms=self.client.clock.now_ms,
            **settings,
        ) as producer:
            for value in values:
                await (await producer.send(topic, value, partition=0))

    async def read_all(self, topic: str = "orders", **settings: Any) -> list[bytes | None]:
        """Return the values that a consumer sees, when it has seen nothing new for a while."""
        values: list[bytes | None] = []
        async with Consumer(
            topic,
            bootstrap_servers=self.layout.bootstrap_servers,
            auto_offset_reset="earliest",
            random=self.world.random("consumer"),
            now_ms=self.client.clock.now_ms,
            **settings,
        ) as consumer:
            while polled := await consumer.poll(timeout=2.0):
                for records in polled.values():
                    values.extend(record.value for record in records)
        return values


@contextmanager
def three_nodes(**configs: str) -> Iterator[ThreeNodes]:
    """Start three nodes and create ``orders``; ``a_b="c"`` is the config ``a.b=c``."""
    with nodes_in_racks({}, **configs) as nodes:
        yield nodes


@contextmanager
def nodes_in_racks(racks: Mapping[int, str], **configs: str) -> Iterator[ThreeNodes]:
    """The same, of nodes that say in which rack they are."""
    with World(1) as world:
        named = {key.replace("_", "."): text for key, text in configs.items()}
        nodes = ThreeNodes(world, named, racks=racks)
        nodes.run(nodes.create())
        at = TopicPartition("orders", 0)
        nodes.wait_until(
            lambda: (
                all(nodes.node(each).broker.replicas.find(at) for each in IDS)
                and nodes.replica(1).is_leader
                and nodes.isr() == set(IDS)
            )
        )
        yield nodes
