"""Classic members of a consumer group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

To such a member the group looks like a classic one whose leader is always somebody else. JoinGroup
is answered at once, with the member's epoch as generation; SyncGroup gives it what it has. To be
reconciled it has to join again, which it is told by REBALANCE_IN_PROGRESS; what a cooperative
member still owns comes with its JoinGroup.
"""

from dataclasses import replace
from typing import Final

from odradek.coordinator.group.classic.member import protocols_of
from odradek.coordinator.group.classic.replies import (
    heartbeat_reply,
    join_refused,
    leave_reply,
    sync_refused,
)
from odradek.coordinator.group.consumer import heartbeat_rules
from odradek.coordinator.group.consumer.config import MigrationPolicy
from odradek.coordinator.group.consumer.conversion import may_downgrade
from odradek.coordinator.group.consumer.embedded import (
    CONSUMER_PROTOCOL_TYPE,
    decode_subscription,
    encode_assignment,
    owned_partitions,
)
from odradek.coordinator.group.consumer.member import (
    NOTHING,
    ClassicMetadata,
    Member,
    MemberState,
)
from odradek.coordinator.group.consumer.membership import Membership
from odradek.coordinator.group.consumer.planning import MemberPlan
from odradek.coordinator.group.topic_view import TopicView
from odradek.coordinator.result import Caller, Reply, Result
from odradek.core.clock import Instant
from odradek.core.errors import ApiError, CorruptionError, ErrorCode
from odradek.core.ids import Uuid
from odradek.protocol.generated.consumer_protocol import ConsumerProtocolSubscription
from odradek.protocol.generated.heartbeat import HeartbeatRequest
from odradek.protocol.generated.join_group import JoinGroupRequest, JoinGroupResponse
from odradek.protocol.generated.leave_group import (
    LeaveGroupRequest,
    MemberIdentity,
    MemberResponse,
)
from odradek.protocol.generated.sync_group import SyncGroupRequest, SyncGroupResponse

_JOIN_MEMBER_ID_REQUIRED: Final = 4
_JOIN_REBALANCE_TIMEOUT: Final = 1
_LEAVE_BATCHES: Final = 3


