"""The round-robin assignor: partitions in their order, dealt to members in theirs.

A member that does not want a topic is passed over for its partitions; the next partition then goes
on from there, so with unlike subscriptions the deal may be uneven. Racks play no part in it.
"""

from odradek.client.consumer.assignors.assignor import (
    NO_RACKS,
    Assignment,
    Assignor,
    Members,
    Racks,
    Topics,
    member_order,
    no_user_data,
)
from odradek.core.ids import TopicPartition


def assign_round_robin(
    topics: Topics,
    members: Members,
    racks: Racks = NO_RACKS,  # noqa: ARG001
) -> Assignment:
    assignment: Assignment = {member_id: [] for member_id in members}
    ordered = member_order(members)
    place = 0
    for topic in sorted(topics):
        wanted = [topic in members[each].topics for each in ordered]
        if not any(wanted):
            continue
        for number in range(topics[topic]):
            while not wanted[place]:
                place = (place + 1) % len(ordered)
            assignment[ordered[place]].append(TopicPartition(topic, number))
            place = (place + 1) % len(ordered)
    return assignment


ROUND_ROBIN = Assignor("roundrobin", assign_round_robin, no_user_data)
