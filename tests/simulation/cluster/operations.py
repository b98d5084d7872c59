"""An operator at work on a cluster whose clients never stop: whatever CLUSTER.md lets one do.

It moves partitions and cancels that, throttles moves, moves replicas between directories, cordons
directories, has leaders elected (uncleanly, where a seed allows that), and changes the voters. A
second one drains a broker, stops and unregisters it, and brings it back as a new one.

What an operator asks for may fail: that is counted, and it goes on with something else.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from odradek.client import Admin
from odradek.client.admin.brokers import QuorumEndpoint
from odradek.client.admin.configs import ConfigResource
from odradek.client.admin.log_dirs import TopicPartitionReplica
from odradek.client.admin.partitions import ElectionType
from odradek.client.errors import KafkaError
from odradek.core.ids import TopicPartition, Uuid
from odradek.metadata.partition import PartitionImage
from odradek.testing.simulation import SimNode
from tests.simulation.cluster.data_workload import LOOSE
from tests.simulation.cluster.layout import CONTROLLER_PORT
from tests.simulation.cluster.move_cluster import MOVED, REPLICAS
from tests.simulation.cluster.workload import make_admin

if TYPE_CHECKING:
    from tests.simulation.cluster.operations_cluster import OperationsCluster

Step = Callable[[Admin], Awaitable[None]]

SECONDS_BETWEEN_MAX: Final = 1.0
DRAIN_ROUNDS_MAX: Final = 8
RATES: Final = ("200", "2000", "20000")
"""In bytes per second: next to nothing, less than what is written, and more."""
RATE_CONFIGS: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
REPLICA_CONFIGS: Final = (
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)
CORDONED: Final = "cordoned.log.dirs"
VOTERS_MIN: Final = 2


class Operator:
    def __init__(self, cluster: "OperationsCluster", node: SimNode, name: str, ends: float) -> None:
        self._cluster = cluster
        self.node = node
        self._name = name
        self._ends = ends
        self._random = cluster.world.random(name)

    async def run(self) -> None:
        while self._cluster.world.now < self._ends:
            try:
                async with make_admin(self._cluster, self.node, self._name) as admin:
                    while self._cluster.world.now < self._ends:
                        await self._take(admin, self._random.choice(self.steps()))
                        await asyncio.sleep(self._random.uniform(0, SECONDS_BETWEEN_MAX))
            except KafkaError:  # nobody answers: a new client
                await asyncio.sleep(0.5)

    def steps(self) -> Sequence[Step]:
        """Return what may be done next; what stands there twice is done more often."""
        cautious = [
            *(self._move, self._move, self._move, self._cancel),
            *(self._throttle, self._cordon, self._move_directory, self._move_directory),
            *(self._elect, self._change_voters, self._change_voters),
        ]
        if not self._cluster.is_unclean:
            return cautious
        # A partition is without a leader for a few seconds only: one in two, then.
        return [*cautious, *[self._elect_uncleanly] * (len(cautious) if self._offline() else 1)]

    async def _take(self, admin: Admin, step: Step) -> None:
        what = step.__name__.removeprefix("_").replace("_", " ")
        try:
            await step(admin)
        except KafkaError as error:
            self._note(what, error)

    def _note(self, what: str, error: Exception | None) -> None:
        self._cluster.ledger.count(what, error)
        self._cluster.say(f"{self._name}: {what}: {'done' if error is None else error}")
        if error is None:
            self._cluster.oracle.reached[f"operator: {what}"] += 1

    # Partitions.

    async def _move(self, admin: Admin) -> None:
        at = self._random.choice(MOVED)
        staying = self._cluster.staying
        count = min(self._random.choice(REPLICAS), len(staying))
        target = self._random.sample(staying, count)
        results = await admin.alter_partition_reassignments({at: target})
        self._note("move", results[at].error)

    async def _cancel(self, admin: Admin) -> None:
        at = self._random.choice(self._moving() or MOVED)
        results = await admin.alter_partition_reassignments({at: None})
        self._note("cancel", results[at].error)

    def _moving(self) -> list[TopicPartition]:
        return [
            TopicPartition(topic.name, number)
            for topic in self._cluster.image.topics.values()
            for number, partition in topic.partitions.items()
            if partition.adding or partition.removing
        ]

    async def _throttle(self, admin: Admin) -> None:
        """Throttle all replicas of a topic, or none of any: as a reassignment's tool does."""
        if self._random.random() < 0.4:
            await self._cluster.stop_throttles(admin)
            self._note("stop throttles", None)
            return
        topic = ConfigResource.topic(self._random.choice(MOVED).topic)
        rate = self._random.choice(RATES)
        changes = {
            ConfigResource.broker(each): dict.fromkeys(RATE_CONFIGS, rate)
            for each in self._cluster.broker_ids
        }
        changes[topic] = dict.fromkeys(REPLICA_CONFIGS, "*")
        (await admin.alter_configs(changes)).unwrap()
        self._note("throttle", None)

    async def _elect(self, admin: Admin) -> None:
        for result in (await admin.elect_leaders([self._random.choice(MOVED)])).values():
            self._note("elect", result.error)

    async def _elect_uncleanly(self, admin: Admin) -> None:
        partitions = self._offline() or LOOSE
        results = await admin.elect_leaders(partitions, election=ElectionType.UNCLEAN)
        for result in results.values():
            self._note("elect uncleanly", result.error)

    def _offline(self) -> list[TopicPartition]:
        """Return the partitions that have no leader, of those that may lose records."""
        topics = self._cluster.image.topics
        return [
            at
            for at in LOOSE
            if at.topic in topics and topics[at.topic].partitions[at.partition].leader < 0
        ]

    # Directories.

    async def _move_directory(self, admin: Admin) -> None:
        at = self._random.choice(MOVED)
        topic = self._cluster.image.topics.get(at.topic)
        if topic is None:
            return
        broker = self._random.choice(topic.partitions[at.partition].replicas)
        replica = TopicPartitionReplica(at.topic, at.partition, broker)
        path = self._random.choice(self._cluster.directories)
        results = await admin.alter_replica_log_dirs({replica: path})
        self._note("move directory", results[replica].error)

    async def _cordon(self, admin: Admin) -> None:
        broker = self._random.choice(self._cluster.broker_ids)
        value = self._random.choice(("", *self._cluster.directories, "*"))
        changes = {ConfigResource.broker(broker): {CORDONED: value}}
        (await admin.alter_configs(changes)).unwrap()
        self._note("cordon" if value else "uncordon", None)

    # Voters.

    async def _change_voters(self, admin: Admin) -> None:
        leader = self._cluster.leader()
        if leader is None or leader.quorum is None:
            return
        quorum = leader.quorum
        voters = quorum.raft.voters.voters
        known = self._cluster.controller_keys()
        others = [key for node_id, key in known.items() if node_id not in quorum.voter_ids]
        if others and (len(voters) <= VOTERS_MIN or self._random.random() < 0.6):
            key = self._random.choice(others)
            endpoint = QuorumEndpoint("CONTROLLER", f"node-{key.id}", CONTROLLER_PORT)
            await admin.add_raft_voter(key.id, key.directory_id or Uuid(16), [endpoint])
            self._note("add a voter", None)
        elif len(voters) > VOTERS_MIN:
            is_own = self._random.random() < 0.4
            key = quorum.replica_key if is_own else self._random.choice(voters)
            await admin.remove_raft_voter(key.id, key.directory_id or Uuid(16))
            self._note("remove a voter", None)


