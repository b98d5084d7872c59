"""Members of the consumer protocol: ConsumerGroupHeartbeat, the one request they need."""

from dataclasses import replace
from typing import Final

from odradek.coordinator.group.consumer import heartbeat_rules, records
from odradek.coordinator.group.consumer.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    Member,
    Partitions,
    partitions_of,
)
from odradek.coordinator.group.consumer.membership import Membership
from odradek.coordinator.group.consumer.planning import MemberPlan
from odradek.coordinator.group.topic_view import TopicView
from odradek.coordinator.result import Caller, Reply, Result
from odradek.core.clock import Instant
from odradek.core.errors import ApiError
from odradek.core.ids import Uuid
from odradek.protocol.generated.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

_LEAVING: Final = (LEAVE_EPOCH, STATIC_LEAVE_EPOCH)


class ConsumerMembers:
    def __init__(self, group: Membership) -> None:
        self._group = group

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        caller: Caller,
        now: Instant,
        topics: TopicView,
    ) -> Result:
        """Join, stay, report and receive assignments, or leave: the epoch says which."""
        try:
            heartbeat_rules.check_request(request, caller.version, self._group.config)
            if request.member_epoch in _LEAVING:
                return self._leave(request, caller, now, topics)
            return self._stay(request, caller, now, topics)
        except ApiError as refusal:
            response = ConsumerGroupHeartbeatResponse(
                error_code=refusal.code, error_message=refusal.message
            )
            return Result(replies=(Reply(caller.waiter, response),))

    def _stay(
        self,
        request: ConsumerGroupHeartbeatRequest,
        caller: Caller,
        now: Instant,
        topics: TopicView,
    ) -> Result:
        group = self._group
        group.check_room(request.member_id, request.instance_id)
        plan = MemberPlan(group.state, group.config, topics, now.wall_ms)
        before = self._find(request, plan)
        after = _updated(before, request, caller)
        plan.subscribe(before, after)
        group.bring_up_to_date(plan, topics)
        plan.assign(before, after)
        member = plan.reconcile(after, lambda: _owned(request))
        group.timers.touch(member.member_id, group.config.session_timeout_ms, now)
        if member is not after:
            group.timers.await_revocation(member, now)
        response = ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.member_epoch,
            heartbeat_interval_ms=group.config.heartbeat_interval_ms,
        )
        if heartbeat_rules.is_full(request) or member.assigned != before.assigned:
            response.assignment = _assignment(member)
        return Result(tuple(plan.records), (Reply(caller.waiter, response),))

    def _find(self, request: ConsumerGroupHeartbeatRequest, plan: MemberPlan) -> Member:
        """Return the member that asks, as it was before; a new one if it joins."""
        member_id, instance_id = request.member_id, request.instance_id
        is_joining = request.member_epoch == JOIN_EPOCH
        if not member_id and is_joining:
            member_id = str(Uuid.random(self._group.random))
        member = self._group.find_member(member_id, instance_id)
        if member is None:
            if not is_joining:
                raise _unknown(self._group.state.group_id, member_id, instance_id)
            return self._group.state.members.get(member_id) or Member(member_id=member_id)
        if instance_id is not None:
            if is_joining:
                # A classic holder has no way to say that it left, so it is simply replaced.
                if member.classic is None:
                    heartbeat_rules.check_released(member, member_id, instance_id)
                return plan.take_over(member, member_id)
            heartbeat_rules.check_not_fenced(member, member_id, instance_id)
        if request.member_epoch != member.member_epoch:
            heartbeat_rules.check_epoch(member, request.member_epoch, _owned(request))
        return member

    def _leave(
        self,
        request: ConsumerGroupHeartbeatRequest,
        caller: Caller,
        now: Instant,
        topics: TopicView,
    ) -> Result:
        member_id, instance_id = request.member_id, request.instance_id
        member = self._group.find_member(member_id, instance_id)
        if member is None:
            raise _unknown(self._group.state.group_id, member_id, instance_id)
        if instance_id is not None:
            heartbeat_rules.check_not_fenced(member, member_id, instance_id)
        response = ConsumerGroupHeartbeatResponse(
            member_id=member_id, member_epoch=request.member_epoch
        )
        reply = Reply(caller.waiter, response)
        if instance_id is None or request.member_epoch == LEAVE_EPOCH:
            return self._group.fence([member], now, topics, (reply,))
        # It keeps its partitions for whoever comes under its instance id. Their epochs begin at
        # 0, so that the commits of the one to come are good from its first epoch on.
        away = replace(
            member,
            member_epoch=STATIC_LEAVE_EPOCH,
            assigned={each: dict.fromkeys(held, 0) for each, held in member.assigned.items()},
            pending_revocation={},
        )
        record = records.current_assignment(self._group.state.group_id, away)
        return Result((record,), (reply,))


def _updated(member: Member, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> Member:
    """Return ``member`` with what the request says; what it leaves out stays."""
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    changes: dict[str, object] = {
        "instance_id": request.instance_id,
        "rack_id": request.rack_id,
        "rebalance_timeout_ms": None
        if request.rebalance_timeout_ms == -1
        else request.rebalance_timeout_ms,
        "server_assignor": request.server_assignor,
        "subscribed_topic_names": None if names is None else frozenset(names),
        "subscribed_topic_regex": regex,
        "client_id": caller.client_id,
        "client_host": caller.client_host,
    }
    changed = {
        name: value
        for name, value in changes.items()
        if value is not None and value != getattr(member, name)
    }
    if member.classic is not None:
        changed["classic"] = None
    return replace(member, **changed) if changed else member  # type: ignore[arg-type]  # by name


def _owned(request: ConsumerGroupHeartbeatRequest) -> Partitions | None:
    return None if request.topic_partitions is None else partitions_of(request.topic_partitions)


def _assignment(member: Member) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(epochs))
            for topic_id, epochs in member.assigned.items()
        ]
    )


def _unknown(group_id: str, member_id: str, instance_id: str | None) -> ApiError:
    if instance_id is None:
        return heartbeat_rules.unknown_member(member_id, group_id)
    return heartbeat_rules.unknown_instance(instance_id)
