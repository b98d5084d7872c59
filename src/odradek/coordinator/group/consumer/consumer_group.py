"""A group of the consumer protocol (KIP-848), with members that may speak the classic one.

Request methods and ``tick`` plan: they return records and replies and leave durable state alone.
``replay`` is its only mutator. Errors are replies; only the ``check_…`` methods, which judge for
others, raise. Soft state (deadlines, which version of the topics was seen) is touched while
planning: if the records are then lost, a deadline without its member does nothing.

When the last member of the consumer protocol goes and classic ones stay, the records of a result
end this group and begin a classic one. ``take_successor`` then has it; it takes over once the
records are replayed.

A heartbeat of a member that has nothing new to say costs a few comparisons, however large the
group. A change of subscriptions or topics costs one pass over the members, and a new partition set
for each member whose target changes.

Not here: the existence of the group (the shard answers GROUP_ID_NOT_FOUND), authorization, and
computing assignments beside the event loop (``group.consumer.assignor.offload.enable``).
"""

from random import Random

from odradek.coordinator.group.classic.classic_group import ClassicGroup
from odradek.coordinator.group.consumer import commit_rules, describing
from odradek.coordinator.group.consumer.classic_member import ClassicMembers
from odradek.coordinator.group.consumer.commit_rules import PartitionCheck
from odradek.coordinator.group.consumer.config import ConsumerGroupConfig
from odradek.coordinator.group.consumer.consumer_member import ConsumerMembers
from odradek.coordinator.group.consumer.conversion import UpgradableGroup, plan_upgrade
from odradek.coordinator.group.consumer.member import MemberState
from odradek.coordinator.group.consumer.membership import Membership
from odradek.coordinator.group.topic_view import TopicView
from odradek.coordinator.record import CoordinatorRecord
from odradek.coordinator.result import Caller, Result
from odradek.core.clock import Instant
from odradek.core.errors import ApiError, ErrorCode
from odradek.protocol.generated.consumer_group_describe import DescribedGroup
from odradek.protocol.generated.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.protocol.generated.consumer_group_records import ConsumerGroupMemberMetadataKey
from odradek.protocol.generated.heartbeat import HeartbeatRequest
from odradek.protocol.generated.join_group import JoinGroupRequest
from odradek.protocol.generated.leave_group import LeaveGroupRequest
from odradek.protocol.generated.list_groups import ListedGroup
from odradek.protocol.generated.sync_group import SyncGroupRequest


class ConsumerGroup:
    def __init__(self, group_id: str, config: ConsumerGroupConfig, random: Random) -> None:
        self._membership = Membership(group_id, config, random)
        self._timers = self._membership.timers
        self.state = self._membership.state
        """Everything durable; only ``replay`` changes it."""
        self._consumers = ConsumerMembers(self._membership)
        self._classic = ClassicMembers(self._membership)

    @classmethod
    def from_classic(
        cls,
        classic: UpgradableGroup,
        config: ConsumerGroupConfig,
        random: Random,
        now: Instant,
        topics: TopicView,
    ) -> tuple["ConsumerGroup", list[CoordinatorRecord]]:
        """Return the group that a classic one becomes, and the records that say so.

        The records have been replayed into it and go into the log behind the classic group's
        tombstone, together with those of the heartbeat that caused all this. If that is refused,
        drop both and keep the classic group.

        Raises:
            ApiError: GROUP_ID_NOT_FOUND, as Kafka says when a group cannot be upgraded.
        """
        planned = plan_upgrade(classic, topics, config)
        group = cls(classic.group_id, config, random)
        for record in planned:
            group.replay(record)
        group.on_loaded(now)
        return group, planned

    # Requests.

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        caller: Caller,
        now: Instant,
        topics: TopicView,
    ) -> Result:
        return self._consumers.heartbeat(request, caller, now, topics)

    def join_classic(
        self, request: JoinGroupRequest, caller: Caller, now: Instant, topics: TopicView
    ) -> Result:
        return self._classic.join(request, caller, now, topics)

    def sync_classic(
        self, request: SyncGroupRequest, caller: Caller, now: Instant, topics: TopicView
    ) -> Result:
        return self._classic.sync(request, caller, now, topics)

    def heartbeat_classic(
        self, request: HeartbeatRequest, caller: Caller, now: Instant, topics: TopicView
    ) -> Result:
        return self._classic.heartbeat(request, caller, now, topics)

    def leave_classic(
        self, request: LeaveGroupRequest, caller: Caller, now: Instant, topics: TopicView
    ) -> Result:
        return self._classic.leave(request, caller, now, topics)

    def take_successor(self) -> ClassicGroup | None:
        """Return the classic group that the last result made of this one, if it did."""
        return self._membership.take_successor()

    # Time, and the log.

    def replay(self, record: CoordinatorRecord) -> None:
        """Apply one record; afterwards ``is_deleted`` tells whether the group is still there."""
        self.state.replay(record)
        if isinstance(record.key, ConsumerGroupMemberMetadataKey) and record.value is None:
            self._timers.forget(record.key.member_id)

    def on_loaded(self, now: Instant) -> None:
        """Give every member a new session: the log does not tell when it was last heard of."""
        for member in self.state.members.values():
            classic = member.classic
            spoken = self.config if classic is None else classic
            self._timers.touch(member.member_id, spoken.session_timeout_ms, now)
            if member.state is MemberState.UNREVOKED_PARTITIONS and classic is None:
                self._timers.await_revocation(member, now)

    def next_deadline_ms(self) -> int | None:
        """Return when, on the monotonic clock, ``tick`` is due."""
        return self._timers.next_ms()

    def tick(self, now: Instant, topics: TopicView) -> Result:
        """Remove the members that have been silent, or slow to give up partitions, for too long."""
        members = self.state.members
        expired = [members[each] for each in self._timers.take_expired(members, now)]
        return self._membership.fence(expired, now, topics)

    # What others may know.

    @property
    def config(self) -> ConsumerGroupConfig:
        """May be replaced at any time; what is scheduled already stays."""
        return self._membership.config

    @config.setter
    def config(self, config: ConsumerGroupConfig) -> None:
        self._membership.config = config

    @property
    def group_id(self) -> str:
        return self.state.group_id

    @property
    def size(self) -> int:
        return len(self.state.members)

    @property
    def is_empty(self) -> bool:
        return not self.state.members

    @property
    def is_deleted(self) -> bool:
        return self.state.is_deleted

    @property
    def state_name(self) -> str:
        return describing.state_name(self.state)

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.state.subscriptions

    def describe(self, topics: TopicView) -> DescribedGroup:
        return describing.describe(self.state, self.config.assignors[0], topics)

    def listed(self) -> ListedGroup:
        return ListedGroup(
            group_id=self.group_id,
            protocol_type="consumer",
            group_state=self.state_name,
            group_type="consumer",
        )

    def check_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        member_epoch: int,
        *,
        is_transactional: bool,
        version: int,
    ) -> PartitionCheck:
        """Judge a commit; what is returned judges each of its partitions."""
        return commit_rules.check_commit(
            self.state,
            member_id,
            group_instance_id,
            member_epoch,
            is_transactional=is_transactional,
            version=version,
        )

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        commit_rules.check_fetch(self.state, member_id, member_epoch)

    def check_delete(self) -> None:
        if not self.is_empty:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP, f"group {self.group_id} has members")

    def tombstones(self) -> list[CoordinatorRecord]:
        """Return the records that remove the group."""
        return self._membership.tombstones()

    def check_invariants(self) -> None:
        self.state.check_invariants()
