"""A consumer group as ConsumerGroupDescribe and ListGroups show it."""

from typing import Final

from odradek.coordinator.group.consumer.group_state import GroupState
from odradek.coordinator.group.consumer.member import NOTHING, Member, Partitions
from odradek.coordinator.group.topic_view import TopicView
from odradek.protocol.generated import consumer_group_describe as wire

_CLASSIC_MEMBER: Final = 0
_CONSUMER_MEMBER: Final = 1


def state_name(state: GroupState) -> str:
    """Return what a group waits for: members, a target, members to reach it, nothing."""
    if state.is_deleted:
        return "Dead"
    if not state.members:
        return "Empty"
    if state.group_epoch > state.assignment_epoch:
        return "Assigning"
    if all(each.is_reconciled_to(state.assignment_epoch) for each in state.members.values()):
        return "Stable"
    return "Reconciling"


def describe(state: GroupState, default_assignor: str, topics: TopicView) -> wire.DescribedGroup:
    return wire.DescribedGroup(
        group_id=state.group_id,
        group_state=state_name(state),
        group_epoch=state.group_epoch,
        assignment_epoch=state.assignment_epoch,
        assignor_name=state.preferred_assignor(None, None) or default_assignor,
        members=[
            _member(member, state.target.get(member.member_id, NOTHING), topics)
            for member in state.members.values()
        ],
    )


def _member(member: Member, target: Partitions, topics: TopicView) -> wire.Member:
    return wire.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_assignment(member.held(), topics),
        target_assignment=_assignment(target, topics),
        member_type=_CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
    )


def _assignment(partitions: Partitions, topics: TopicView) -> wire.Assignment:
    return wire.Assignment(
        topic_partitions=[
            wire.TopicPartitions(
                topic_id=topic_id, topic_name=topic.name, partitions=sorted(numbers)
            )
            for topic_id, numbers in partitions.items()
            if (topic := topics.find_by_id(topic_id)) is not None
        ]
    )