class ClassicMembers:
    def __init__(self, group: Membership) -> None:
        self._group = group

    # JoinGroup.

    def join(
        self, request: JoinGroupRequest, caller: Caller, now: Instant, topics: TopicView
    ) -> Result:
        try:
            return self._join(request, caller, now, topics)
        except ApiError as refusal:
            return Result(replies=(join_refused(caller, request.member_id, refusal.code),))

    def _join(
        self, request: JoinGroupRequest, caller: Caller, now: Instant, topics: TopicView
    ) -> Result:
        group = self._group
        classic = self._check_join(request)
        member_id = request.member_id or str(Uuid.random(group.random))
        if (
            not request.member_id
            and request.group_instance_id is None
            and caller.version >= _JOIN_MEMBER_ID_REQUIRED
        ):
            refusal = join_refused(caller, member_id, ErrorCode.MEMBER_ID_REQUIRED)
            return Result(replies=(refusal,))
        subscription = _subscription(classic)
        plan = MemberPlan(group.state, group.config, topics, now.wall_ms)
        before, replaced = self._find(request, member_id, plan)
        if replaced is None:
            self._check_stranger(before, subscription)
        after = _subscribed(before, request, caller, classic, subscription)
        plan.subscribe(before, after)
        group.bring_up_to_date(plan, topics)
        if replaced is not None and self._is_last_of_consumers(replaced):
            return self._hand_over(plan, after, replaced, caller, now, topics)
        plan.assign(before, after)
        member = plan.reconcile(after, lambda: owned_partitions(subscription, topics))
        group.timers.touch(member_id, request.session_timeout_ms, now)
        group.timers.await_sync(member, now)
        return Result(tuple(plan.records), (_joined(caller, member),))

    def _check_join(self, request: JoinGroupRequest) -> ClassicMetadata:
        group = self._group
        classic = ClassicMetadata(request.session_timeout_ms, protocols_of(request.protocols))
        config = group.config.classic
        shortest_ms, longest_ms = (
            config.group_min_session_timeout_ms,
            config.group_max_session_timeout_ms,
        )
        if not shortest_ms <= request.session_timeout_ms <= longest_ms:
            raise ApiError(ErrorCode.INVALID_SESSION_TIMEOUT, str(request.session_timeout_ms))
        if group.config.migration_policy is MigrationPolicy.DISABLED:
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "group migration is disabled")
        group.check_room(request.member_id, request.group_instance_id)
        state = group.state
        is_supported = bool(classic.protocols) and (
            not state.members
            or any(
                state.classic_protocols[name] == state.classic_members
                for name, _ in classic.protocols
            )
        )
        if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not is_supported:
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.protocol_type)
        return classic

    def _find(
        self, request: JoinGroupRequest, member_id: str, plan: MemberPlan
    ) -> tuple[Member, Member | None]:
        """Return the member as it was before, and the static one whose place it takes."""
        group, instance_id = self._group, request.group_instance_id
        member = group.find_member(member_id, instance_id)
        if instance_id is None or (member is None and not request.member_id):
            return member or Member(member_id=member_id), None
        if member is None:
            raise heartbeat_rules.unknown_instance(instance_id)
        if not request.member_id:
            return plan.take_over(member, member_id), member
        heartbeat_rules.check_not_fenced(member, member_id, instance_id)
        return member, None

    def _check_stranger(self, member: Member, subscription: ConsumerProtocolSubscription) -> None:
        """Refuse a new member that owns partitions: it was removed and does not know it yet.

        As a member it would go on using what is somebody else's by now until it syncs. Told that
        nobody knows it, it lets go at once. Kafka takes it in.
        """
        if member.member_epoch == 0 and subscription.owned_partitions:
            raise heartbeat_rules.unknown_member(member.member_id, self._group.state.group_id)

    def _is_last_of_consumers(self, replaced: Member) -> bool:
        group = self._group
        return replaced.classic is None and (
            may_downgrade(group.state, [replaced], group.config, joining=1)
        )

    def _hand_over(
        self,
        plan: MemberPlan,
        after: Member,
        replaced: Member,
        caller: Caller,
        now: Instant,
        topics: TopicView,
    ) -> Result:
        """Go back to a classic group, with the newcomer in place of the last consumer."""
        state = self._group.state
        staying = [each for each in state.members.values() if each is not replaced]
        is_rebalance = plan.assignment_epoch < plan.group_epoch or not all(
            each.is_reconciled_to(plan.assignment_epoch) for each in staying
        )
        member = after if is_rebalance else plan.reconcile(after, lambda: NOTHING)
        held = [(each, each.held()) for each in (*staying, member)]
        return self._group.hand_over(
            held, now, topics, (_joined(caller, member),), is_rebalance=is_rebalance
        )

    # SyncGroup and Heartbeat.

    def sync(
        self, request: SyncGroupRequest, caller: Caller, now: Instant, topics: TopicView
    ) -> Result:
        group = self._group
        try:
            member, classic = self._check(
                request.member_id, request.group_instance_id, request.generation_id
            )
            _check_protocol(request, classic)
            self._check_no_rebalance(member, now)
        except ApiError as refusal:
            return Result(replies=(sync_refused(caller, refusal.code),))
        group.timers.on_synced(member.member_id)
        group.timers.touch(member.member_id, classic.session_timeout_ms, now)
        assigned = {topic_id: frozenset(held) for topic_id, held in member.assigned.items()}
        response = SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=encode_assignment(assigned, topics, classic.protocols[0][1]),
        )
        return Result(replies=(Reply(caller.waiter, response),))

    def heartbeat(
        self, request: HeartbeatRequest, caller: Caller, now: Instant, topics: TopicView
    ) -> Result:
        group = self._group
        try:
            member, classic = self._check(
                request.member_id, request.group_instance_id, request.generation_id
            )
        except ApiError as refusal:
            return Result(replies=(heartbeat_reply(caller, refusal.code),))
        group.timers.touch(member.member_id, classic.session_timeout_ms, now)
        # Kafka leaves the target to consumers' heartbeats and to joins. In a group that may not
        # go back to the classic protocol there may be no more of either.
        plan = MemberPlan(group.state, group.config, topics, now.wall_ms)
        group.bring_up_to_date(plan, topics)
        plan.assign(member, member)
        code = ErrorCode.NONE
        if self._should_join_again(member, plan.assignment_epoch):
            code = ErrorCode.REBALANCE_IN_PROGRESS
            group.timers.await_join(member, now)
        return Result(tuple(plan.records), (heartbeat_reply(caller, code),))

    def _should_join_again(self, member: Member, assignment_epoch: int) -> bool:
        """Whether joining again would get the member on: to give up, to advance, to receive."""
        match member.state:
            case MemberState.UNREVOKED_PARTITIONS:
                return True
            case MemberState.UNRELEASED_PARTITIONS if not self._waits_for_others(member):
                return True
            case _:
                return member.member_epoch < assignment_epoch

    def _waits_for_others(self, member: Member) -> bool:
        state = self._group.state
        return any(
            partition not in member.assigned.get(topic_id, {})
            and state.is_held(topic_id, partition)
            for topic_id, partitions in state.target.get(member.member_id, NOTHING).items()
            for partition in partitions
        )

    def _check(
        self, member_id: str, instance_id: str | None, generation_id: int
    ) -> tuple[Member, ClassicMetadata]:
        group = self._group
        member = group.find_member(member_id, instance_id)
        if member is None:
            raise heartbeat_rules.unknown_member(member_id, group.state.group_id)
        if instance_id is not None:
            heartbeat_rules.check_not_fenced(member, member_id, instance_id)
        if member.classic is None:
            raise heartbeat_rules.unknown_member(member_id, group.state.group_id)
        if generation_id != member.member_epoch:
            problem = f"{generation_id} is not the member's epoch {member.member_epoch}"
            raise ApiError(ErrorCode.ILLEGAL_GENERATION, problem)
        return member, member.classic

    def _check_no_rebalance(self, member: Member, now: Instant) -> None:
        # One that has to give up partitions has joined in this rebalance already: it must first
        # hear, by this very answer, what it may keep.
        if (
            self._group.state.assignment_epoch > member.member_epoch
            and member.state is not MemberState.UNREVOKED_PARTITIONS
        ):
            self._group.timers.await_join(member, now)
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS, "the member has to join again")

    # LeaveGroup.

    def leave(
        self, request: LeaveGroupRequest, caller: Caller, now: Instant, topics: TopicView
    ) -> Result:
        """Remove members, of either protocol, by id or by static name."""
        identities = request.members
        if caller.version < _LEAVE_BATCHES:
            identities = [MemberIdentity(member_id=request.member_id)]
        leaving: dict[str, Member] = {}
        answers = []
        for identity in identities:
            answer = MemberResponse(
                member_id=identity.member_id, group_instance_id=identity.group_instance_id
            )
            try:
                member = self._leaving(identity)
                leaving[member.member_id] = member
            except ApiError as refusal:
                answer.error_code = refusal.code
            answers.append(answer)
        reply = leave_reply(caller, answers)
        return self._group.fence(list(leaving.values()), now, topics, (reply,))

    def _leaving(self, identity: MemberIdentity) -> Member:
        group, instance_id = self._group, identity.group_instance_id
        member = group.find_member(identity.member_id, instance_id)
        if member is None:
            raise heartbeat_rules.unknown_member(identity.member_id, group.state.group_id)
        # An administrator knows the static name only.
        if instance_id is not None and identity.member_id:
            heartbeat_rules.check_not_fenced(member, identity.member_id, instance_id)
        return member


