"""The range assignor: of each topic, each member gets a run of partitions, the first ones one more.

Topics with as many partitions and the same members are cut alike, so that a join of two topics
finds both sides at one member.
"""

from odradek.client.consumer.assignors.assignor import (
    Assignment,
    Assignor,
    Members,
    Topics,
    member_order,
    no_user_data,
)
from odradek.core.ids import TopicPartition


def assign_ranges(topics: Topics, members: Members) -> Assignment:
    assignment: Assignment = {member_id: [] for member_id in members}
    ordered = member_order(members)
    for topic in sorted(topics):
        takers = [each for each in ordered if topic in members[each].topics]
        if not takers:
            continue
        share, extra = divmod(topics[topic], len(takers))
        first = 0
        for place, member_id in enumerate(takers):
            end = first + share + (place < extra)
            assignment[member_id].extend(TopicPartition(topic, n) for n in range(first, end))
            first = end
    return assignment


RANGE = Assignor("range", assign_ranges, no_user_data)
