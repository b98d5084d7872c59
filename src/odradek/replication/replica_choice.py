"""Which replica a consumer that names its rack is to read from (KIP-392).

The rule is that of Kafka's ``RackAwareReplicaSelector``. The leader decides again with each fetch.
Only followers in the ISR are candidates: one that lags would slow its consumers down. A follower
must also have the offset that the consumer asks for, else it would refuse the next fetch.
"""

from collections.abc import Callable

from odradek.replication.leadership import Leadership


def choose_follower(
    leadership: Leadership, offset: int, is_near: Callable[[int], bool]
) -> int | None:
    """Return the follower to read from; None if the leader is the one.

    ``is_near`` says whether a broker is in the consumer's rack, and can be reached by it. Of
    several followers the one with most records is chosen.
    """
    if is_near(leadership.node_id):
        return None
    in_sync = leadership.isr.committed
    candidates = [
        (each.log_end_offset, each.last_caught_up_ms, node_id)
        for node_id, each in leadership.followers.items()
        if node_id in in_sync
        and each.log_start_offset <= offset <= each.log_end_offset
        and is_near(node_id)
    ]
    return max(candidates)[2] if candidates else None
