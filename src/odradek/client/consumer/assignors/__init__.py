"""Who reads what in a classic group: the four assignors that Kafka's consumer comes with."""

from collections.abc import Mapping
from typing import Final

from odradek.client.consumer.assignors.assignor import (
    NO_RACKS,
    Assignment,
    Assignor,
    Members,
    MemberSubscription,
    Racks,
    Topics,
)
from odradek.client.consumer.assignors.cooperative_sticky import COOPERATIVE_STICKY
from odradek.client.consumer.assignors.range import RANGE
from odradek.client.consumer.assignors.round_robin import ROUND_ROBIN
from odradek.client.consumer.assignors.sticky import STICKY

ASSIGNORS: Final[Mapping[str, Assignor]] = {
    each.name: each for each in (RANGE, ROUND_ROBIN, STICKY, COOPERATIVE_STICKY)
}

__all__ = [
    "ASSIGNORS",
    "NO_RACKS",
    "Assignment",
    "Assignor",
    "MemberSubscription",
    "Members",
    "Racks",
    "Topics",
]
