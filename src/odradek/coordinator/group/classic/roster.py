"""Who is in a classic group: members, static names, ids not yet used, the leader, and votes.

Counts are kept as members come and go, so that a thousand joins cost a thousand small steps: how
many members support each protocol, and how many wait for their JoinGroup.
"""

from collections.abc import Collection

from odradek.coordinator.group.classic.member import Member, Protocols
from odradek.coordinator.result import Caller
from odradek.core.errors import ApiError, ErrorCode


class Roster:
    def __init__(self) -> None:
        # Durable, once a generation is written.
        self.members: dict[str, Member] = {}
        self.static_member_ids: dict[str, str] = {}
        self.leader: str | None = None

        # Soft.
        self.pending_join: dict[str, None] = {}  # ids given out, oldest first
        self.pending_sync: set[str] = set()  # told of the generation, not yet heard of again
        self.awaiting_join_count = 0
        self._supporters: dict[str, int] = {}

    # Questions.

    def check_member(self, member_id: str, instance_id: str | None) -> Member:
        """Return the member that the caller says it is.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID where another has taken its name.
        """
        if instance_id is not None:
            current = self.static_member_ids.get(instance_id)
            if current is not None and current != member_id:
                raise ApiError(ErrorCode.FENCED_INSTANCE_ID, f"{instance_id} is now {current}")
        member = self.members.get(member_id)
        if member is None or (instance_id is not None and member.instance_id != instance_id):
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, member_id)
        return member

    @property
    def have_all_joined(self) -> bool:
        return len(self.members) == self.awaiting_join_count and not self.pending_join

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    def is_supported(self, protocol_names: Collection[str]) -> bool:
        """Whether every member knows one of these."""
        size = len(self.members)
        return any(self._supporters.get(name, 0) == size for name in protocol_names)

    def select_protocol(self) -> str:
        """Return the protocol that most members like best among those that all support."""
        size = len(self.members)
        candidates = {name for name, count in self._supporters.items() if count == size}
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=votes.__getitem__)

    # Changes.

    def add(self, member: Member) -> None:
        assert member.member_id not in self.members
        self.members[member.member_id] = member
        if member.instance_id is not None:
            assert member.instance_id not in self.static_member_ids
            self.static_member_ids[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self._count_protocols(member, 1)
        self.awaiting_join_count += member.awaiting_join is not None
        self.pending_join.pop(member.member_id, None)

    def remove(self, member_id: str) -> None:
        """Forget a member, or an id that was given out. Nobody may still wait under it."""
        self.pending_join.pop(member_id, None)
        self.pending_sync.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return
        assert member.awaiting_join is None
        assert member.awaiting_sync is None
        self._count_protocols(member, -1)
        if member.instance_id is not None:
            del self.static_member_ids[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def rename(self, member: Member, member_id: str) -> None:
        """Give a static member that came back its new id; the old one is nobody's."""
        assert member.instance_id is not None
        del self.members[member.member_id]
        # Kafka leaves the old id here, and rebalances for a SyncGroup that cannot come.
        if member.member_id in self.pending_sync:
            self.pending_sync.remove(member.member_id)
            self.pending_sync.add(member_id)
        if self.leader == member.member_id:
            self.leader = member_id
        member.member_id = member_id
        self.members[member_id] = member
        self.static_member_ids[member.instance_id] = member_id

    def change_protocols(self, member: Member, protocols: Protocols) -> None:
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)

    def wait_for_join(self, member: Member, caller: Caller) -> None:
        assert member.awaiting_join is None
        member.awaiting_join = caller
        self.awaiting_join_count += 1

    def take_join_waiter(self, member: Member) -> Caller | None:
        caller, member.awaiting_join = member.awaiting_join, None
        self.awaiting_join_count -= caller is not None
        return caller

    def elect_joined_leader(self) -> bool:
        """Replace a leader that has not joined again by one that has; False if nobody has."""
        if self.leader is None:
            return False
        if self.members[self.leader].awaiting_join is None:
            joined = (m.member_id for m in self.members.values() if m.awaiting_join is not None)
            elected = next(joined, None)
            if elected is None:
                return False
            self.leader = elected
        return True

    def _count_protocols(self, member: Member, by: int) -> None:
        for name, _ in member.protocols:
            count = self._supporters.get(name, 0) + by
            if count:
                self._supporters[name] = count
            else:
                del self._supporters[name]

    def check_invariants(self) -> None:
        members = self.members.values()
        assert all(m.member_id == member_id for member_id, m in self.members.items())
        names = {m.instance_id: m.member_id for m in members if m.instance_id is not None}
        assert names == self.static_member_ids
        assert (self.leader in self.members) if self.members else self.leader is None
        assert self.awaiting_join_count == sum(m.awaiting_join is not None for m in members)
        assert not self.pending_join.keys() & self.members.keys()
        assert self.pending_sync <= self.members.keys()
        counts: dict[str, int] = {}
        for member in members:
            for name, _ in member.protocols:
                counts[name] = counts.get(name, 0) + 1
        assert counts == self._supporters
