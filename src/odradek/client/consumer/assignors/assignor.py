"""What an assignor is given, what it gives back, and how an application's members name it.

The leader of a classic group runs it for everybody; members may be of any client. Assignors are
pure functions, and give what Java's give: when the lead passes from one client to another nothing
may move for that reason alone.

Where members say where they are, range and sticky look at the racks of partitions too (KIP-881).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from odradek.core.ids import TopicPartition

NO_GENERATION = -1

Topics = Mapping[str, int]
"""How many partitions each topic has that exists and that some member wants."""
Assignment = dict[str, list[TopicPartition]]
Racks = Mapping[TopicPartition, frozenset[str]]
"""Where each partition has replicas; empty, or without it, if that is not known."""
NO_RACKS: Final[Racks] = {}


class MemberSubscription(NamedTuple):
    """What one member wants, and what it says it has."""

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation_id: int = NO_GENERATION
    user_data: bytes | None = None
    instance_id: str | None = None
    rack_id: str | None = None


Members = Mapping[str, MemberSubscription]
"""By member id, in the order in which the coordinator listed them."""


class Assign(Protocol):
    def __call__(self, topics: Topics, members: Members, racks: Racks = ..., /) -> Assignment: ...


class Assignor(NamedTuple):
    name: str
    assign: Assign
    user_data: Callable[[Sequence[TopicPartition] | None, int], bytes | None]
    """What a member sends along, of its last assignment (None before the first) and generation."""
    is_cooperative: bool = False


def no_user_data(owned: Sequence[TopicPartition] | None, generation_id: int) -> None:  # noqa: ARG001
    return None


def member_order(members: Members) -> list[str]:
    """Return member ids in their order: static members by instance, then the others by id.

    A static member comes back with another id, and shall then get what it had.
    """

    def key(member_id: str) -> tuple[bool, str]:
        instance_id = members[member_id].instance_id
        return instance_id is None, member_id if instance_id is None else instance_id

    return sorted(members, key=key)
