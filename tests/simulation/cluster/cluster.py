"""A cluster of whole nodes in a simulated world: one seed, one story.

    story = Cluster(World(seed), schedule=…)
    story.run()

The story: machines start, clients work, faults come and pass, everything heals. Then the cluster
must be well within a while, with all that it ever acknowledged.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

from odradek.client import NewTopic
from odradek.client.errors import KafkaError
from odradek.core.config import BrokerConfig
from odradek.metadata import NO_LEADER
from odradek.metadata.image import ClusterImage
from odradek.node.node import Node
from odradek.quorum.node_ports import NodePorts
from odradek.testing.simulation import SimNode, World
from tests.simulation.cluster.faults import Fault, draw_schedule
from tests.simulation.cluster.layout import Formatting, Layout, draw_layout
from tests.simulation.cluster.ledger import Ledger
from tests.simulation.cluster.machine import AnyNode, Machine
from tests.simulation.cluster.nemesis import Nemesis
from tests.simulation.cluster.oracle import Oracle, ViolationError
from tests.simulation.cluster.workload import (
    DATA_TOPIC,
    Administrator,
    flood,
    make_admin,
    produce,
    read_all,
)

CLIENTS: Final = 3
FAULTS: Final = 15
STORM_SECONDS: Final = 45.0
START_SECONDS_MAX: Final = 60.0
HEAL_SECONDS_MAX: Final = 60.0
LINES_MAX: Final = 400


class Cluster:
    def __init__(
        self,
        world: World,
        *,
        shape: str | None = None,
        schedule: Sequence[Fault] | None = None,
        faults: int = FAULTS,
        only: Sequence[str] = (),
        storm_seconds: float = STORM_SECONDS,
    ) -> None:
        """Without a ``schedule`` one is drawn, of so many ``faults``, ``only`` of some kinds."""
        self.world = world
        self.layout = self.draw_layout(shape)
        self.is_over = False
        self.lines: deque[str] = deque(maxlen=LINES_MAX)
        self._storm_seconds = storm_seconds
        formatting = Formatting(self.layout, world.random("format"))
        self.ledger = Ledger(formatting.cluster_id)
        make_node = self.make_node
        self.machines = {
            place.name: Machine(world, self.layout, place, formatting, self._on_exit, make_node)
            for place in self.layout.places
        }
        self.clients: list[SimNode] = [world.add_node(f"client-{n}") for n in range(CLIENTS)]
        if schedule is None:
            schedule = self.draw_schedule(faults, only)
        self.nemesis = Nemesis(self, schedule)
        self.oracle = Oracle(self)
        self.exits: list[str] = []
        self.has_crashed_in_write = False
        self._rounds = 0
        world.after_round = self._after_round

    # What the seed decides.

    def draw_layout(self, shape: str | None) -> Layout:
        return draw_layout(self.world.random("layout"), shape)

    def draw_schedule(self, count: int, only: Sequence[str]) -> list[Fault]:
        return draw_schedule(
            self.world.random("faults"),
            list(self.machines),
            [client.name for client in self.clients],
            count=count,
            only=only,
            seconds=self._storm_seconds,
        )

    # Who is what.

    def machine_of(self, node_id: int) -> Machine:
        return self.machines[f"node-{node_id}"]

    def leader(self) -> Machine | None:
        """Return the leader of the latest epoch, if there is one."""
        leading = [
            (machine.quorum.epoch, machine)
            for machine in self.machines.values()
            if machine.quorum is not None and machine.quorum.is_leader
        ]
        return max(leading, key=lambda pair: pair[0])[1] if leading else None

    def find_role(self, name: str) -> str | None:
        """Return the machine that plays a part now which is not the quorum's."""
        raise ValueError(f"who is {name}?")

    def min_isr(self, topic: str) -> int:
        """Return what a topic has for ``min.insync.replicas``."""
        return 1

    has_data_traffic = False
    is_flushed = False
    """Whether what is committed is synced (``flush.messages=1``): no loss of power takes it."""

    def may_lose(self, topic: str) -> bool:
        """Whether any unclean election of a topic may lose what was committed."""
        return False

    # The story.

    def make_node(self, config: BrokerConfig, ports: NodePorts) -> AnyNode:
        return Node(config, ports)

    def run(self) -> None:
        self.start()
        self.begin_work()
        self.nemesis.begin()
        self.world.run_for(self._storm_seconds)
        self.say("heals")
        self.nemesis.end()
        self.check_well()
        self.end_work()
        self.check_end()

    def begin_work(self) -> None:
        """Let clients work from now on."""
        tasks = [self.clients[0].spawn(produce(self, self.clients[0]))]
        tasks += [node.spawn(Administrator(self, node).run()) for node in self.clients]
        self._tasks = tasks

    def flood(self, seconds: float) -> None:
        """Give the controller much to do for a while."""
        for client in self.clients:
            client.spawn(flood(self, client, self.world.now + seconds))

    def end_work(self) -> None:
        self.is_over = True
        self.world.run_until(lambda: all(task.done() for task in self._tasks), 900)
        for task in self._tasks:
            task.result()

    def start(self) -> None:
        """Start all machines and make the topic for data."""
        for machine in self.machines.values():
            machine.start()
        self._wait_until_well(START_SECONDS_MAX)
        self._create(DATA_TOPIC, partitions=3)

    def check_well(self) -> None:
        """Check that the cluster is well within a while, and can be changed."""
        self._wait_until_well(HEAL_SECONDS_MAX)
        self._create("after the storm".replace(" ", "-"), partitions=len(self.layout.brokers))
        self._wait_until_well(HEAL_SECONDS_MAX)

    def check_end(self) -> None:
        for machine in self.machines.values():
            self.oracle.check(machine)
        self.oracle.check_controllers()
        assert self.oracle.latest is not None
        self.ledger.check(self.oracle.latest)
        reader = self.clients[0]
        self.ledger.check_records(
            self.world.run_until_done(reader.spawn(read_all(self, reader)), 600)
        )
        self._check_images_agree()

    def problems(self) -> list[str]:
        """Say why the cluster is not well."""
        found = [f"{name} is down" for name, each in self.machines.items() if not each.is_up]
        found += [f"{name} starts" for name, each in self.machines.items() if not each.is_serving]
        leader = self.leader()
        if leader is None or leader.quorum is None:
            return [*found, "the quorum has no leader"]
        epoch = leader.quorum.epoch
        for name, machine in self.machines.items():
            quorum = machine.quorum
            if quorum is None or (quorum.leader_id, quorum.epoch) != (leader.place.node_id, epoch):
                found.append(f"{name} does not know the leader {leader.name} of epoch {epoch}")
        return found + self.problems_of(leader.quorum.image)

    def problems_of(self, image: ClusterImage) -> list[str]:
        """Say what in the leader's image is not well."""
        found = []
        for place in self.layout.brokers:
            broker = image.brokers.get(place.node_id)
            if broker is None or broker.fenced:
                found.append(f"broker {place.node_id} is fenced, or not registered")
        for topic in image.topics.values():
            for number, partition in topic.partitions.items():
                if partition.leader == NO_LEADER:
                    found.append(f"{topic.name}-{number} has no leader")
        return found

    def _wait_until_well(self, seconds_max: float) -> None:
        end = self.world.now + seconds_max
        while problems := self.problems():
            if self.world.now >= end:
                raise ViolationError(f"after {seconds_max} s: {'; '.join(problems[:6])}")
            self.world.run_for(0.05)

    def _create(self, name: str, partitions: int) -> None:
        node = self.clients[0]

        async def create() -> None:
            async with make_admin(self, node, f"create {name}") as admin:
                new = NewTopic(name, partitions=partitions, replication_factor=1)
                created = (await admin.create_topics([new])).unwrap()[name]
                self.ledger.created[name] = created.topic_id
                self.ledger.partitions[name] = partitions

        try:
            self.world.run_until_done(node.spawn(create()), 120)
        except KafkaError as error:
            raise ViolationError(f"{name} cannot be created: {error}") from error
        self.on_acknowledged(name)

    def _check_images_agree(self) -> None:
        """Check that all machines come to have the leader's image."""
        self.world.run_until(lambda: self.leader() is not None, HEAL_SECONDS_MAX)
        leader = self.leader()
        assert leader is not None
        assert leader.quorum is not None
        offset = leader.quorum.loaded_offset

        def have_it() -> bool:
            quorums = [machine.quorum for machine in self.machines.values()]
            return all(each is not None and each.loaded_offset >= offset for each in quorums)

        self.world.run_until(have_it, HEAL_SECONDS_MAX)

    # What happens.

    def on_acknowledged(self, topic: str) -> None:
        """Check that what a client was just promised about a topic is committed."""
        if self.oracle.latest is None:
            raise ViolationError(f"{topic} was acknowledged and nothing is committed")
        self.ledger.check(self.oracle.latest, only=topic)

    def _after_round(self, name: str) -> None:
        machine = self.machines.get(name)
        if machine is None:
            return
        machine.after_round()
        self.oracle.check(machine)
        self._rounds += 1
        if self._rounds % 200 == 0:
            self.oracle.check_controllers()

    def _on_exit(self, machine: Machine, failure: BaseException) -> None:
        self.say(f"{machine.name} exits: {failure!r}")
        self.exits.append(f"{machine.name}: {failure!r}")
        if machine.name not in self.nemesis.broken_disks:
            error = ViolationError(f"{machine.name} gave up: {failure!r}")
            error.__cause__ = failure
            raise error

    def say(self, line: str) -> None:
        self.lines.append(f"{self.world.now:.3f} {line}")
