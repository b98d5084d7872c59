"""Which replicas clients can reach, as Metadata and DescribeTopicPartitions report it."""

from odradek.metadata.image import ClusterImage
from odradek.metadata.partition import PartitionImage


def is_reachable(image: ClusterImage, broker_id: int, listener: str) -> bool:
    """Whether a broker is registered with the listener on which the client asks."""
    broker = image.brokers.get(broker_id)
    return broker is not None and listener in broker.endpoints


def offline_replicas(image: ClusterImage, partition: PartitionImage, listener: str) -> list[int]:
    """Return the replicas on brokers that are fenced or not reachable, or whose disk has failed."""
    offline = []
    for broker_id, directory in zip(partition.replicas, partition.directories, strict=True):
        broker = image.brokers.get(broker_id)
        if (
            broker is None
            or broker.fenced
            or listener not in broker.endpoints
            or not broker.has_online(directory)
        ):
            offline.append(broker_id)
    return offline
