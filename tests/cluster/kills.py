"""A cluster of three combined nodes that is killed, paused and restarted while clients work.

    python -m tests.cluster.kills 20 --pauses 5 --rolls 2 --seed 7

Every topic has three replicas and ``min.insync.replicas=2``, every producer is idempotent and waits
for acks=all. ``odradek.testing.anomalies`` judges what they saw. Runs end by themselves, and many
short ones may be added up. The seed decides what is done, not when.

- a kill: SIGKILL of a leader, one time in five of a second node as well, which takes the quorum
- a pause: SIGSTOP of a leader beyond its session, so that it wakes up deposed
- a roll: each node is stopped and started once

With ``--fault acknowledge-early`` the nodes have that bug (``planted_node``), and the run must find
losses.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from odradek.client import BlockingAdmin, BlockingProducer, NewTopic, RecordMetadata
from odradek.testing.anomalies import Isolation, Outcome, Report, check
from tests.cluster.asking import Placement, placements_of
from tests.cluster.flavours import Flavour, Kafka, Odradek
from tests.cluster.processes import COMBINED, Cluster, ClusterNode, wait_until
from tests.interop.histories.load import INPUTS, KEYS, OUTPUTS, Client, Load
from tests.interop.histories.mix import mixed_clients
from tests.interop.histories.plain import IN_FLIGHT_MAX, PlainSender, Poller
from tests.interop.histories.reading import PATIENCE_SECONDS

SESSION_SECONDS: Final = 2.0
CONFIGS: Final = {
    "broker.session.timeout.ms": str(int(SESSION_SECONDS * 1000)),
    "broker.heartbeat.interval.ms": "200",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "min.insync.replicas": "2",
}
TOPIC_CONFIGS: Final = {"min.insync.replicas": "2"}
UP_SECONDS_MAX: Final = 3.0
DOWN_SECONDS_MAX: Final = 4.0
SECOND_VICTIM: Final = 0.2
PAUSE_SECONDS_MAX: Final = 2 * SESSION_SECONDS
CLEAN_ENDS: Final = {0, 128 + 15}
LINES_MAX: Final = 20
"""Of a report; one lost record can lead to thousands of anomalies."""


class PlantedOdradek(Odradek):
    """Nodes with a fault that a test must see."""

    def __init__(self, fault: str) -> None:
        self._fault = fault

    def command(self, properties: Path) -> list[str]:
        program = Path(__file__).with_name("planted_node.py")
        return [sys.executable, str(program), self._fault, str(properties)]


class OdradekSender(Client):
    """Our own idempotent producer, as ``PlainSender`` is librdkafka's."""

    def work(self) -> None:
        self.in_flight = 0
        with BlockingProducer(
            bootstrap_servers=self.load.servers,
            acks="all",
            linger_ms=2,
            retry_backoff_ms=20,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=200,
            delivery_timeout_ms=int(PATIENCE_SECONDS * 1000),
        ) as producer:
            while not self.load.stopped.is_set():
                if self.in_flight < IN_FLIGHT_MAX:
                    self._send(producer)
                self.rest(self.chance.random() * 0.01)

    def _send(self, producer: BlockingProducer) -> None:
        key, value = self.chance.choice(INPUTS), self.load.value(self.process)
        recording = self.recorder.operation(self.process)
        sending = recording.sends(key, value)
        self.in_flight += 1
        future = producer.send(key.topic, value.encode(), partition=key.partition)

        def delivered(_: object) -> None:
            self.in_flight -= 1
            error = future.exception()
            if error is None:
                found: RecordMetadata = future.result()
                sending.acknowledged(found.offset)
            recording.end(Outcome.OK if error is None else Outcome.INFO)

        future.add_done_callback(delivered)


