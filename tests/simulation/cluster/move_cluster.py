"""The story of ``data_cluster`` in which partitions move from broker to broker all the while.

I4   what joins an ISR has all that is committed
I14  a move takes no partition below the copies that it had in sync, or that it is to have
I9   the leader epoch rises when replicas leave: they are fenced

When the storm is over, every move ends by itself.

No broker is restarted in order, as then some producers may have to write twice: a clean stop keeps
the last batch of each producer, and one that sends the last but one again is taken for out of order
(as in Kafka, where the client then begins a new epoch).
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from odradek.client import Admin
from odradek.client.errors import KafkaError
from odradek.core.ids import TopicPartition, Uuid
from odradek.metadata.image import ClusterImage
from odradek.metadata.partition import LeaderRecoveryState, PartitionImage
from odradek.testing.simulation import SimNode, World
from tests.simulation.cluster.data_cluster import DataCluster
from tests.simulation.cluster.data_workload import AGAIN, INPUTS, LOOSE, OUTPUTS
from tests.simulation.cluster.faults import Fault
from tests.simulation.cluster.machine import Machine
from tests.simulation.cluster.oracle import ViolationError
from tests.simulation.cluster.replica_oracle import ReplicaOracle, first_difference
from tests.simulation.cluster.workload import make_admin

MOVED: Final = (
    *INPUTS,
    *OUTPUTS,
    *LOOSE,
    *AGAIN,
    *(TopicPartition("__consumer_offsets", number) for number in range(2)),
    *(TopicPartition("__transaction_state", number) for number in range(2)),
)
REPLICAS: Final = (2, 2, 3)
"""How many a partition gets: at least min.insync.replicas, and two for those that need one."""
KINDS: Final = (
    *("kill", "power", "pause", "stall", "crash-in-write", "slow-start", "slow-disk"),
    *("isolate", "deafen", "mute", "cut", "one-way", "reset", "slow", "lag", "split"),
    *("lose-answers", "clock-jump", "clock-drift"),
)
SECONDS_BETWEEN_MAX: Final = 1.5
SETTLED_SECONDS: Final = 10.0
"""How long a machine runs until nothing is under way any more that it asked for before."""


class MoveOracle(ReplicaOracle):
    def check(self, machine: Machine) -> None:
        super().check(machine)
        _, mirrors = self._mirrors.get(machine.name, (0, {}))
        there = {(each.topic_id, each.key.partition) for each in self.partitions_of(machine)}
        for at in [each for each in mirrors if there and each not in there]:
            mirror = mirrors.pop(at)  # its replica has left, and may come again with a new log
            if mirror.leads is not None:
                topic = mirror.log.partition.topic
                self._note_end(topic, self.truth_of(*at), mirror.leads[0])

    def _on_change(
        self, topic_id: Uuid, number: int, old: PartitionImage | None, new: PartitionImage
    ) -> None:
        super()._on_change(topic_id, number, old, new)
        if old is None:
            return
        if new.leader_recovery_state is LeaderRecoveryState.RECOVERED:
            for each in sorted(set(new.isr).difference(old.isr, old.elr)):
                self._check_joined(topic_id, number, each)
        if old.replicas == new.replicas:
            return
        self.reached["moves begun"] += bool(new.adding and new.adding != old.adding)
        gone = set(old.replicas).difference(new.replicas)
        if not gone:
            return
        self.reached["moves over" if gone & set(old.removing) else "moves cancelled"] += 1
        where = f"partition {number} of {topic_id}"
        if new.leader_epoch == old.leader_epoch:
            raise ViolationError(f"{where}: {gone} have left in leader epoch {new.leader_epoch}")
        if new.partition_epoch > old.partition_epoch + 1:
            return  # more has happened than that
        copies = set(old.isr).difference(old.adding)
        if len(new.isr) < min(len(copies), len(new.replicas)):
            raise ViolationError(
                f"{where}: {copies} were in sync, and a move leaves {new.isr} of {new.replicas}"
            )

    def _check_joined(self, topic_id: Uuid, number: int, broker: int) -> None:
        """Check that a replica which is taken into the ISR has all that is committed."""
        truth, machine = self.truth_of(topic_id, number), self._cluster.machine_of(broker)
        life, mirrors = self._mirrors.get(machine.name, (0, {}))
        runs_for = self._cluster.world.now - machine.started_at
        if life != machine.lives or runs_for < SETTLED_SECONDS or truth.unclean_epoch:
            return  # it may have crashed since its leader asked for that
        known = [each for each in truth.committed if each.base_offset >= truth.start_offset]
        mirror = mirrors.get((topic_id, number))
        found = [] if mirror is None else mirror.between(truth.start_offset, truth.committed_end)
        if found != known:
            raise ViolationError(
                f"partition {number} of {topic_id}: {broker} joins the ISR without what is "
                f"committed: {first_difference(known, found)}"
            )


class Mover:
    """An operator who moves partitions, has second thoughts, and stops what does not end."""

    def __init__(self, cluster: DataCluster, node: SimNode, ends: float) -> None:
        self._cluster = cluster
        self._node = node
        self._ends = ends
        self._random = cluster.world.random("mover")
        self._brokers = [place.node_id for place in cluster.layout.brokers]

    async def run(self) -> None:
        while self._cluster.world.now < self._ends:
            try:
                async with make_admin(self._cluster, self._node, "moves") as admin:
                    while self._cluster.world.now < self._ends:
                        await self._step(admin)
                        await asyncio.sleep(self._random.uniform(0, SECONDS_BETWEEN_MAX))
            except KafkaError:  # nobody answers: a new client
                await asyncio.sleep(0.5)

    async def _step(self, admin: Admin) -> None:
        at = self._random.choice(MOVED)
        what, target = "cancel a move", None
        if self._random.random() < 0.75:
            count = self._random.choice(REPLICAS)
            what, target = "move", self._random.sample(self._brokers, count)
        wanted: dict[TopicPartition, Sequence[int] | None] = {at: target}
        results = await admin.alter_partition_reassignments(wanted)
        self._cluster.ledger.count(what, results[at].error)
        self._cluster.say(f"{what} {at} {target}: {results[at].error}")


class MoveCluster(DataCluster):
    def __init__(self, world: World, **options: Any) -> None:
        super().__init__(world, **options)
        self.replica_oracle = MoveOracle(self)

    def draw_schedule(self, count: int, only: Sequence[str]) -> list[Fault]:
        return super().draw_schedule(count, only or KINDS)

    def begin_work(self) -> None:
        super().begin_work()
        node = self.clients[1]
        mover = Mover(self, node, self.world.now + self._storm_seconds)
        self._tasks.append(node.spawn(mover.run()))

    def problems_of(self, image: ClusterImage) -> list[str]:
        moving = [
            f"{topic.name}-{number} moves: {partition}"
            for topic in image.topics.values()
            for number, partition in topic.partitions.items()
            if partition.adding or partition.removing
        ]
        return super().problems_of(image) + moving
