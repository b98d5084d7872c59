"""A cluster for tests, in this process: ``with Cluster(nodes=3) as cluster: …``.

The nodes are the real thing, each on a thread with an event loop of its own, with Kafka's protocol
on free ports of 127.0.0.1 and a disk in memory that outlives its process. They can be killed,
paused, cut off from each other and started again; their clocks and disks can be wrong.

Failures are noticed sooner than with Kafka's defaults (``TEST_CONFIG``): a node that is dead or
paused is fenced after half a second. ``config`` sets that and all else, as in
``server.properties``.

What blocks has a twin to await, ``…_async``. docs/testing.md has examples.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from random import SystemRandom
from types import TracebackType
from typing import Final, Self, TypeVar

from odradek.core.config import check_known
from odradek.core.ids import Uuid
from odradek.local.layout import VOTERS_WANTED, Layout, NodeLayout
from odradek.testing.cluster.asking import Asker, ClusterState, PartitionState
from odradek.testing.cluster.node import ClusterNode, Ports
from odradek.testing.cluster.wiring import CLIENTS, Wiring

NODES_MAX: Final = 20
MEMORY_BYTES_MAX: Final = 256 * 1024 * 1024
WAIT_SECONDS_MAX: Final = 30.0
_LOOK_SECONDS: Final = 0.01

T = TypeVar("T")

TopicSize = int | tuple[int, int]
"""Partitions, or partitions and copies of each."""


class Cluster:
    """``topics`` are created before it is ready: names, or how many partitions and copies.

    ``racks`` are given to the brokers in turn. The first three nodes are controllers, too (the
    first one, if there are fewer). ``memory_bytes_max`` is what the disk of a node can hold.
    """

    def __init__(
        self,
        *,
        nodes: int = 3,
        topics: Sequence[str] | Mapping[str, TopicSize] = (),
        racks: Sequence[str] = (),
        config: Mapping[str, str] | None = None,
        memory_bytes_max: int = MEMORY_BYTES_MAX,
    ) -> None:
        if not 1 <= nodes <= NODES_MAX:
            raise ValueError(f"{nodes} nodes: choose from 1 to {NODES_MAX}")
        check_known(dict(config or {}))
        self._size = nodes
        self._copies = min(nodes, VOTERS_WANTED)
        sizes = topics if isinstance(topics, Mapping) else dict.fromkeys(topics, 1)
        self._topics = {
            name: size if isinstance(size, tuple) else (size, self._copies)
            for name, size in sizes.items()
        }
        self._racks = tuple(racks)
        self._config = dict(config or {})
        self._memory_bytes_max = memory_bytes_max
        self._wiring = Wiring()
        self._asker: Asker | None = None
        self._nodes: dict[int, ClusterNode] = {}

    # Its nodes.

    def __getitem__(self, node_id: int) -> ClusterNode:
        """Return a node; the first one is 1."""
        return self._nodes[node_id]

    def __iter__(self) -> Iterator[ClusterNode]:
        return iter(self._nodes.values())

    def __len__(self) -> int:
        return len(self._nodes)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.bootstrap_servers for node in self)

    # Life.

    def start(self) -> None:
        """Return when all nodes serve and the topics have leaders."""
        assert self._asker is None, "started before"
        self._asker = Asker()
        try:
            self._make_nodes()
            for node in self:
                node.begin()
            for node in self:
                node.wait_ready()
            for name, (partitions, copies) in self._topics.items():
                self.create_topic(name, partitions, copies)
        except BaseException:
            self.stop()
            raise

    def _make_nodes(self) -> None:
        voters = VOTERS_WANTED if self._size >= VOTERS_WANTED else 1
        ports = [Ports.bind(is_controller=index < voters) for index in range(self._size)]
        try:
            layout = _lay_out(ports, self._racks)
            self._nodes = {
                place.id: ClusterNode(
                    layout, place, held, self._wiring, self._config, self._memory_bytes_max
                )
                for place, held in zip(layout.nodes, ports, strict=True)
            }
        except BaseException:
            for held in ports:
                held.close()
            raise

    def stop(self) -> None:
        """End all nodes and forget what they stored."""
        if self._asker is None:
            return
        self._wiring.heal()
        for node in self:
            node.give_up()
        self._asker.close()
        self._asker = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.stop)

    # What it is like.

    @property
    def state(self) -> ClusterState:
        """What its nodes say, at this moment."""
        assert self._asker is not None, "not started"
        return self._asker.state(self._addresses())

    def partition(self, topic: str, partition: int = 0) -> PartitionState | None:
        """Return who leads a partition and who has copies of it; None if no node knows it."""
        return self.state.topics.get(topic, {}).get(partition)

    def leader(self, topic: str, partition: int = 0) -> ClusterNode:
        """Return the node that leads a partition, as soon as there is one that runs."""

        def find() -> ClusterNode | None:
            found = self.partition(topic, partition)
            if found is None or found.leader is None or not self[found.leader].is_running:
                return None
            return self[found.leader]

        return self.wait_for(find, what=f"a leader of {topic}-{partition}")

    @property
    def controller(self) -> ClusterNode:
        """The node whose controller is active, as soon as there is one."""

        def find() -> ClusterNode | None:
            found = self.state.controller
            return self[found] if found is not None and self[found].is_running else None

        return self.wait_for(find, what="an active controller")

    @property
    def is_healthy(self) -> bool:
        """Whether every node serves, and every replica of every partition is in sync."""
        state = self.state
        return state.brokers == set(self._nodes) and all(
            each.leader is not None and each.isr == set(each.replicas)
            for _, _, each in state.partitions
        )

    def wait_for(
        self,
        condition: Callable[[], T | None],
        seconds: float = WAIT_SECONDS_MAX,
        what: str = "the condition",
    ) -> T:
        """Wait until the condition returns something that counts as true, and return that.

        Raises:
            TimeoutError: It did not in time; the message has the state of the cluster.
        """
        deadline = time.monotonic() + seconds
        while True:
            found = condition()
            if found:
                return found
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {seconds} s for {what}\n{self.describe()}")
            time.sleep(_LOOK_SECONDS)

    def wait_until_healthy(self, seconds: float = WAIT_SECONDS_MAX) -> None:
        """Wait until all nodes serve and all replicas are in sync."""
        self.wait_for(lambda: self.is_healthy, seconds, "all nodes and all replicas in sync")

    def describe(self) -> str:
        """Return the state of nodes and partitions, for people."""
        state = self.state
        lines = [f"controller {state.controller}, brokers {sorted(state.brokers)}"]
        lines += [f"node {node.id}: {node.condition.value}" for node in self]
        lines += [f"cut: {one or 'clients'} to {other}" for one, other in sorted(self._wiring.cuts)]
        lines += [
            f"{topic}-{number}: leader {each.leader} in epoch {each.leader_epoch},"
            f" ISR {sorted(each.isr)} of {list(each.replicas)}"
            for topic, number, each in state.partitions
        ]
        return "\n".join(lines)

    # What tests do to it.

    def create_topic(
        self, name: str, partitions: int = 1, copies: int | None = None, **configs: str
    ) -> None:
        """Create a topic, and return when all nodes that run know its leaders.

        Config names have underscores for dots (``min_insync_replicas="2"``).
        """
        assert self._asker is not None, "not started"
        named = {key.replace("_", "."): value for key, value in configs.items()}
        self._asker.create_topic(self._addresses(), name, partitions, copies or self._copies, named)
        for address in self._addresses():
            self.wait_for(
                lambda at=address: self._is_led_at(at, name, partitions),  # type: ignore[misc]
                what=f"leaders of {name}",
            )

    def cut(self, one: int, other: int, *, both_ways: bool = True) -> None:
        """Let nothing pass from one node to another; what is under way arrives when it is healed.

        Clients reach both nodes as before.
        """
        ways = {(one, other)}
        self._wiring.cut(ways | {(other, one)} if both_ways else ways)

    def isolate(self, node_id: int) -> None:
        """Cut a node off from all others, and from clients: what they send does not arrive."""
        others = set(self._nodes) - {node_id}
        ways = {way for other in others for way in ((node_id, other), (other, node_id))}
        self._wiring.cut(ways | {(CLIENTS, node_id)})

    def split(self, *sides: Iterable[int]) -> None:
        """Cut the network between sides; nodes that are not named are a side together.

        Clients reach all of them, and an old leader believes that it leads until it is healed.
        """
        named = [set(side) for side in sides]
        named.append(set(self._nodes) - set().union(*named))
        self._wiring.cut(
            {
                (one, other)
                for mine in named
                for theirs in named
                if mine is not theirs
                for one in mine
                for other in theirs
            }
        )

    def heal(self) -> None:
        """End all cuts."""
        self._wiring.heal()

    def mend(self, seconds: float = WAIT_SECONDS_MAX) -> None:
        """Undo what tests did (cuts, pauses, kills, faults of disks); wait until it is healthy."""
        self.heal()
        for node in self:
            node.disk.heal()
            node.mend()
        # The first answer may be to a heartbeat of before. Until the second a node that was silent
        # may still be fenced for it, and would seem healthy until then.
        for _ in range(2):
            self._wait_for_heartbeats(seconds)
        self.wait_until_healthy(seconds)

    def _wait_for_heartbeats(self, seconds: float) -> None:
        before = {node.id: node.heard_ms for node in self}
        for node in self:
            self.wait_for(
                lambda node=node: node.heard_ms != before[node.id],  # type: ignore[misc]
                seconds,
                f"a heartbeat of node {node.id} to be answered",
            )

    # Twins to await.

    async def leader_async(self, topic: str, partition: int = 0) -> ClusterNode:
        return await asyncio.to_thread(self.leader, topic, partition)

    async def wait_for_async(
        self,
        condition: Callable[[], T | None],
        seconds: float = WAIT_SECONDS_MAX,
        what: str = "the condition",
    ) -> T:
        """Do the same as ``wait_for``; the condition is called from another thread."""
        return await asyncio.to_thread(self.wait_for, condition, seconds, what)

    async def wait_until_healthy_async(self, seconds: float = WAIT_SECONDS_MAX) -> None:
        await asyncio.to_thread(self.wait_until_healthy, seconds)

    async def create_topic_async(
        self, name: str, partitions: int = 1, copies: int | None = None, **configs: str
    ) -> None:
        await asyncio.to_thread(self.create_topic, name, partitions, copies, **configs)

    async def mend_async(self, seconds: float = WAIT_SECONDS_MAX) -> None:
        await asyncio.to_thread(self.mend, seconds)

    def _addresses(self) -> list[tuple[str, int]]:
        return [node.address for node in self if node.is_running]

    def _is_led_at(self, address: tuple[str, int], topic: str, partitions: int) -> bool:
        assert self._asker is not None
        found = self._asker.state([address]).topics.get(topic, {})
        return len(found) == partitions and all(each.leader is not None for each in found.values())


def _lay_out(ports: Sequence[Ports], racks: Sequence[str]) -> Layout:
    random = SystemRandom()
    nodes = tuple(
        NodeLayout(
            index + 1,
            ("broker",) if held.controller is None else ("broker", "controller"),
            held.broker,
            held.controller,
            racks[index % len(racks)] if racks else None,
            None if held.controller is None else str(Uuid.random(random)),
        )
        for index, held in enumerate(ports)
    )
    return Layout(str(Uuid.random(random)), 0, nodes)
