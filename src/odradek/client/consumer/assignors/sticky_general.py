"""Sticky assignment where members want different topics: keep, fill, then move one by one.

Everybody keeps what they still want and, where racks matter, are near. Free partitions go, those
with the fewest takers first, to whoever has least, among those who are near if there are any. Then
partitions move from members with more to members with less, until no move makes it more even; a
partition that has moved from one member to another rather moves back than that a second one of its
topic goes the other way. If all the moving has not made the whole more even than it was, it is
undone.

Unlike Java's, this never gives a partition back to a past owner that does not want its topic now.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from odradek.client.consumer.assignors.assignor import Assignment, Members, Topics
from odradek.client.consumer.assignors.java_order import java_order, partition_hash
from odradek.client.consumer.assignors.racks import Nearness
from odradek.core.ids import TopicPartition


class PastOwner(NamedTuple):
    member_id: str
    generation_id: int


class _Move(NamedTuple):
    topic: str
    source: str
    target: str


class _Moves:
    """Which partitions have moved from whom to whom."""

    def __init__(self) -> None:
        self._of: dict[TopicPartition, _Move] = {}
        self._by_move: dict[_Move, list[TopicPartition]] = {}

    def add(self, partition: TopicPartition, source: str, target: str) -> None:
        before = self._of.pop(partition, None)
        if before is not None:
            self._by_move[before].remove(partition)
            source = before.source
        if source != target:
            move = self._of[partition] = _Move(partition.topic, source, target)
            self._by_move.setdefault(move, []).append(partition)

    def choose(self, partition: TopicPartition, source: str, target: str) -> TopicPartition:
        """Return what to move instead: one that came the other way, if there is one."""
        if partition in self._of:
            source = self._of[partition].source
        came = self._by_move.get(_Move(partition.topic, target, source))
        return java_order(came, partition_hash)[0] if came else partition


class _General:
    def __init__(
        self,
        topics: Topics,
        members: Members,
        owned: Mapping[str, Iterable[TopicPartition]],
        past: Mapping[TopicPartition, PastOwner],
        nearness: Nearness,
    ) -> None:
        self._topics = topics
        self._nearness = nearness
        self._past = past
        self._wanted = {m: [t for t in members[m].topics if t in topics] for m in owned}
        self._takers: dict[str, list[str]] = {topic: [] for topic in topics}
        for member_id, wanted in self._wanted.items():
            for topic in wanted:
                self._takers[topic].append(member_id)
        self._must_revoke = False
        self._shares: dict[str, set[TopicPartition]] = {}
        self._holder: dict[TopicPartition, str] = {}
        for member_id, partitions in owned.items():
            kept = {p for p in partitions if p.topic in self._wanted[member_id]}
            if nearness.matters:
                kept = {p for p in kept if not nearness.is_far(member_id, p)}
            self._must_revoke |= len(kept) < len(set(partitions))
            self._shares[member_id] = kept
            self._holder.update(dict.fromkeys(kept, member_id))
        self._moves = _Moves()
        self._movable_members: set[str] = set()

    def assign(self) -> Assignment:
        by_takers = sorted(self._topics, key=lambda topic: (len(self._takers[topic]), topic))
        everything = [TopicPartition(t, n) for t in by_takers for n in range(self._topics[t])]
        free = [partition for partition in everything if partition not in self._holder]
        is_first = not any(self._shares.values())
        self._movable_members = set(self._shares)
        left = free
        if self._nearness.matters:
            left = [each for each in free if not self._give_to_least(each, only_near=True)]
        for partition in left:
            self._give_to_least(partition)
        self._movable_members = {m for m in self._shares if self._can_change(m)}
        before, holder_before = self._copy(), dict(self._holder)
        if not self._must_revoke:
            self._move_while_uneven([p for p in free if self._can_move(p.topic)])
        moved = self._move_while_uneven([p for p in everything if self._can_move(p.topic)])
        if not is_first and moved and self._unevenness(self._shares) >= self._unevenness(before):
            self._shares, self._holder = before, holder_before
        return {member_id: sorted(share) for member_id, share in self._shares.items()}

    def _copy(self) -> dict[str, set[TopicPartition]]:
        return {member_id: set(share) for member_id, share in self._shares.items()}

    def _by_size(self) -> list[str]:
        return sorted(self._movable_members, key=lambda m: (len(self._shares[m]), m))

    def _give_to_least(self, partition: TopicPartition, *, only_near: bool = False) -> bool:
        takers = self._takers[partition.topic]
        if only_near:
            takers = [each for each in takers if not self._nearness.is_far(each, partition)]
        if not takers:
            return False
        member_id = min(takers, key=lambda m: (len(self._shares[m]), m))
        self._shares[member_id].add(partition)
        self._holder[partition] = member_id
        return True

    def _can_move(self, topic: str) -> bool:
        return len(self._takers[topic]) > 1

    def _can_change(self, member_id: str) -> bool:
        share = self._shares[member_id]
        return len(share) < self._most(member_id) or any(self._can_move(p.topic) for p in share)

    def _most(self, member_id: str) -> int:
        return sum(self._topics[topic] for topic in self._wanted[member_id])

    def _unevenness(self, shares: Mapping[str, set[TopicPartition]]) -> int:
        """Return the sum of all differences between two members."""
        sizes = sorted(len(shares[member_id]) for member_id in self._movable_members)
        return sum((2 * n - len(sizes) + 1) * size for n, size in enumerate(sizes))

    def _move_while_uneven(self, partitions: list[TopicPartition]) -> bool:
        has_moved = False
        is_changing = True
        while is_changing:
            is_changing = False
            for partition in partitions:
                if self._is_even():
                    break
                target = self._find_target(partition)
                if target is not None:
                    self._move(partition, target)
                    has_moved = is_changing = True
        return has_moved

    def _is_even(self) -> bool:
        """Whether no partition could move to a member that would still have fewer than its holder.

        Only the largest holder of each topic has to be looked at.
        """
        ordered = self._by_size()
        if not ordered:
            return True
        sizes = {member_id: len(self._shares[member_id]) for member_id in self._shares}
        if sizes[ordered[0]] >= sizes[ordered[-1]] - 1:
            return True
        largest: dict[str, int] = {}
        for partition, holder in self._holder.items():
            largest[partition.topic] = max(largest.get(partition.topic, 0), sizes[holder])
        return not any(
            sizes[member_id] + 1 < largest.get(topic, 0)
            for member_id in ordered
            for topic in self._wanted[member_id]
        )

    def _find_target(self, partition: TopicPartition) -> str | None:
        """Return who should have the partition instead, if moving it makes things more even."""
        holder = self._holder[partition]
        size = len(self._shares[holder])
        past = self._past.get(partition)
        takers = self._takers[partition.topic]
        is_taker = past is not None and past.member_id in takers
        if past is not None and is_taker and size > len(self._shares[past.member_id]) + 1:
            return past.member_id
        if not any(size > len(self._shares[each]) + 1 for each in takers):
            return None
        movable = [each for each in takers if each in self._movable_members]
        return min(movable, key=lambda m: (len(self._shares[m]), m))

    def _move(self, partition: TopicPartition, target: str) -> None:
        actual = self._moves.choose(partition, self._holder[partition], target)
        source = self._holder[actual]
        self._moves.add(actual, source, target)
        self._shares[source].remove(actual)
        self._shares[target].add(actual)
        self._holder[actual] = target


def balance_general(
    topics: Topics,
    members: Members,
    owned: Mapping[str, Iterable[TopicPartition]],
    past: Mapping[TopicPartition, PastOwner],
    nearness: Nearness,
) -> Assignment:
    """Assign; ``owned`` is what members have now, ``past`` who had a partition before that."""
    return _General(topics, members, owned, past, nearness).assign()