def _subscription(classic: ClassicMetadata) -> ConsumerProtocolSubscription:
    try:
        return decode_subscription(classic.protocols[0][1])
    except CorruptionError as error:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from error


def _subscribed(
    before: Member,
    request: JoinGroupRequest,
    caller: Caller,
    classic: ClassicMetadata,
    subscription: ConsumerProtocolSubscription,
) -> Member:
    return replace(
        before,
        instance_id=request.group_instance_id or before.instance_id,
        rack_id=subscription.rack_id or before.rack_id,
        rebalance_timeout_ms=_rebalance_timeout_ms(request, caller),
        subscribed_topic_names=frozenset(subscription.topics),
        subscribed_topic_regex="",
        client_id=caller.client_id,
        client_host=caller.client_host,
        classic=classic,
    )


def _rebalance_timeout_ms(request: JoinGroupRequest, caller: Caller) -> int:
    if caller.version < _JOIN_REBALANCE_TIMEOUT:
        return request.session_timeout_ms
    return request.rebalance_timeout_ms


def _joined(caller: Caller, member: Member) -> Reply:
    assert member.classic is not None
    response = JoinGroupResponse(
        generation_id=member.member_epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=member.classic.protocols[0][0],
        member_id=member.member_id,
    )
    return Reply(caller.waiter, response)


def _check_protocol(request: SyncGroupRequest, classic: ClassicMetadata) -> None:
    for theirs, ours in (
        (request.protocol_type, CONSUMER_PROTOCOL_TYPE),
        (request.protocol_name, classic.protocols[0][0]),
    ):
        if theirs is not None and theirs != ours:
            problem = f"{theirs} is not {ours}"
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, problem)
