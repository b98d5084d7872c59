"""A cluster of three combined nodes that is disturbed (``nemesis``) while clients work.

    python -m tests.cluster.kills 20 --pauses 5 --rolls 2 --cuts 3 --full-disks 2 --busy 2 --seed 7

Every topic has three replicas and ``min.insync.replicas=2``, every producer is idempotent and waits
for acks=all. ``odradek.testing.anomalies`` judges what they saw. A history is kept in memory until
then, and a quiet machine writes a gigabyte of it in a few minutes: so a long plan is cut into runs,
each with a cluster and a seed of its own. The seed decides what is done, not when.

With ``--transactions`` there are transactional producers and copiers of librdkafka, aiokafka, our
own client and Java's, if Kafka's jars can be had.

With ``--fault acknowledge-early`` the nodes have that bug (``planted_node``), and the run must find
losses.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from odradek.client import BlockingAdmin, NewTopic
from odradek.testing.anomalies import Isolation, Report, check
from tests.cluster.flavours import Flavour, Kafka, Odradek
from tests.cluster.nemesis import SESSION_SECONDS, Nemesis, small_disks, wait_until_in_sync
from tests.cluster.processes import COMBINED, Cluster, wait_until
from tests.interop.histories.java import JavaTransactor
from tests.interop.histories.load import INPUTS, KEYS, OUTPUTS, Client, Load
from tests.interop.histories.mix import mixed_clients
from tests.interop.histories.ours import OdradekPoller, OdradekSender, OdradekTransactor
from tests.interop.histories.plain import PlainSender, Poller
from tests.interop.kafka_peer import PeerUnavailableError, resolve_jars

CONFIGS: Final = {
    "broker.session.timeout.ms": str(int(SESSION_SECONDS * 1000)),
    "broker.heartbeat.interval.ms": "200",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "min.insync.replicas": "2",
}
TOPIC_CONFIGS: Final = {"min.insync.replicas": "2"}
STRIKES_MAX: Final = 8
"""In one run."""
LINES_MAX: Final = 20
"""Of a report; one lost record can lead to thousands of anomalies."""


class PlantedOdradek(Odradek):
    """Nodes with a fault that a test must see."""

    def __init__(self, fault: str) -> None:
        self._fault = fault

    def command(self, properties: Path) -> list[str]:
        program = Path(__file__).with_name("planted_node.py")
        return [sys.executable, str(program), self._fault, str(properties)]


def clients_of(load: Load, *, is_transactional: bool) -> list[Client]:
    ours = [
        OdradekSender(load, "odradek-1"),
        OdradekSender(load, "odradek-2"),
        OdradekPoller(load, "odradek-committed", Isolation.READ_COMMITTED),
    ]
    if is_transactional:
        return [
            *mixed_clients(load),
            *ours,
            OdradekTransactor(load, "odradek"),
            *java_clients(load),
        ]
    return [
        PlainSender(load, "plain-1"),
        PlainSender(load, "plain-2"),
        *ours,
        Poller(load, "committed", Isolation.READ_COMMITTED),
        Poller(load, "uncommitted", Isolation.READ_UNCOMMITTED),
    ]


def java_clients(load: Load) -> list[Client]:
    """Return none where Kafka's jars cannot be had."""
    try:
        libs = resolve_jars()
    except PeerUnavailableError as missing:
        print(f"without Java's client: {missing}")
        return []
    return [JavaTransactor(load, "java", libs)]


def plan_of(counts: Mapping[str, int], chance: random.Random) -> list[str]:
    plan = [kind for kind, count in counts.items() for _ in range(count)]
    chance.shuffle(plan)
    return plan


def run(
    folder: Path,
    plan: Sequence[str],
    *,
    seed: int,
    flavour: Flavour | None = None,
    is_transactional: bool = False,
    values_min: int = 0,
) -> tuple[Report, Load]:
    """Disturb a cluster as planned while clients work; then judge what they saw.

    Clients go on until ``values_min`` are sent: fewer say nothing, and a busy machine is slow.
    """
    cluster = Cluster(folder, COMBINED, flavour, configs=CONFIGS, is_relayed="cut" in plan)
    with ExitStack() as stack:
        stack.enter_context(cluster)
        if "full" in plan:
            stack.enter_context(small_disks(cluster))
        cluster.start()
        servers = cluster.bootstrap_servers
        create_topics(servers)
        load, nemesis = Load(servers, seed), Nemesis(cluster, random.Random(seed))
        began = time.monotonic()
        with load.running(clients_of(load, is_transactional=is_transactional)):
            for kind in plan:
                nemesis.strike(kind)
            wait_until_in_sync(cluster)
            wait_until(lambda: load.sent >= values_min, f"{values_min} values are sent")
        load.drain()
        seconds = time.monotonic() - began
        report = check(load.recorder.history(), drained=frozenset(KEYS))
    head = "\n".join(str(report).splitlines()[:LINES_MAX])
    abandoned = f", {load.abandoned} calls abandoned" if load.abandoned else ""
    done = dict(sorted(nemesis.done.items()))
    print(f"seed {seed}, {done}, {seconds:.0f} s{abandoned}: {head}", flush=True)
    return report, load


def create_topics(servers: str) -> None:
    topics = [
        NewTopic("in", len(INPUTS), 3, configs=TOPIC_CONFIGS),
        NewTopic("out", len(OUTPUTS), 3, configs=TOPIC_CONFIGS),
    ]
    with BlockingAdmin(bootstrap_servers=servers) as admin:
        admin.create_topics(topics).unwrap()


def main() -> int:
    parser = argparse.ArgumentParser(description="Disturb a cluster; judge what clients saw.")
    parser.add_argument("kills", type=int)
    parser.add_argument("--pauses", type=int, default=0)
    parser.add_argument("--rolls", type=int, default=0)
    parser.add_argument("--cuts", type=int, default=0)
    parser.add_argument("--full-disks", type=int, default=0)
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--transactions", action="store_true")
    parser.add_argument("--kafka", action="store_true", help="with Kafka's server")
    parser.add_argument("--fault", choices=["acknowledge-early"], help="plant this in all nodes")
    options = parser.parse_args()
    flavour: Flavour = Kafka() if options.kafka else Odradek()
    if options.fault:
        flavour = PlantedOdradek(options.fault)
    counts = {
        "kill": options.kills,
        "pause": options.pauses,
        "roll": options.rolls,
        "cut": options.cuts,
        "full": options.full_disks,
        "busy": options.busy,
    }
    plan = plan_of(counts, random.Random(options.seed))
    for number, start in enumerate(range(0, len(plan), STRIKES_MAX)):
        part, seed = plan[start : start + STRIKES_MAX], options.seed + number
        if not _run_one(part, seed, flavour, is_transactional=options.transactions):
            return 1
    return 0


def _run_one(plan: Sequence[str], seed: int, flavour: Flavour, *, is_transactional: bool) -> bool:
    """Return whether clients saw nothing that they must not see."""
    folder = Path(tempfile.mkdtemp(prefix="odradek-kills-"))
    report, load = run(folder, plan, seed=seed, flavour=flavour, is_transactional=is_transactional)
    if report.bad or load.problems:
        print("\n".join(load.problems), f"the nodes' logs are in {folder}", sep="\n")
        return False
    shutil.rmtree(folder)
    return True


if __name__ == "__main__":
    sys.exit(main())
