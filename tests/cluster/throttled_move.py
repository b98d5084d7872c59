"""Partitions move to another broker under a throttle and under load; the rate is measured.

    python -m tests.cluster.throttled_move --megabytes 2000 --rate 20000000

Fails unless the rate is 0.9 to 1.1 of the bound, no ISR lost a member that it had, and every write
of a producer with acks=all succeeded.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from odradek.client import BlockingAdmin, BlockingProducer, NewTopic
from tests.cluster.asking import placements_of
from tests.cluster.flavours import Odradek
from tests.cluster.processes import Cluster
from tests.cluster.writers import odradek_writer
from tests.interop.odradek_tool import odradek_tool

ROLES: Final = {1: "controller", 11: "broker", 12: "broker", 13: "broker"}
SOURCE, FOLLOWER, TARGET = 11, 12, 13
TOPIC: Final = "moved"
PARTITIONS: Final = 4
RECORD: Final = bytes(50_000)
LEAST, MOST = 0.9, 1.1
WINDOW_SECONDS: Final = 12
"""What was replicated to the follower in sync counts until then."""
CONFIGS: Final = {"auto.leader.rebalance.enable": "false"}


def fill(cluster: Cluster, count: int) -> None:
    with BlockingProducer(
        bootstrap_servers=cluster.bootstrap_servers, acks="all", compression_type="none"
    ) as producer:
        sent = [producer.send(TOPIC, RECORD, partition=each % PARTITIONS) for each in range(count)]
        for each in sent:
            each.result(600)


def move(cluster: Cluster, folder: Path, rate: int) -> float:
    """Return how fast it was, as a part of the throttle."""
    plan = folder / "plan.json"
    partitions = [
        {"topic": TOPIC, "partition": number, "replicas": [SOURCE, TARGET]}
        for number in range(PARTITIONS)
    ]
    plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
    place = ("--bootstrap-server", cluster.bootstrap_servers, "--reassignment-json-file", plan)
    print(odradek_tool("reassign-partitions", *place, "--execute", "--throttle", str(rate)).stdout)
    begun, size = time.monotonic(), size_of(cluster)  # what the tool takes to end is left out
    wait_until_moved(cluster)
    measured = (size_of(cluster) - size) / (time.monotonic() - begun)
    print(odradek_tool("reassign-partitions", *place, "--verify").stdout)
    print(f"{measured / 1e6:.2f} MB/s, {measured / rate:.3f} of the throttle")
    return measured / rate


def wait_until_moved(cluster: Cluster) -> None:
    with BlockingAdmin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        while admin.list_partition_reassignments():
            for placement in placements_of(cluster.nodes[SOURCE], TOPIC):
                assert SOURCE in placement.isr, "an ISR has lost its leader"
                assert placement.isr & {FOLLOWER, TARGET}, f"an ISR has shrunk: {placement}"
            time.sleep(0.2)


def size_of(cluster: Cluster) -> int:
    return sum(
        file.stat().st_size
        for number in range(PARTITIONS)
        for file in (cluster.nodes[TARGET].data_dir / f"{TOPIC}-{number}").glob("*.log")
    )


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=2_000)
    parser.add_argument("--rate", type=int, default=20_000_000, help="bytes a second")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Cluster(folder, ROLES, Odradek(), configs=CONFIGS, is_relayed=False) as cluster:
            cluster.start()
            replicas = {number: [SOURCE, FOLLOWER] for number in range(PARTITIONS)}
            with BlockingAdmin(bootstrap_servers=cluster.bootstrap_servers) as admin:
                admin.create_topics([NewTopic(TOPIC, assignments=replicas)]).unwrap()
            fill(cluster, options.megabytes * 1_000_000 // len(RECORD))
            time.sleep(WINDOW_SECONDS)
            return run(cluster, folder, options.rate)


def run(cluster: Cluster, folder: Path, rate: int) -> int:
    with odradek_writer(cluster.bootstrap_servers, TOPIC, 0, retries=None) as writer:
        measured = move(cluster, folder, rate)
    print(f"{writer.acknowledged} records written meanwhile, {len(writer.failures)} failed")
    return 0 if LEAST <= measured <= MOST and not writer.failures else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
