"""Where the replicas of a broker go that leaves the cluster. Pure."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from odradek.core.ids import TopicPartition
from odradek.local.errors import LocalClusterError
from odradek.local.story import PartitionView

NAMED_MAX: Final = 3


def plan_drain(
    partitions: Mapping[TopicPartition, PartitionView],
    leaving: int,
    racks: Mapping[int, str | None],
) -> dict[TopicPartition, list[int]]:
    """Return the new replicas of each partition that the broker has.

    Another broker takes its place in the list: from a rack that the partition does not use yet,
    where there is one, and of those the one with the fewest replicas.

    Args:
        partitions: All there are.
        leaving: The broker.
        racks: The racks of the brokers that stay and run.

    Raises:
        LocalClusterError: Partitions have a replica on every broker that would be left.
    """
    load = Counter(node for each in partitions.values() for node in each.replicas)
    moves = {}
    stuck = []
    for key, each in sorted(partitions.items()):
        if leaving not in each.replicas:
            continue
        used = {racks.get(node) for node in each.replicas if node != leaving}
        free = [node for node in racks if node not in each.replicas]
        if not free:
            stuck.append(key)
            continue
        chosen = min(free, key=lambda node: (racks[node] in used, load[node], node))
        load[chosen] += 1
        moves[key] = [chosen if node == leaving else node for node in each.replicas]
    if stuck:
        names = ", ".join(map(str, stuck[:NAMED_MAX])) + ("…" if len(stuck) > NAMED_MAX else "")
        raise LocalClusterError(
            f"node {leaving} cannot go: no other broker that runs has room for a replica of"
            f" {names}; `odradek local add` gives them one"
        )
    return moves
