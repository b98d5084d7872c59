"""Partitions move to another broker under a throttle and under load; the rate is measured.

    python -m tests.cluster.throttled_move --megabytes 2000 --rate 20000000

Midway the move is cancelled, and then begun again; the leaders move as well. Fails unless

- both rates are 0.9 to 1.1 of the bound,
- no ISR ever had fewer members than before, according to the metadata log,
- all replicas are equal in the end, and the throttles are gone,
- ``odradek.testing.anomalies`` finds nothing in what clients wrote and read meanwhile.
"""

import argparse
import json
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from odradek.client import BlockingAdmin, BlockingProducer, NewTopic
from odradek.core.ids import TopicPartition
from odradek.testing.anomalies import Isolation, Report, check
from tests.cluster.flavours import Odradek
from tests.cluster.processes import Cluster, wait_until
from tests.cluster.replica_records import batches_on_disk
from tests.interop.histories.load import Client, Load
from tests.interop.histories.ours import OdradekPoller, OdradekSender
from tests.interop.histories.plain import PlainSender, Poller
from tests.interop.histories.reading import high_watermarks
from tests.interop.odradek_tool import odradek_tool

ROLES: Final = {1: "controller", 11: "broker", 12: "broker", 13: "broker"}
SOURCE, FOLLOWER, TARGET = 11, 12, 13
TOPIC: Final = "moved"
PARTITIONS: Final = 4
RECORD: Final = bytes(50_000)
SEED: Final = 15
LEAST, MOST = 0.9, 1.1
MOVE_SECONDS_MAX: Final = 1_200
CONFIGS: Final = {"auto.leader.rebalance.enable": "false"}


class Outcome(NamedTuple):
    cancelled: float
    """The rate until the move was cancelled, as a part of the throttle."""
    completed: float
    """The same of the move that came to its end."""
    smallest_isr: int
    has_equal_replicas: bool
    load: Load
    report: Report


class Move:
    """One plan, executed by the tool with a throttle."""

    def __init__(self, cluster: Cluster, folder: Path, rate: int) -> None:
        self._cluster = cluster
        self._rate = rate
        self._plan = folder / "plan.json"
        partitions = [
            {"topic": TOPIC, "partition": number, "replicas": [TARGET, FOLLOWER]}
            for number in range(PARTITIONS)
        ]
        self._plan.write_text(json.dumps({"version": 1, "partitions": partitions}))

    def until(self, is_over: Callable[[], bool]) -> float:
        """Begin it; return how fast it was until then, as a part of the throttle."""
        self._tool("--execute", "--throttle", str(self._rate))
        begun, size = time.monotonic(), self.moved()  # what the tool takes to end is left out
        wait_until(is_over, "the move has come so far", MOVE_SECONDS_MAX)
        measured = (self.moved() - size) / (time.monotonic() - begun)
        print(f"{measured / 1e6:.2f} MB/s, {measured / self._rate:.3f} of the throttle", flush=True)
        return measured / self._rate

    def moved(self) -> int:
        """Return how many bytes the target has."""
        return sum(
            file.stat().st_size
            for number in range(PARTITIONS)
            for file in (self._cluster.nodes[TARGET].data_dir / f"{TOPIC}-{number}").glob("*.log")
        )

    def is_over(self) -> bool:
        with BlockingAdmin(bootstrap_servers=self._cluster.bootstrap_servers) as admin:
            return not admin.list_partition_reassignments()

    def cancel(self) -> None:
        """Stop it, and wait until nothing is left of it."""
        printed = self._tool("--cancel")
        everything = ",".join(f"{TOPIC}-{number}" for number in range(PARTITIONS))
        assert f"Successfully cancelled partition reassignments for: {everything}\n" in printed
        wait_until(lambda: not self._folders(TARGET), "what came is deleted")

    def verify(self) -> None:
        """End the throttles."""
        assert "Clearing topic-level throttles on topic moved" in self._tool("--verify")
        wait_until(lambda: not self._folders(SOURCE), "what went is deleted")

    def _folders(self, broker: int) -> list[Path]:
        return list(self._cluster.nodes[broker].data_dir.glob(f"{TOPIC}-[0-9]"))

    def _tool(self, *arguments: str) -> str:
        servers = self._cluster.bootstrap_servers
        place = ("--bootstrap-server", servers, "--reassignment-json-file", self._plan)
        printed = odradek_tool("reassign-partitions", *place, *arguments).stdout
        print(printed, flush=True)
        return printed


