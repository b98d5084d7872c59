"""``uniform``: every member gets equally many partitions, and keeps what it has where possible.

Balance comes before stickiness. Both ways through here begin by keeping what is still valid of the
last target, so a run without a change changes nothing and makes no new objects for members that
keep what they have; the larger part of a group does when one member joins or leaves.
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final

from odradek.coordinator.group.consumer.assignors import AssignorInput, AssignorMember
from odradek.coordinator.group.consumer.member import Partitions
from odradek.core.ids import Uuid

BALANCING_PASSES_MAX: Final = 16
"""Enough for subscriptions that overlap in odd ways to come close; most need two."""


def assign(group: AssignorInput) -> dict[str, Partitions]:
    if not group.members:
        return {}
    first = group.members[0].topic_ids
    if all(member.topic_ids is first or member.topic_ids == first for member in group.members):
        return _Homogeneous(group).assign()
    return _Heterogeneous(group).assign()


class _Kept:
    """What members keep of their last target: partitions that exist, once each."""

    def __init__(self, group: AssignorInput) -> None:
        self.free = {
            topic_id: set(range(count)) for topic_id, count in group.partition_counts.items()
        }
        self.target: dict[str, Partitions] = {}
        self.sizes: dict[str, int] = {}
        for member in group.members:
            self._keep(member)

    def _keep(self, member: AssignorMember) -> None:
        kept: dict[Uuid, frozenset[int]] = {}
        for topic_id, partitions in member.target.items():
            if topic_id in member.topic_ids:
                # Met with the free ones: a classic group that was converted may bring partitions
                # that do not exist, or the same one twice.
                valid = partitions & self.free[topic_id]
                self.free[topic_id] -= valid
                if valid:
                    kept[topic_id] = partitions if len(valid) == len(partitions) else valid
        unchanged = len(kept) == len(member.target) and all(
            kept[topic_id] is partitions for topic_id, partitions in member.target.items()
        )
        self.target[member.member_id] = member.target if unchanged else kept
        self.sizes[member.member_id] = sum(map(len, kept.values()))


class _Homogeneous:
    """All members subscribe to the same topics: each gets its quota, give or take one."""

    def __init__(self, group: AssignorInput) -> None:
        kept = _Kept(group)
        self._free, self._target, self._sizes = kept.free, kept.target, kept.sizes
        total = sum(group.partition_counts.values())
        share, extra = divmod(total, len(group.members))
        # The extra partitions go to those who have most already: that moves the fewest.
        ranked = sorted(self._sizes, key=lambda member_id: -self._sizes[member_id])
        self._quotas = {
            member_id: share + (position < extra) for position, member_id in enumerate(ranked)
        }

    def assign(self) -> dict[str, Partitions]:
        for member_id, quota in self._quotas.items():
            if self._sizes[member_id] > quota:
                self._trim(member_id, quota)
        unassigned = [
            (topic_id, partition)
            for topic_id, partitions in sorted(self._free.items())
            for partition in sorted(partitions)
        ]
        position = 0
        for member_id, quota in self._quotas.items():
            missing = quota - self._sizes[member_id]
            if missing > 0:
                self._add(member_id, unassigned[position : position + missing])
                position += missing
        assert position == len(unassigned), "quotas do not add up"
        return self._target

    def _trim(self, member_id: str, quota: int) -> None:
        target: dict[Uuid, frozenset[int]] = {}
        for topic_id, partitions in sorted(self._target[member_id].items()):
            kept = partitions
            if len(partitions) > quota:
                kept = frozenset(sorted(partitions)[:quota])
                self._free[topic_id] |= partitions - kept
            if kept:
                target[topic_id] = kept
            quota -= len(kept)
        self._target[member_id] = target
        self._sizes[member_id] = sum(map(len, target.values()))

    def _add(self, member_id: str, partitions: Sequence[tuple[Uuid, int]]) -> None:
        added: dict[Uuid, list[int]] = {}
        for topic_id, partition in partitions:
            added.setdefault(topic_id, []).append(partition)
        target = dict(self._target[member_id])
        for topic_id, numbers in added.items():
            target[topic_id] = target.get(topic_id, frozenset()).union(numbers)
        self._target[member_id] = target
        self._sizes[member_id] += len(partitions)


class _Heterogeneous:
    """Members subscribe to different topics: as equal as their subscriptions allow."""

    def __init__(self, group: AssignorInput) -> None:
        kept = _Kept(group)
        self._free, self._sizes, self._kept = kept.free, kept.sizes, kept.target
        self._members = group.members
        self._subscribers: dict[Uuid, list[str]] = {}
        for member in group.members:
            for topic_id in member.topic_ids:
                self._subscribers.setdefault(topic_id, []).append(member.member_id)
        # Topics with most work per subscriber first: those that come later even things out.
        self._topics = sorted(
            self._subscribers,
            key=lambda topic_id: (
                -group.partition_counts[topic_id] / len(self._subscribers[topic_id]),
                len(self._subscribers[topic_id]),
                topic_id,
            ),
        )
        self._owned: dict[Uuid, dict[str, set[int]]] = {each: {} for each in self._topics}
        for member_id, target in kept.target.items():
            for topic_id, partitions in target.items():
                self._owned[topic_id][member_id] = set(partitions)

    def assign(self) -> dict[str, Partitions]:
        for topic_id in self._topics:
            if self._free[topic_id]:
                self._fill(topic_id)
        shared = [each for each in self._topics if len(self._subscribers[each]) > 1]
        for _ in range(BALANCING_PASSES_MAX):
            if not sum(self._balance(topic_id) for topic_id in shared):
                break
        return {member.member_id: self._result(member.member_id) for member in self._members}

    def _fill(self, topic_id: Uuid) -> None:
        least = [(self._sizes[each], each) for each in self._subscribers[topic_id]]
        heapify(least)
        for partition in sorted(self._free[topic_id]):
            size, member_id = least[0]
            self._give(topic_id, partition, member_id)
            heapreplace(least, (size + 1, member_id))

    def _balance(self, topic_id: Uuid) -> int:
        """Move partitions of a topic from those with most to those with least; return how many."""
        owned = self._owned[topic_id]
        least = [(self._sizes[each], each) for each in self._subscribers[topic_id]]
        most = [(-self._sizes[each], each) for each, held in owned.items() if held]
        if not most or -min(most)[0] - min(least)[0] <= 1:
            return 0
        heapify(least)
        heapify(most)
        moved = 0
        while most:
            loaded, giver = most[0]
            size, taker = least[0]
            if size != self._sizes[taker]:
                heapreplace(least, (self._sizes[taker], taker))
            elif -loaded != self._sizes[giver]:
                heapreplace(most, (-self._sizes[giver], giver))
            elif -loaded - size <= 1:
                break
            else:
                partition = max(owned[giver])
                owned[giver].discard(partition)
                self._sizes[giver] -= 1
                self._give(topic_id, partition, taker)
                moved += 1
                if not owned[giver]:
                    heappop(most)
                if owned[taker] == {partition}:
                    heappush(most, (-self._sizes[taker], taker))
        return moved

    def _give(self, topic_id: Uuid, partition: int, member_id: str) -> None:
        self._owned[topic_id].setdefault(member_id, set()).add(partition)
        self._sizes[member_id] += 1

    def _result(self, member_id: str) -> Partitions:
        owned = {
            topic_id: frozenset(members[member_id])
            for topic_id, members in self._owned.items()
            if members.get(member_id)
        }
        return self._kept[member_id] if owned == self._kept[member_id] else owned
