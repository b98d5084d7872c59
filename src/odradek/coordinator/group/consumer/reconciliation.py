"""One step of a member from what it has towards what it should have.

A partition changes hands in three beats. Its owner is told to give it up and stays in its epoch
until a heartbeat no longer lists it (UNREVOKED_PARTITIONS). Then the owner advances, which makes
the partition free. Whoever should have it next has advanced without it (UNRELEASED_PARTITIONS) and
gets it with its next heartbeat. So at every moment at most one member may use a partition.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from odradek.coordinator.group.consumer.member import (
    AssignedPartitions,
    Member,
    MemberState,
    Partitions,
)
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import Uuid


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciliation:
    """What a step depends on besides the member."""

    assignment_epoch: int
    target: Partitions
    owned: Partitions | None
    """What the member says it has; None if it did not say, which it does when nothing changed."""
    is_subscribed: Callable[[Uuid], bool]
    subscription_changed: bool
    is_held: Callable[[Uuid, int], bool]
    """Whether anyone holds a partition now, assigned or not yet given up."""

    def step(self, member: Member) -> Member:
        """Return the member's next state, or the member itself if it cannot move yet.

        Raises:
            ApiError: FENCED_MEMBER_EPOCH, where only starting again helps.
        """
        match member.state:
            case MemberState.STABLE:
                if member.member_epoch != self.assignment_epoch:
                    return self._advance(member)
                return self._follow_subscription(member)
            case MemberState.UNREVOKED_PARTITIONS:
                if self._still_owns(member.pending_revocation):
                    return self._follow_subscription(member)
                return self._advance(member)
            case MemberState.UNRELEASED_PARTITIONS:
                return self._advance(member)
            case MemberState.UNKNOWN:
                if self.owned is None or self.owned:
                    raise ApiError(
                        ErrorCode.FENCED_MEMBER_EPOCH,
                        "The member is in a state that this coordinator does not know. It must "
                        "abandon all its partitions and rejoin.",
                    )
                return self._advance(member)

    def _still_owns(self, partitions: AssignedPartitions) -> bool:
        if self.owned is None:
            return True  # nothing said, nothing given up
        return any(
            not partitions[topic_id].keys().isdisjoint(owned)
            for topic_id, owned in self.owned.items()
            if topic_id in partitions
        )

    def _follow_subscription(self, member: Member) -> Member:
        """Take away the topics that a member has just unsubscribed from, in its present epoch."""
        if not self.subscription_changed:
            return member
        dropped = {each for each in member.assigned if not self.is_subscribed(each)}
        if not dropped:
            return member
        kept = {each: epochs for each, epochs in member.assigned.items() if each not in dropped}
        revoked = {
            topic_id: {
                **member.pending_revocation.get(topic_id, {}),
                **(member.assigned[topic_id] if topic_id in dropped else {}),
            }
            for topic_id in member.pending_revocation.keys() | dropped
        }
        if not self._still_owns(revoked):
            return replace(member.at_epoch(member.member_epoch), assigned=kept)
        return replace(
            member.at_epoch(member.member_epoch),
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=kept,
            pending_revocation=revoked,
        )

    def _advance(self, member: Member) -> Member:
        kept: dict[Uuid, dict[int, int]] = {}
        revoked: dict[Uuid, dict[int, int]] = {}
        given: dict[Uuid, dict[int, int]] = {}
        unreleased = False
        for topic_id in {**self.target, **member.assigned}:
            wanted = self.target.get(topic_id, frozenset())
            if not self.is_subscribed(topic_id):
                wanted = frozenset()
            held = member.assigned.get(topic_id, {})
            _put(kept, topic_id, {each: held[each] for each in held if each in wanted})
            _put(revoked, topic_id, {each: held[each] for each in held if each not in wanted})
            missing = wanted.difference(held)
            free = [each for each in sorted(missing) if self._is_free(member, topic_id, each)]
            unreleased |= len(free) < len(missing)
            _put(given, topic_id, dict.fromkeys(free, self.assignment_epoch))
        if revoked and self._still_owns(revoked):
            return replace(
                member.at_epoch(member.member_epoch),
                state=MemberState.UNREVOKED_PARTITIONS,
                assigned=kept,
                pending_revocation=revoked,
            )
        for topic_id, epochs in given.items():
            kept[topic_id] = kept.get(topic_id, {}) | epochs
        return replace(
            member.at_epoch(self.assignment_epoch),
            state=MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE,
            assigned=kept,
            pending_revocation={},
        )

    def _is_free(self, member: Member, topic_id: Uuid, partition: int) -> bool:
        # What the member itself has just given up, it may be given back.
        return partition in member.pending_revocation.get(topic_id, {}) or not self.is_held(
            topic_id, partition
        )


def _put(partitions: dict[Uuid, dict[int, int]], topic_id: Uuid, epochs: dict[int, int]) -> None:
    if epochs:
        partitions[topic_id] = epochs
