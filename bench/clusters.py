"""Clusters of three combined nodes to be measured: ours, and Kafka's as its scripts start it."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bench.brokers import has_kafka, kafka_command
from odradek.client import BlockingAdmin, NewTopic
from tests.cluster.asking import placements_of
from tests.cluster.flavours import Flavour, Kafka, Odradek
from tests.cluster.processes import COMBINED, Cluster, ClusterNode, wait_until

REPLICATION: Final = 3
MIN_INSYNC: Final = "2"
IN_SYNC_SECONDS_MAX: Final = 120.0
_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")


class PlainOdradek(Odradek):
    configs: Mapping[str, str] = {}


class PlainKafka(Kafka):
    """Kafka's defaults, of configs and of the JVM."""

    configs: Mapping[str, str] = {}

    def command(self, properties: Path) -> list[str]:
        return [*kafka_command("WARN"), str(properties)]


def flavours() -> Iterator[Flavour]:
    """Give ours first, and Kafka's where there are Java and Maven."""
    yield PlainOdradek()
    if has_kafka():
        yield PlainKafka()


@contextmanager
def made(flavour: Flavour, configs: Mapping[str, str] | None = None) -> Iterator[Cluster]:
    """Format a cluster, and end it afterwards; it is not started."""
    with (
        TemporaryDirectory(prefix="odradek-bench-") as folder,
        Cluster(Path(folder), COMBINED, flavour, configs=configs, is_relayed=False) as cluster,
    ):
        yield cluster


def create_topic(cluster: Cluster, name: str, partitions: int) -> None:
    """Make a topic, and wait until every broker knows all its replicas to be in sync."""
    topic = NewTopic(name, partitions, REPLICATION, configs={"min.insync.replicas": MIN_INSYNC})
    with BlockingAdmin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics([topic]).unwrap()
    wait_until_in_sync(cluster, name, partitions)


def wait_until_in_sync(cluster: Cluster, topic: str, partitions: int) -> None:
    def is_in_sync(node: ClusterNode) -> bool:
        found = placements_of(node, topic)
        return len(found) == partitions and all(
            each.leader >= 0 and len(each.isr) == REPLICATION for each in found
        )

    for node in cluster.brokers:
        wait_until(
            lambda node=node: is_in_sync(node),  # type: ignore[misc]
            f"node {node.id} knows all replicas of {topic} to be in sync",
            IN_SYNC_SECONDS_MAX,
        )


def leader_of(cluster: Cluster, topic: str) -> ClusterNode:
    """Return the leader of the topic's first partition."""
    running = next(node for node in cluster.brokers if node.is_running)
    return cluster.nodes[placements_of(running, topic)[0].leader]


def cpu_seconds(cluster: Cluster) -> float:
    """Return what all nodes have used so far, in user and in kernel mode."""
    ticks = 0
    for pid in pids(cluster):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICKS_PER_SECOND


def rss_mib(cluster: Cluster) -> list[float]:
    statuses = [Path(f"/proc/{pid}/status").read_text() for pid in pids(cluster)]
    return [int(each.partition("VmRSS:")[2].split()[0]) / 1024 for each in statuses]


def pids(cluster: Cluster) -> list[int]:
    return [node.process.pid for node in cluster.nodes.values() if node.process is not None]
