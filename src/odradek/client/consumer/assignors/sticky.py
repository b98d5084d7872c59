"""The sticky assignor: as even as can be, and as much as can be stays where it was.

Members say what they had and in which generation. Of two that claim a partition the one with the
newer generation keeps it; if both are of the same, neither does. From there it depends: if all
members want the same topics, everybody keeps up to a fair share and what is left is dealt out in
order (here). If not, the general way of ``sticky_general`` is slower and moves partitions one by
one.

A member that rebalances eagerly has given everything up before it joins, so it sends what it had
as user data of this assignor's own.

Where racks matter (KIP-881) nobody keeps what is far, and what is free goes to members that are
near it first, that with the fewest of them at the head of the line.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

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
from odradek.client.consumer.assignors.java_order import java_order, string_hash
from odradek.client.consumer.assignors.racks import Nearness
from odradek.client.consumer.assignors.sticky_general import PastOwner, balance_general
from odradek.core.errors import CorruptionError
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.consumer_protocol import StickyAssignorUserData, TopicPartitions

_VERSIONS: Final = (1, 0)


class Claim(NamedTuple):
    """What a member says it had; ``generation_id`` is None where it did not say when."""

    partitions: tuple[TopicPartition, ...]
    generation_id: int | None


class StickyResult(NamedTuple):
    assignment: Assignment
    moving: dict[TopicPartition, str] | None
    """Partitions that one member has to give up before another may have them, and that other
    member; None if that has to be found out from the assignment."""


class _Owners(NamedTuple):
    owned: dict[str, list[TopicPartition]]
    disputed: set[TopicPartition]
    generation_max: int


def assign_sticky(
    topics: Topics,
    members: Members,
    racks: Racks,
    claim_of: Callable[[MemberSubscription], Claim],
) -> StickyResult:
    """Assign; ``claim_of`` says where a member's subscription tells what it had."""
    ordered = java_order(list(members), string_hash)
    claims = {member_id: claim_of(members[member_id]) for member_id in ordered}
    owners = _settle(topics, members, claims)
    nearness = Nearness(members, ordered, topics, racks)
    if _want_the_same(members, ordered):
        return _FairShares(topics, owners, nearness).assign()
    past = _past_owners(claims, owners.generation_max)
    return StickyResult(balance_general(topics, members, owners.owned, past, nearness), None)


def _want_the_same(members: Members, ordered: Sequence[str]) -> bool:
    first: set[str] = set()
    for member_id in ordered:
        wanted = members[member_id].topics
        # As Java has it: members without any topic at the beginning do not count.
        if not first:
            first.update(wanted)
        elif len(wanted) != len(first) or not first.issuperset(wanted):
            return False
    return True


def _settle(topics: Topics, members: Members, claims: dict[str, Claim]) -> _Owners:
    """Find out who had what, of all that members claim."""
    owned: dict[str, list[TopicPartition]] = {member_id: [] for member_id in claims}
    holder: dict[TopicPartition, str] = {}
    disputed = set()
    generation_max = NO_GENERATION
    for member_id, claim in claims.items():
        generation_id = NO_GENERATION if claim.generation_id is None else claim.generation_id
        generation_max = max(generation_max, generation_id)
        for partition in claim.partitions:
            if partition.partition >= topics.get(partition.topic, 0):
                continue
            other = holder.get(partition)
            if other is None:
                owned[member_id].append(partition)
                holder[partition] = member_id
                continue
            theirs = members[other].generation_id
            if generation_id < theirs:
                continue
            if partition in owned[other]:
                owned[other].remove(partition)
            holder[partition] = member_id
            if generation_id == theirs:
                disputed.add(partition)
            else:
                owned[member_id].append(partition)
    return _Owners(owned, disputed, generation_max)


def _past_owners(claims: dict[str, Claim], generation_max: int) -> dict[TopicPartition, PastOwner]:
    """Return who had a partition in an older generation: the newest of them, the first if equal."""
    past: dict[TopicPartition, PastOwner] = {}
    for member_id, claim in claims.items():
        generation_id = NO_GENERATION if claim.generation_id is None else claim.generation_id
        if generation_id >= generation_max:
            continue
        for partition in claim.partitions:
            known = past.get(partition)
            if known is None or generation_id > known.generation_id:
                past[partition] = PastOwner(member_id, generation_id)
    return past