class Nemesis:
    """Disturbs a cluster, one fault after the other; each leaves all nodes running."""

    def __init__(self, cluster: Cluster, chance: random.Random) -> None:
        self.cluster = cluster
        self.chance = chance
        self.done: Counter[str] = Counter()

    def strike(self, kind: str) -> None:
        # Nothing is waited for here: a node may still load, or be out of sync.
        time.sleep(self.chance.uniform(0, UP_SECONDS_MAX))
        {"kill": self._kill, "pause": self._pause, "roll": self._roll}[kind]()

    def _kill(self) -> None:
        victims = [self._leader()]
        if self.chance.random() < SECOND_VICTIM:
            victims.append(self.chance.choice(self._others(victims[0])))
        for victim in victims:
            victim.kill()
            self.done["kill"] += 1
            time.sleep(self.chance.uniform(0, DOWN_SECONDS_MAX / 2))
        time.sleep(self.chance.uniform(0, DOWN_SECONDS_MAX / 2))
        for victim in victims:
            victim.start()
        for victim in victims:
            victim.wait_until_ready()

    def _pause(self) -> None:
        victim = self._leader()
        victim.pause()
        try:
            time.sleep(self.chance.uniform(SESSION_SECONDS + 0.5, PAUSE_SECONDS_MAX))
        finally:
            victim.resume()
        self.done["pause"] += 1

    def _roll(self) -> None:
        for node in self.cluster.brokers:
            code = node.stop()
            assert code in CLEAN_ENDS, f"node {node.id} ended with {code}\n{node.log_tail()}"
            node.restart()
            wait_until_in_sync(self.cluster)
        self.done["roll"] += 1

    def _leader(self) -> ClusterNode:
        """Return the leader of a partition; any node, if none is known."""
        asked = self.chance.choice(self.cluster.brokers)
        leader = self.chance.choice(placements_of(asked, INPUTS[0].topic)).leader
        return self.cluster.nodes.get(leader, asked)

    def _others(self, victim: ClusterNode) -> list[ClusterNode]:
        return [node for node in self.cluster.brokers if node is not victim]


def wait_until_in_sync(cluster: Cluster) -> None:
    """Wait until every broker knows all replicas of the topics to be in sync."""
    ids = {node.id for node in cluster.brokers}
    topics = {key.topic for key in KEYS}

    def are_in_sync() -> bool:
        found: list[Placement] = []
        for node in cluster.brokers:
            for topic in topics:
                found += placements_of(node, topic)
        return all(each.isr == ids and each.leader in ids for each in found)

    wait_until(are_in_sync, "all replicas are in sync")


def clients_of(load: Load, *, is_transactional: bool) -> list[Client]:
    ours = [OdradekSender(load, "odradek-1"), OdradekSender(load, "odradek-2")]
    if is_transactional:
        return [*mixed_clients(load), *ours]
    return [
        PlainSender(load, "plain-1"),
        PlainSender(load, "plain-2"),
        *ours,
        Poller(load, "committed", Isolation.READ_COMMITTED),
        Poller(load, "uncommitted", Isolation.READ_UNCOMMITTED),
    ]


def plan_of(kills: int, pauses: int, rolls: int, chance: random.Random) -> list[str]:
    plan = ["kill"] * kills + ["pause"] * pauses + ["roll"] * rolls
    chance.shuffle(plan)
    return plan


def run(
    folder: Path,
    plan: Sequence[str],
    *,
    seed: int,
    flavour: Flavour | None = None,
    is_transactional: bool = False,
) -> tuple[Report, Load]:
    """Disturb a cluster as planned while clients work; then judge what they saw."""
    with Cluster(folder, COMBINED, flavour, configs=CONFIGS, is_relayed=False) as cluster:
        cluster.start()
        servers = cluster.bootstrap_servers
        create_topics(servers)
        load, nemesis = Load(servers, seed), Nemesis(cluster, random.Random(seed))
        began = time.monotonic()
        with load.running(clients_of(load, is_transactional=is_transactional)):
            for kind in plan:
                nemesis.strike(kind)
            wait_until_in_sync(cluster)
        load.drain()
        seconds = time.monotonic() - began
        report = check(load.recorder.history(), drained=frozenset(KEYS))
    head = "\n".join(str(report).splitlines()[:LINES_MAX])
    print(f"seed {seed}, {dict(nemesis.done)}, {seconds:.0f} s: {head}", flush=True)
    return report, load


def create_topics(servers: str) -> None:
    topics = [
        NewTopic("in", len(INPUTS), 3, configs=TOPIC_CONFIGS),
        NewTopic("out", len(OUTPUTS), 3, configs=TOPIC_CONFIGS),
    ]
    with BlockingAdmin(bootstrap_servers=servers) as admin:
        admin.create_topics(topics).unwrap()


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill leaders under load; judge what clients saw.")
    parser.add_argument("kills", type=int)
    parser.add_argument("--pauses", type=int, default=0)
    parser.add_argument("--rolls", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--transactions", action="store_true")
    parser.add_argument("--kafka", action="store_true", help="with Kafka's server")
    parser.add_argument("--fault", choices=["acknowledge-early"], help="plant this in all nodes")
    options = parser.parse_args()
    flavour: Flavour = Kafka() if options.kafka else Odradek()
    if options.fault:
        flavour = PlantedOdradek(options.fault)
    plan = plan_of(options.kills, options.pauses, options.rolls, random.Random(options.seed))
    folder = Path(tempfile.mkdtemp(prefix="odradek-kills-"))
    report, load = run(
        folder, plan, seed=options.seed, flavour=flavour, is_transactional=options.transactions
    )
    if report.bad or load.problems:
        print("\n".join(load.problems), f"the nodes' logs are in {folder}", sep="\n")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
