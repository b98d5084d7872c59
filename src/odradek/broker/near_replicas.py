"""Sends consumers to a follower in their rack, if ``replica.selector.class`` asks for that."""

from odradek.broker.partition import Partition
from odradek.metadata.image import ClusterImage
from odradek.replication.replica_choice import choose_follower


def find_near_replica(
    image: ClusterImage, led: Partition, offset: int, rack_id: str, listener: str
) -> int | None:
    """Return the follower that a consumer is to fetch from; None if it is to stay here.

    ``listener`` is where the consumer came in: a follower must be there too, and not fenced.
    """
    leadership = led.leadership
    if leadership is None:
        return None  # a follower answers for itself

    def is_near(node_id: int) -> bool:
        broker = image.brokers.get(node_id)
        return (
            broker is not None
            and broker.rack == rack_id
            and not broker.fenced
            and listener in broker.endpoints
        )

    return choose_follower(leadership, offset, is_near)
