"""Settings of classic groups. Kafka lets them change while groups live, so they are read at use."""

from dataclasses import dataclass
from typing import Final

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000
"""How long a member without an id may wait for its first generation.

It cannot heartbeat, for want of an id, and a closed connection is not noticed while a request
waits. Clients that give up and come again would fill the group with the dead.
"""

PENDING_MEMBERS_MAX: Final = 10_000
"""Ids handed out and not yet used. Beyond it the oldest is forgotten; its owner asks for another.

``group.max.size`` does not count them: to refuse is fatal for a client, and the id may belong to
one that is gone. So Kafka has no limit here at all.
"""


@dataclass(slots=True)
class GroupConfig:
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2**31 - 1
