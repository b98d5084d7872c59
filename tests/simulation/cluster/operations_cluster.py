"""The story of ``data_cluster`` with all that an operator does to a cluster at the same time.

Four brokers with two log directories each, and voters by the log. Beside the faults of ``data``, a
log directory fails now and then: what it had gets its leaders elsewhere, and its broker stays up.

When the storm is over, the operator takes away throttles and cordons, and starts what is down.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from odradek.client import Admin
from odradek.client.admin.configs import ConfigResource
from odradek.client.errors import KafkaError
from odradek.metadata.image import ClusterImage
from odradek.raft.messages import ReplicaKey
from odradek.testing.simulation import World
from tests.simulation.cluster.data_cluster import DataCluster
from tests.simulation.cluster.data_faults import COORDINATOR, DATA_KINDS, DATA_LEADER
from tests.simulation.cluster.faults import DIRECTORY_KINDS, Fault, draw_schedule
from tests.simulation.cluster.layout import Layout
from tests.simulation.cluster.machine import Machine
from tests.simulation.cluster.move_cluster import MOVED, MoveCluster
from tests.simulation.cluster.operations import (
    CORDONED,
    RATE_CONFIGS,
    REPLICA_CONFIGS,
    Drainer,
    Operator,
)
from tests.simulation.cluster.workload import make_admin

SHAPES: Final = ("4 combined", "3 controllers, 4 brokers")
FIRST_VOTERS: Final = 3
KINDS: Final = {**DATA_KINDS, **DIRECTORY_KINDS}
TIDY_SECONDS_MAX: Final = 60
RESTART_GRACE_SECONDS: Final = 90.0


class OperationsCluster(MoveCluster):
    directories = ("/data", "/more")
    elects_by_itself = False

    def __init__(self, world: World, **options: Any) -> None:
        super().__init__(world, **options)
        self.broker_ids = [place.node_id for place in self.layout.brokers]
        self.leaving: int | None = None
        """The broker that is being drained, or gone."""

    @property
    def image(self) -> ClusterImage:
        """What any machine knows to be committed."""
        return self.oracle.latest or ClusterImage()

    @property
    def staying(self) -> list[int]:
        return [each for each in self.broker_ids if each != self.leaving]

    @property
    def is_unclean(self) -> bool:
        return self.may_lose("loose")

    def controller_keys(self) -> Mapping[int, ReplicaKey]:
        """Return the controllers that are up, as voters are named."""
        found = [each for each in self.machines.values() if each.place.is_controller]
        quorums = [each.quorum for each in found]
        return {each.node_id: each.replica_key for each in quorums if each is not None}

    # What the seed decides.

    def draw_layout(self, shape: str | None) -> Layout:
        chosen = shape or self.world.random("operations layout").choice(SHAPES)
        layout = super().draw_layout(chosen)
        configs = {**layout.configs, "log.dirs": ",".join(self.directories)}
        return replace(layout, is_dynamic=True, first_voters=FIRST_VOTERS, configs=configs)

    def draw_schedule(self, count: int, only: Sequence[str]) -> list[Fault]:
        return draw_schedule(
            self.world.random("faults"),
            list(self.machines),
            [client.name for client in self.clients],
            count=count,
            only=only,
            seconds=self._storm_seconds,
            victims=(DATA_LEADER, DATA_LEADER, COORDINATOR),
            kinds_of=KINDS,
        )

    # The story.

    def begin_work(self) -> None:
        DataCluster.begin_work(self)
        ends = self.world.now + self._storm_seconds
        operators = [
            Operator(self, node, f"operator of {node.name}", ends) for node in self.clients
        ]
        operators.append(Drainer(self, self.clients[1], "drainer", ends))
        self._tasks += [each.node.spawn(each.run()) for each in operators]

    def switch_off(self, broker: int) -> None:
        """Stop a broker in order, for it is to be unregistered."""
        machine = self.machine_of(broker)
        now = self.world.now
        self.nemesis.hurt[machine.name].append((now, now + RESTART_GRACE_SECONDS))
        # Someone may have started it again when it is unregistered: then it gives up.
        self.nemesis.broken_disks.add(machine.name)
        self.world.call_at(now, machine.stop)

    def switch_on(self, broker: int) -> None:
        self.world.call_at(self.world.now, self.machine_of(broker).start)

    def _on_exit(self, machine: Machine, failure: BaseException) -> None:
        """Start again what gave up: a broker that was unregistered while it ran."""
        super()._on_exit(machine, failure)
        self.world.call_later(1.0, machine.start)

    async def stop_throttles(self, admin: Admin) -> None:
        topics = sorted({at.topic for at in MOVED} & set(self.image.topics))
        changes = {
            ConfigResource.broker(each): dict.fromkeys(RATE_CONFIGS) for each in self.broker_ids
        }
        changes |= {ConfigResource.topic(each): dict.fromkeys(REPLICA_CONFIGS) for each in topics}
        (await admin.alter_configs(changes)).unwrap()

    def check_well(self) -> None:
        node = self.clients[1]
        self.world.run_until_done(node.spawn(self._tidy()), TIDY_SECONDS_MAX)
        super().check_well()

    async def _tidy(self) -> None:
        while True:
            for machine in self.machines.values():
                self.world.call_at(self.world.now, machine.start)
            try:
                async with make_admin(self, self.clients[1], "tidy") as admin:
                    await self.stop_throttles(admin)
                    brokers = map(ConfigResource.broker, self.broker_ids)
                    (await admin.alter_configs({each: {CORDONED: ""} for each in brokers})).unwrap()
                    return
            except KafkaError as error:
                self.say(f"tidy: {error}")
