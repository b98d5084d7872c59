"""The range assignor: of each topic, each member gets a run of partitions, the first ones one more.

Topics with as many partitions and the same members are cut alike, so that a join of two topics
finds both sides at one member. Where racks matter (KIP-881) members first get partitions that are
near them, topics that are cut alike partition by partition in all of them; what is left is cut into
runs.
"""

from collections.abc import Callable, Sequence

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
from odradek.client.consumer.assignors.racks import Nearness
from odradek.core.ids import TopicPartition


def assign_ranges(topics: Topics, members: Members, racks: Racks = NO_RACKS) -> Assignment:
    assignment: Assignment = {member_id: [] for member_id in members}
    ordered = member_order(members)
    cuts = []
    for topic in sorted(topics):
        takers = [each for each in ordered if topic in members[each].topics]
        if takers:
            nearness = Nearness(members, takers, {topic: topics[topic]}, racks)
            cuts.append(_Cut(topic, topics[topic], takers, nearness, assignment))
    if any(each.nearness.matters for each in cuts):
        _give_near(cuts)
    for each in cuts:
        each.give_runs(lambda _, __: True)
    for share in assignment.values():
        share.sort()
    return assignment


class _Cut:
    """One topic while it is divided."""

    def __init__(
        self,
        topic: str,
        count: int,
        takers: Sequence[str],
        nearness: Nearness,
        assignment: Assignment,
    ) -> None:
        self.topic = topic
        self.count = count
        self.takers = takers
        self.nearness = nearness
        self._free = dict.fromkeys(range(count))
        self._given = dict.fromkeys(takers, 0)
        self._least, self._extra = divmod(count, len(takers))
        self._assignment = assignment

    @property
    def likeness(self) -> tuple[object, ...]:
        """Topics that are equal in this are cut alike."""
        takers = frozenset((each, self.nearness.rack_of(each)) for each in self.takers)
        return takers, self.count if self.nearness.has_members else 0

    def room(self, member_id: str) -> int:
        return max(0, self._least + (self._extra > 0) - self._given[member_id])

    def give(self, member_id: str, numbers: Sequence[int]) -> None:
        self._assignment[member_id].extend(TopicPartition(self.topic, n) for n in numbers)
        self._given[member_id] += len(numbers)
        if self._given[member_id] > self._least:
            self._extra -= 1
        for number in numbers:
            del self._free[number]

    def give_runs(self, may_have: Callable[[str, int], bool]) -> None:
        for member_id in self.takers:
            numbers = [n for n in self._free if may_have(member_id, n)][: self.room(member_id)]
            if numbers:
                self.give(member_id, numbers)

    def is_not_far(self, member_id: str, number: int) -> bool:
        return not self.nearness.is_far(member_id, TopicPartition(self.topic, number))


def _give_near(cuts: Sequence[_Cut]) -> None:
    alike: dict[tuple[object, ...], list[_Cut]] = {}
    for each in cuts:
        alike.setdefault(each.likeness, []).append(each)
    for group in alike.values():
        if len(group) > 1:
            _give_together(group)
        elif group[0].nearness.matters:
            group[0].give_runs(group[0].is_not_far)


def _give_together(group: Sequence[_Cut]) -> None:
    """Give partitions of the same number to one member, who is near all of them."""
    first = group[0]
    if not first.nearness.has_members:
        return
    takers = list(first.takers)
    for number in range(first.count):
        for member_id in takers:
            if all(each.is_not_far(member_id, number) and each.room(member_id) for each in group):
                break
        else:
            continue
        for each in group:
            each.give(member_id, [number])
        if not any(each.room(member_id) for each in group):
            takers.remove(member_id)


RANGE = Assignor("range", assign_ranges, no_user_data)
