"""All replicas, compared on their disks: offsets, epochs and checksums of batches."""

from itertools import pairwise
from typing import NamedTuple

from odradek.client import BlockingAdmin
from odradek.core.ids import TopicPartition
from tests.cluster.processes import Cluster
from tests.interop.cluster.replicated import Batch, read_batches


class Compared(NamedTuple):
    partitions: int
    batches: int
    """That are the same in all replicas of their partitions."""
    differences: list[str]

    def __str__(self) -> str:
        return f"{self.batches} batches of {self.partitions} partitions, in all their replicas"


def compare(cluster: Cluster, *, is_quiet: bool) -> Compared:
    """Compare what all replicas have; while records are written they end at different offsets."""
    places = placed(cluster)
    batches, differences = 0, []
    for at, ids in places.items():
        logs = {each: log_of(cluster, each, at) for each in ids}
        shortest = min(map(len, logs.values()))
        for (one, first), (other, second) in pairwise(logs.items()):
            ends = (None, None) if is_quiet else (shortest, shortest)
            if first[: ends[0]] != second[: ends[1]]:
                differences.append(f"{at}: {one} and {other} differ")
        batches += shortest
    return Compared(len(places), batches, differences)


def placed(cluster: Cluster) -> dict[TopicPartition, list[int]]:
    """Return the replicas of every partition there is."""
    with BlockingAdmin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        names = [each.name for each in admin.list_topics(include_internal=True)]
        topics = admin.describe_topics(names).unwrap()
    return {
        TopicPartition(topic.name, each.partition): list(each.replicas)
        for topic in topics.values()
        for each in topic.partitions
    }


def log_of(cluster: Cluster, broker: int, at: TopicPartition) -> list[Batch]:
    return list(read_batches(cluster.nodes[broker].data_dir / f"{at.topic}-{at.partition}"))