class Drainer(Operator):
    """Takes brokers out of the cluster, one at a time, and brings them back."""

    def steps(self) -> Sequence[Step]:
        return (self._replace_broker,)

    async def _replace_broker(self, admin: Admin) -> None:
        cluster = self._cluster
        broker = self._random.choice(cluster.broker_ids)
        cluster.leaving = broker
        try:
            if await self._drain(admin, broker):
                self._note("drain", None)
                await self._unregister(admin, broker)
        finally:
            cluster.leaving = None
            cluster.switch_on(broker)
        await asyncio.sleep(self._random.uniform(0, 4))

    async def _drain(self, admin: Admin, broker: int) -> bool:
        """Move all that a broker has to others; return whether it has nothing any more."""
        for _ in range(DRAIN_ROUNDS_MAX):
            there = self._partitions_of(broker)
            if not there:
                return True
            moves = self._plan_drain(there, broker)
            if moves:
                await admin.alter_partition_reassignments(moves)
            await asyncio.sleep(self._random.uniform(0.5, 1.5))
        return False

    def _partitions_of(self, broker: int) -> dict[TopicPartition, PartitionImage]:
        return {
            TopicPartition(topic.name, number): partition
            for topic in self._cluster.image.topics.values()
            for number, partition in topic.partitions.items()
            if broker in partition.replicas
        }

    def _plan_drain(
        self, there: Mapping[TopicPartition, PartitionImage], broker: int
    ) -> dict[TopicPartition, Sequence[int] | None]:
        """Return who shall have what a broker has, where it does not leave already."""
        moves: dict[TopicPartition, Sequence[int] | None] = {}
        for at, partition in there.items():
            if broker in partition.removing:
                continue
            leaving = {broker, *partition.removing}
            stay = [each for each in partition.replicas if each not in leaving]
            others = [each for each in self._cluster.staying if each not in stay]
            moves[at] = [*stay, *self._random.sample(others, min(1, len(others)))]
        return moves

    async def _unregister(self, admin: Admin, broker: int) -> None:
        cluster = self._cluster
        machine = cluster.machine_of(broker)
        life = machine.lives
        cluster.switch_off(broker)
        while machine.is_up and machine.lives == life:
            await asyncio.sleep(0.2)
        if machine.is_up:
            return  # it was started again: by a fault that has passed
        await admin.unregister_broker(broker)
        self._note("unregister", None)
        await asyncio.sleep(self._random.uniform(0.2, 3))