def run(folder: Path, *, megabytes: int, rate: int) -> Outcome:
    """Move so much, once until half of it is there and once as a whole, while clients work."""
    with Cluster(folder, ROLES, Odradek(), configs=CONFIGS, is_relayed=False) as cluster:
        cluster.start()
        servers = cluster.bootstrap_servers
        replicas = {number: [SOURCE, FOLLOWER] for number in range(PARTITIONS)}
        configs = {"min.insync.replicas": "2"}
        with BlockingAdmin(bootstrap_servers=servers) as admin:
            admin.create_topics([NewTopic(TOPIC, assignments=replicas, configs=configs)]).unwrap()
        fill(servers, megabytes * 1_000_000 // len(RECORD))
        keys = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        load = Load(servers, SEED, high_watermarks({"bootstrap.servers": servers}, keys))
        move = Move(cluster, folder, rate)
        with load.running(clients_of(load)):
            cancelled = move.until(lambda: move.moved() >= megabytes * 500_000)
            move.cancel()
            completed = move.until(move.is_over)
            move.verify()
        load.drain()
        report = check(load.recorder.history(), drained=frozenset(keys))
        is_equal = has_equal_replicas(cluster)
        cluster.nodes[1].stop()  # and has written all of its log
        return Outcome(cancelled, completed, smallest_isr(cluster), is_equal, load, report)


def fill(servers: str, count: int) -> None:
    with BlockingProducer(
        bootstrap_servers=servers, acks="all", compression_type="none"
    ) as producer:
        sent = [producer.send(TOPIC, RECORD, partition=each % PARTITIONS) for each in range(count)]
        for each in sent:
            each.result(600)


def clients_of(load: Load) -> list[Client]:
    return [
        OdradekSender(load, "odradek"),
        PlainSender(load, "plain"),
        OdradekPoller(load, "odradek-committed", Isolation.READ_COMMITTED),
        Poller(load, "uncommitted", Isolation.READ_UNCOMMITTED),
    ]


def smallest_isr(cluster: Cluster) -> int:
    """Return the fewest members that the metadata log ever gave an ISR: a look could miss it."""
    (file,) = (cluster.nodes[1].data_dir / "__cluster_metadata-0").glob("*.log")
    printed = odradek_tool("dump-log", "--cluster-metadata-decoder", "--files", file).stdout
    records = [json.loads(line) for line in re.findall("payload: (.*)", printed)]
    (topic_id,) = (
        each["data"]["topicId"]
        for each in records
        if each["type"] == "TOPIC_RECORD" and each["data"]["name"] == TOPIC
    )
    changes = [each["data"] for each in records if each["type"].startswith("PARTITION_")]
    return min(
        len(each["isr"])
        for each in changes
        if each["topicId"] == topic_id and each.get("isr") is not None
    )


def has_equal_replicas(cluster: Cluster) -> bool:
    return all(
        batches_on_disk(cluster.nodes[FOLLOWER], TOPIC, number)
        == batches_on_disk(cluster.nodes[TARGET], TOPIC, number)
        for number in range(PARTITIONS)
    )


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=2_000)
    parser.add_argument("--rate", type=int, default=20_000_000, help="bytes a second")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        outcome = run(Path(name), megabytes=options.megabytes, rate=options.rate)
    print(*outcome.load.problems, outcome.report, outcome[:4], sep="\n")
    is_good = (
        LEAST <= outcome.cancelled <= MOST
        and LEAST <= outcome.completed <= MOST
        and outcome.smallest_isr == 2
        and outcome.has_equal_replicas
        and not outcome.report.bad
        and not outcome.load.problems
    )
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
