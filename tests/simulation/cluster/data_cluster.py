"""A cluster with replicated data: the story of ``cluster``, with clients that write and read."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from random import Random
from typing import Any, Final

from odradek.broker.internal_topics import GROUP_TOPIC
from odradek.client import NewTopic
from odradek.client.consumer.records import AnyRecord
from odradek.client.errors import KafkaError
from odradek.core.ids import TopicPartition
from odradek.core.java_hash import partition_of
from odradek.metadata.image import ClusterImage
from odradek.testing.anomalies import (
    Event,
    Isolation,
    Kind,
    Operation,
    Recorder,
    Report,
    check,
)
from odradek.testing.simulation import SimNode, World
from tests.simulation.cluster.cluster import HEAL_SECONDS_MAX, START_SECONDS_MAX, Cluster
from tests.simulation.cluster.data_admin import DataAdministrator
from tests.simulation.cluster.data_faults import (
    COORDINATOR,
    DATA_KINDS,
    DATA_LEADER,
    FLUSHED_KINDS,
)
from tests.simulation.cluster.data_workload import (
    AGAIN,
    KEYS,
    LOOSE,
    Copier,
    LooseSender,
    Member,
    Poller,
    Sender,
    Transactional,
    Worker,
    drain,
)
from tests.simulation.cluster.faults import Fault, draw_schedule
from tests.simulation.cluster.layout import Layout, draw_layout
from tests.simulation.cluster.oracle import ViolationError
from tests.simulation.cluster.replica_oracle import ReplicaOracle
from tests.simulation.cluster.workload import make_admin

DATA_SHAPES: Final = ("3 combined", "3 controllers, 3 brokers")
DATA_FAULTS: Final = 10
DATA_STORM_SECONDS: Final = 25.0
DATA_CONFIGS: Final = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "2000",
    "group.initial.rebalance.delay.ms": "0",
    "controller.quorum.retry.backoff.ms": "100",  # else most that is sent are vain tries
    "log.flush.interval.messages": "9223372036854775807",
    "log.index.interval.bytes": "512",  # less to scan
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "1000",
}
TOPICS: Final = {"in": (3, 3, 2), "out": (2, 3, 2), "loose": (2, 2, 1), "again": (1, 3, 2)}
"""Partitions, replicas, min.insync.replicas."""


NOT_RELIED_ON: Final = ("loose-", "again-")
"""Topics whose records may go, by what they are for."""


class DataCluster(Cluster):
    has_data_traffic = True
    elects_by_itself = True
    """Whether the controller elects uncleanly where that is allowed, and no operator has to."""

    def __init__(self, world: World, **options: Any) -> None:
        options.setdefault("storm_seconds", DATA_STORM_SECONDS)
        options.setdefault("faults", DATA_FAULTS)
        super().__init__(world, **options)
        self.recorder = Recorder(self.clients[0].clock)
        self.replica_oracle = ReplicaOracle(self)
        self.sent_loosely: set[str] = set()
        self._owners: dict[tuple[str, int, TopicPartition], str] = {}
        self._values = count(1)
        for machine in self.machines.values():
            machine.may_lose_power = self._may_lose_power

    # What the seed decides.

    def draw_layout(self, shape: str | None) -> Layout:
        random = self.world.random("data layout")
        chosen = shape or random.choice(DATA_SHAPES)
        self._is_power_bad = random.random() < 0.3
        self._is_unclean = random.random() < 0.3
        self.is_flushed = self.world.random("durability").random() < 0.2
        layout = draw_layout(self.world.random("layout"), chosen)
        configs = {
            **layout.configs,
            **DATA_CONFIGS,
            "replica.lag.time.max.ms": random.choice(["2000", "6000"]),
            "metadata.max.idle.interval.ms": random.choice(["1000", "5000"]),
            **({"log.flush.interval.messages": "1"} if self.is_flushed else {}),
        }
        features = () if random.random() < 0.7 else ("eligible.leader.replicas.version=0",)
        return replace(layout, configs=configs, features=features)

    def draw_schedule(self, count: int, only: Sequence[str]) -> list[Fault]:
        return draw_schedule(
            self.world.random("faults"),
            list(self.machines),
            [client.name for client in self.clients],
            count=count,
            only=only,
            seconds=self._storm_seconds,
            victims=(DATA_LEADER, DATA_LEADER, COORDINATOR),
            kinds_of=FLUSHED_KINDS if self.is_flushed else DATA_KINDS,
        )

    def find_role(self, name: str) -> str | None:
        topic, number = {DATA_LEADER: ("in", 0), COORDINATOR: ("__consumer_offsets", 0)}[name]
        image = self.oracle.latest
        found = None if image is None else image.topics.get(topic)
        leader = -1 if found is None else found.partitions[number].leader
        return None if leader < 0 else self.machine_of(leader).name

    def _may_lose_power(self) -> bool:
        """Whether power goes as it likes, or else one disk's last writes are in all others now."""
        image = self.oracle.latest
        return (self._is_power_bad or self.is_flushed) or (
            (image is not None)
            and all(
                set(partition.isr) == set(partition.replicas)
                for topic in image.topics.values()
                for partition in topic.partitions.values()
                if len(partition.replicas) > 1
            )
        )

    # The story.

    def start(self) -> None:
        for machine in self.machines.values():
            machine.start()
        self._wait_until_well(START_SECONDS_MAX)
        node = self.clients[0]

        async def create() -> None:
            topics = []
            for name, (partitions, replicas, least) in TOPICS.items():
                configs = {"min.insync.replicas": str(least)}
                if self.may_lose(name) and self.elects_by_itself:
                    configs["unclean.leader.election.enable"] = "true"
                topics.append(NewTopic(name, partitions, replicas, configs=configs))
            async with make_admin(self, node, "create") as admin:
                (await admin.create_topics(topics)).unwrap()

        self.world.run_until_done(node.spawn(create()), 120)

    def begin_work(self) -> None:
        random = self.world.random("work")
        workers: list[Worker] = [Sender(self, self.clients[0], "sender")]
        workers += self._draw_workers(random)
        self._tasks = [each.node.spawn(each.run()) for each in workers]
        self._tasks.append(self.clients[1].spawn(DataAdministrator(self, self.clients[1]).run()))

    def _draw_workers(self, random: Random) -> list[Worker]:
        one, two, three = self.clients
        workers: list[Worker] = []
        workers.append(LooseSender(self, two, "loose", random.choice(("0", "1")), LOOSE))
        workers.append(LooseSender(self, two, "again", "all", AGAIN))
        isolation = random.choice([*Isolation])
        workers.append(Poller(self, three, "poller", isolation))
        if random.random() < 0.6:
            protocol = random.choice(("classic", "consumer"))
            nodes: tuple[SimNode, ...] = (two, three)
            workers += [
                Member(self, node, f"member-{number}", "members", protocol)
                for number, node in enumerate(nodes)
            ]
        if random.random() < 0.6:
            workers.append(Copier(self, one, "copier"))
        if random.random() < 0.6:
            workers.append(Transactional(self, three, "transactional"))
        return workers

    def new_value(self, name: str) -> str:
        return f"{name} {next(self._values)}"

    def on_loose_read(self, records: Sequence[AnyRecord]) -> None:
        for record in records:
            value = (record.value or b"").decode()
            if value not in self.sent_loosely:
                raise ViolationError(f"{value!r} was read from {record.topic}; nobody sent it")

    def on_owned(self, group: str, generation: int, member: str, key: TopicPartition) -> None:
        """I11: a partition has one owner in a generation (or epoch) of its group."""
        owner = self._owners.setdefault((group, generation, key), member)
        if owner != member and not self._has_lost_group(group):
            raise ViolationError(
                f"{key} belongs to {owner} and {member} in generation {generation} of {group}"
            )
        self.oracle.reached["partitions owned"] += 1

    def _has_lost_group(self, group: str) -> bool:
        """Return whether records of the group may be lost, so that it counts generations anew."""
        number = partition_of(group, int(DATA_CONFIGS["offsets.topic.num.partitions"]))
        return f"{GROUP_TOPIC}-{number}" in self.replica_oracle.losses

    def min_isr(self, topic: str) -> int:
        return TOPICS[topic][2] if topic in TOPICS else int(DATA_CONFIGS["min.insync.replicas"])

    def may_lose(self, topic: str) -> bool:
        return self._is_unclean and topic == "loose"

    def problems_of(self, image: ClusterImage) -> list[str]:
        found = super().problems_of(image)
        for topic in image.topics.values():
            for number, partition in topic.partitions.items():
                if set(partition.isr) != set(partition.replicas):
                    found.append(
                        f"{topic.name}-{number}: only {partition.isr} of {partition.replicas} "
                        "are in sync"
                    )
        return found

    def check_end(self) -> None:
        if not self._has_lost():  # else a transaction may be open for good
            self._drain()
        self._wait_until_equal(HEAL_SECONDS_MAX)
        self._check_replicas()
        for machine in self.machines.values():
            self.oracle.check(machine)
        self.oracle.check_controllers()
        assert self.oracle.latest is not None
        self.ledger.check(self.oracle.latest)
        self._check_images_agree()
        self._check_history()

    def _drain(self) -> None:
        node = self.clients[0]
        try:
            self.world.run_until_done(node.spawn(drain(self, node)), 120)
        except KafkaError as error:
            raise ViolationError(f"not everything can be read: {error!r}") from error

    def _check_history(self) -> None:
        history = self.recorder.history()
        report = check(history, drained=frozenset(KEYS))
        self.oracle.most["operations"] = report.operations
        self.oracle.most["values read"] = report.records_read
        self.oracle.reached.update(self.replica_oracle.reached)
        if self._has_lost():
            self.oracle.reached["histories with losses"] += 1
        elif report.bad and not self._are_stale_reads(report, history):
            raise ViolationError(str(report))

    def _has_lost(self) -> bool:
        """Whether something may be missing that clients or coordinators rely on."""
        return any(not each.startswith(NOT_RELIED_ON) for each in self.replica_oracle.losses)

    def _are_stale_reads(self, report: Report, history: Sequence[Event]) -> bool:
        """Whether all that is wrong are offsets from a coordinator that was none any more.

        As with Kafka: a leader that is cut off from the controllers, and does not know that another
        one was elected, goes on to answer clients that reach it from what it has.
        """
        spans = self.replica_oracle.led_twice.get("__consumer_offsets", [])
        for each in report.bad:
            if each.kind is Kind.PROCESSED_TWICE:
                continue  # it follows from a read
            read = history[each.operations[-1]]
            assert isinstance(read, Operation)
            start, end = read.invoked_at / 1e6, read.completed_at / 1e6
            if each.kind is not Kind.OFFSET_WENT_BACK or not any(
                began <= end and start <= over for began, over in spans
            ):
                return False
        self.oracle.reached["stale offsets"] += 1
        return any(each.kind is Kind.OFFSET_WENT_BACK for each in report.bad)

    def _wait_until_equal(self, seconds_max: float) -> None:
        end = self.world.now + seconds_max
        while problems := self._replica_problems():
            if self.world.now >= end:
                raise ViolationError(f"after {seconds_max} s: {'; '.join(problems[:6])}")
            self.world.run_for(0.1)

    def _replica_problems(self) -> list[str]:
        """Say which replicas are not where their leader is, and what is open in them."""
        found: list[str] = []
        ends: dict[TopicPartition, set[int]] = {}
        for machine in self.machines.values():
            for partition in self.replica_oracle.partitions_of(machine):
                log, key = partition.log, partition.key
                ends.setdefault(key, set()).add(log.log_end_offset)
                if log.high_watermark != log.log_end_offset:
                    found.append(
                        f"{key} on {machine.name}: high watermark {log.high_watermark}, end "
                        f"{log.log_end_offset}"
                    )
                elif log.last_stable_offset != log.high_watermark and not self._has_lost():
                    found.append(f"{key} on {machine.name}: a transaction is open")
        found += [f"{key} ends at {each}" for key, each in ends.items() if len(each) > 1]
        return found or self._missing_replicas()

    def _missing_replicas(self) -> list[str]:
        """Say which machines do not have a new partition yet."""
        image = self.oracle.latest
        assert image is not None
        present = {
            (machine.place.node_id, partition.topic_id, partition.key.partition)
            for machine in self.machines.values()
            for partition in self.replica_oracle.partitions_of(machine)
        }
        return [
            f"{topic.name}-{number} is not on {node_id} yet"
            for topic in image.topics.values()
            for number, partition in topic.partitions.items()
            for node_id in partition.replicas
            if (node_id, topic.topic_id, number) not in present
        ]

    def _check_replicas(self) -> None:
        image = self.oracle.latest
        assert image is not None
        for machine in self.machines.values():
            self.replica_oracle.check(machine)
        for topic in image.topics.values():
            for number, partition in topic.partitions.items():
                names = [self.machine_of(each).name for each in partition.replicas]
                self.replica_oracle.check_equal(topic.topic_id, number, names)

    def _after_round(self, name: str) -> None:
        super()._after_round(name)
        machine = self.machines.get(name)
        if machine is not None:
            self.has_crashed_in_write |= machine.disk.is_off
            self.replica_oracle.check(machine)
            self.replica_oracle.check_image()
