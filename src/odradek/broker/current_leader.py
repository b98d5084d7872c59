"""Who leads a partition, for answers that refuse a request because this node does not.

A client that is told where to go next need not ask for metadata first (KIP-951).
"""

from typing import NamedTuple

from odradek.core.ids import TopicPartition
from odradek.metadata.image import ClusterImage


class LeaderEndpoint(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None


class CurrentLeader(NamedTuple):
    leader_id: int
    leader_epoch: int
    endpoint: LeaderEndpoint | None
    """On the listener of the client; None if the leader is not there, or is fenced."""


def find_current_leader(
    image: ClusterImage, at: TopicPartition, listener: str
) -> CurrentLeader | None:
    """Return who leads a partition; None if there is no such partition."""
    topic = image.topics.get(at.topic)
    partition = topic.partitions.get(at.partition) if topic is not None else None
    if partition is None:
        return None
    broker = image.brokers.get(partition.leader)
    endpoint = broker.endpoints.get(listener) if broker is not None else None
    where = None
    if broker is not None and not broker.fenced and endpoint is not None:
        where = LeaderEndpoint(partition.leader, endpoint.host, endpoint.port, broker.rack)
    return CurrentLeader(partition.leader, partition.leader_epoch, where)
