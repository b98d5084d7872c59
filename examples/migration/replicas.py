"""All replicas, compared on their disks: offsets, epochs and checksums of batches."""

from collections.abc import Iterable
from typing import NamedTuple

from odradek.client import BlockingAdmin
from odradek.core.ids import TopicPartition
from tests.cluster.processes import Cluster
from tests.interop.cluster.replicated import Batch, read_batches


class Compared(NamedTuple):
    partitions: int
    replicas: int
    batches: int
    """That are the same in all replicas of their partitions, and where they were before."""
    differences: list[str]

    def __str__(self) -> str:
        return f"{self.batches} batches in {self.replicas} replicas of {self.partitions} partitions"


class Replicas:
    """Of all partitions of a cluster; what was seen once must be there whenever they are seen."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[TopicPartition, list[Batch]] = {}

    def compare(self, *, is_quiet: bool) -> Compared:
        """Compare all replicas; while records are written they end at different offsets."""
        places = self._places()
        differences: list[str] = []
        for at, ids in places.items():
            logs = {each: self._log(each, at) for each in ids}
            known = self._known.setdefault(at, [])
            found = list(differing(at, logs, known, is_quiet=is_quiet))
            if not found:
                self._known[at] = min(logs.values(), key=len)
            differences += found
        batches = sum(len(self._known[at]) for at in places)
        return Compared(len(places), sum(map(len, places.values())), batches, differences)

    def _places(self) -> dict[TopicPartition, list[int]]:
        """Return the replicas of every partition there is."""
        with BlockingAdmin(bootstrap_servers=self._cluster.bootstrap_servers) as admin:
            names = [each.name for each in admin.list_topics(include_internal=True)]
            topics = admin.describe_topics(names).unwrap()
        return {
            TopicPartition(topic.name, each.partition): list(each.replicas)
            for topic in topics.values()
            for each in topic.partitions
        }

    def _log(self, broker: int, at: TopicPartition) -> list[Batch]:
        folder = self._cluster.nodes[broker].data_dir / f"{at.topic}-{at.partition}"
        return list(read_batches(folder))


def differing(
    at: TopicPartition, logs: dict[int, list[Batch]], known: list[Batch], *, is_quiet: bool
) -> Iterable[str]:
    """Yield what is not the same in the logs of a partition, and what they no longer have."""
    shortest = min(logs.values(), key=len)
    for broker, log in logs.items():
        if log[: None if is_quiet else len(shortest)] != shortest:
            yield f"{at}: the replica on {broker} is not like the others"
        if log[: len(known)] != known:
            yield f"{at}: the replica on {broker} lacks batches that were there"