class _FairShares:
    """All members want the same: each gets ``least`` partitions, ``extra`` of them one more."""

    def __init__(self, topics: Topics, owners: _Owners, nearness: Nearness) -> None:
        self._topics = topics
        self._owners = owners
        self._nearness = nearness
        self._least, self._extra = divmod(sum(topics.values()), len(owners.owned))
        self._most = self._least + (self._extra > 0)
        self._with_extra = 0
        self._below: list[str] = []
        self._at_least: deque[str] = deque()
        self._given_up: dict[TopicPartition, str] = {}
        self._moving: dict[TopicPartition, str] = {}
        self._assignment: Assignment = {member_id: [] for member_id in owners.owned}

    def assign(self) -> StickyResult:
        for member_id in self._owners.owned:
            self._keep(member_id)
        self._below.sort()
        self._at_least = deque(sorted(self._at_least))
        free = self._free()
        self._deal(self._deal_near(free) if self._nearness.matters else free)
        return StickyResult(self._assignment, self._moving)

    def _keep(self, member_id: str) -> None:
        """Let a member keep of its own as much as is fair, the lowest numbers first."""
        claimed = self._owners.owned[member_id]
        if self._nearness.matters:
            far = [each for each in claimed if self._nearness.is_far(member_id, each)]
            self._given_up.update(dict.fromkeys(far, member_id))
            claimed = [each for each in claimed if each not in far]
        owned = sorted(
            (p for p in claimed if p not in self._owners.disputed),
            key=lambda p: (p.partition, p.topic),
        )
        if len(owned) < self._least:
            self._assignment[member_id].extend(owned)
            self._below.append(member_id)
            return
        has_extra = len(owned) >= self._most and self._with_extra < self._extra
        if has_extra:
            self._with_extra += 1
            if self._with_extra == self._extra:
                self._at_least.clear()
        elif self._with_extra < self._extra:
            self._at_least.append(member_id)
        kept = self._most if has_extra else self._least
        self._assignment[member_id].extend(owned[:kept])
        self._given_up.update(dict.fromkeys(owned[kept:], member_id))

    def _free(self) -> list[TopicPartition]:
        """Return what nobody has, in the order in which it is dealt."""
        kept = {partition for share in self._assignment.values() for partition in share}
        free = [
            partition
            for topic in sorted(self._topics)
            for number in range(self._topics[topic])
            if (partition := TopicPartition(topic, number)) not in kept
        ]
        return sorted(free, key=self._nearness.count_near) if self._nearness.matters else free

    def _deal_near(self, free: list[TopicPartition]) -> list[TopicPartition]:
        """Deal to members that are near; return what is left."""
        left = []
        turn = 0
        for partition in free:
            place = self._find_near(partition, self._below, turn)
            if place is not None:
                member_id = self._below[place]
                self._give(partition, member_id)
                turn = self._after_near(place)
                continue
            place = self._find_near(partition, self._at_least, 0)
            if place is None:
                left.append(partition)
                continue
            self._give(partition, self._at_least[place])
            del self._at_least[place]
            self._with_extra += 1
            if self._with_extra == self._extra:
                self._at_least.clear()
        return left

    def _find_near(
        self, partition: TopicPartition, members: Sequence[str], first: int
    ) -> int | None:
        for n in range(len(members)):
            place = (first + n) % len(members)
            if self._nearness.is_near(members[place], partition):
                return place
        return None

    def _after_near(self, place: int) -> int:
        """Return whose turn it is after a member below the least was given something."""
        member_id = self._below[place]
        size = len(self._assignment[member_id])
        if size < self._least:
            return (place + 1) % len(self._below)
        del self._below[place]
        if size < self._most and self._with_extra < self._extra:
            self._at_least.append(member_id)
        return place % len(self._below) if self._below else 0

    def _deal(self, free: Sequence[TopicPartition]) -> None:
        """Deal what nobody has to those below the least, then one more to those who have it."""
        turn = 0
        for partition in free:
            if not self._below:
                self._give(partition, self._at_least.popleft())
                continue
            turn %= len(self._below)
            member_id = self._below[turn]
            self._give(partition, member_id)
            if len(self._assignment[member_id]) == self._least:
                del self._below[turn]
                self._at_least.append(member_id)
            else:
                turn += 1

    def _give(self, partition: TopicPartition, member_id: str) -> None:
        self._assignment[member_id].append(partition)
        before = self._given_up.get(partition, member_id)
        if before != member_id or partition in self._owners.disputed:
            self._moving[partition] = member_id


def _claim(subscription: MemberSubscription) -> Claim:
    data = subscription.user_data
    if not data:
        return Claim((), None)
    for version in _VERSIONS:
        try:
            said = StickyAssignorUserData.decode(data, version)
        except CorruptionError:
            continue
        partitions = tuple(
            TopicPartition(each.topic, number)
            for each in said.previous_assignment
            for number in each.partitions
        )
        return Claim(partitions, said.generation if version else None)
    return Claim((), NO_GENERATION)  # of no client we know: as if it had had nothing


def _user_data(owned: Sequence[TopicPartition] | None, generation_id: int) -> bytes | None:
    if owned is None:
        return None
    by_topic: dict[str, list[int]] = {}
    for partition in owned:
        by_topic.setdefault(partition.topic, []).append(partition.partition)
    said = StickyAssignorUserData(
        previous_assignment=[TopicPartitions(topic=t, partitions=n) for t, n in by_topic.items()],
        generation=generation_id,
    )
    return said.to_bytes(1)


STICKY: Final = Assignor(
    "sticky",
    lambda topics, members, racks=NO_RACKS: (
        assign_sticky(topics, members, racks, _claim).assignment
    ),
    _user_data,
)
