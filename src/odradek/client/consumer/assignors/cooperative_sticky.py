"""The cooperative sticky assignor: sticky, in two steps.

Members keep what they have while they join. What moves is first taken from its owner alone, who
then joins again; only the assignment after that gives it to its new owner.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final

from odradek.client.consumer.assignors.assignor import (
    NO_GENERATION,
    NO_RACKS,
    Assignment,
    Assignor,
    Members,
    MemberSubscription,
    Racks,
    Topics,
)
from odradek.client.consumer.assignors.sticky import Claim, assign_sticky
from odradek.core.ids import TopicPartition

_GENERATION: Final = Struct(">i")


def assign_cooperatively(topics: Topics, members: Members, racks: Racks = NO_RACKS) -> Assignment:
    assignment, moving = assign_sticky(topics, members, racks, _claim)
    if moving is None:
        moving = _find_moving(members, assignment)
    for partition, member_id in moving.items():
        assignment[member_id].remove(partition)
    return assignment


def _find_moving(members: Members, assignment: Assignment) -> dict[TopicPartition, str]:
    given_up = {
        partition
        for member_id, share in assignment.items()
        for partition in set(members[member_id].owned).difference(share)
    }
    return {
        partition: member_id
        for member_id, share in assignment.items()
        for partition in share
        if partition in given_up and partition not in members[member_id].owned
    }


def _claim(subscription: MemberSubscription) -> Claim:
    if subscription.generation_id > NO_GENERATION:
        return Claim(subscription.owned, subscription.generation_id)
    data = subscription.user_data
    if data is None:
        return Claim(subscription.owned, None)
    # From before subscriptions had a generation of their own (version 2).
    if len(data) < _GENERATION.size:
        return Claim(subscription.owned, NO_GENERATION)
    return Claim(subscription.owned, _GENERATION.unpack_from(data)[0])


def _user_data(owned: Sequence[TopicPartition] | None, generation_id: int) -> bytes:  # noqa: ARG001
    return _GENERATION.pack(generation_id)


COOPERATIVE_STICKY: Final = Assignor(
    "cooperative-sticky", assign_cooperatively, _user_data, is_cooperative=True
)
