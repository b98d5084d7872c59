"""The records of a consumer group in ``__consumer_offsets``, made from values and read back.

| type | key | value |
|---|---|---|
| 3 | group | group epoch, metadata hash |
| 4 | group | partition metadata; written before Kafka 4.1 only, here it is only ever removed |
| 5 | group, member | who the member is and what it subscribes to |
| 6 | group | assignment epoch, when it was computed |
| 7 | group, member | target assignment |
| 8 | group, member | what the member has, its epoch and state |
| 16 | group, regular expression | the topics it stands for |
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from odradek.coordinator.group.consumer.member import (
    AssignedPartitions,
    ClassicMetadata,
    Member,
    MemberState,
    Partitions,
)
from odradek.coordinator.record import CoordinatorRecord
from odradek.core.ids import Uuid
from odradek.protocol.generated import consumer_group_records as wire


class ResolvedRegex(NamedTuple):
    topics: frozenset[str]
    version: int
    """The version of the topics it was resolved with."""
    timestamp_ms: int


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        wire.ConsumerGroupMetadataKey(group_id=group_id),
        wire.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def member_subscription(group_id: str, member: Member) -> CoordinatorRecord:
    return CoordinatorRecord(
        wire.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        wire.ConsumerGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.subscribed_topic_names),
            subscribed_topic_regex=member.subscribed_topic_regex,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.server_assignor,
            classic_member_metadata=_classic_metadata(member.classic),
        ),
    )


def _classic_metadata(classic: ClassicMetadata | None) -> wire.ClassicMemberMetadata | None:
    if classic is None:
        return None
    return wire.ClassicMemberMetadata(
        session_timeout_ms=classic.session_timeout_ms,
        supported_protocols=[
            wire.ClassicProtocol(name=name, metadata=metadata)
            for name, metadata in classic.protocols
        ],
    )


def current_assignment(group_id: str, member: Member) -> CoordinatorRecord:
    return CoordinatorRecord(
        wire.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        wire.ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=member.member_epoch,
            previous_member_epoch=member.previous_member_epoch,
            state=int(member.state),
            assigned_partitions=_topic_partitions(member.assigned),
            partitions_pending_revocation=_topic_partitions(member.pending_revocation),
        ),
    )


def _topic_partitions(assigned: AssignedPartitions) -> list[wire.TopicPartitions]:
    return [
        wire.TopicPartitions(
            topic_id=topic_id, partitions=list(epochs), assignment_epochs=list(epochs.values())
        )
        for topic_id, epochs in assigned.items()
    ]


def target_assignment(group_id: str, member_id: str, target: Partitions) -> CoordinatorRecord:
    return CoordinatorRecord(
        wire.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        wire.ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[
                wire.TopicPartition(topic_id=topic_id, partitions=sorted(partitions))
                for topic_id, partitions in target.items()
            ]
        ),
    )


def target_assignment_epoch(group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        wire.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        wire.ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=epoch, assignment_timestamp=timestamp_ms
        ),
    )


def resolved_regex(group_id: str, regex: str, resolved: ResolvedRegex) -> CoordinatorRecord:
    return CoordinatorRecord(
        wire.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex),
        wire.ConsumerGroupRegularExpressionValue(
            topics=sorted(resolved.topics),
            version=resolved.version,
            timestamp=resolved.timestamp_ms,
        ),
    )


def regex_tombstone(group_id: str, regex: str) -> CoordinatorRecord:
    key = wire.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
    return CoordinatorRecord(key, None)


def partition_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(wire.ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """Return what removes one member, in the order in which replay wants it."""
    keys = (
        wire.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id),
        wire.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        wire.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id),
    )
    return [CoordinatorRecord(key, None) for key in keys]


def group_tombstones(
    group_id: str, member_ids: Iterable[str], regexes: Iterable[str]
) -> list[CoordinatorRecord]:
    """Return what removes a whole group, its epoch last."""
    ids = list(member_ids)
    keys = [
        *(
            wire.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=each)
            for each in ids
        ),
        *(
            wire.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=each)
            for each in ids
        ),
        wire.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        *(wire.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=each) for each in ids),
        *(
            wire.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=each)
            for each in regexes
        ),
        wire.ConsumerGroupPartitionMetadataKey(group_id=group_id),
        wire.ConsumerGroupMetadataKey(group_id=group_id),
    ]
    return [CoordinatorRecord(key, None) for key in keys]


def subscribed(member: Member, value: wire.ConsumerGroupMemberMetadataValue) -> Member:
    """Return ``member`` as a record of its subscription describes it."""
    classic = value.classic_member_metadata
    return replace(
        member,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        subscribed_topic_names=frozenset(value.subscribed_topic_names),
        subscribed_topic_regex=value.subscribed_topic_regex or "",
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
        classic=None
        if classic is None
        else ClassicMetadata(
            classic.session_timeout_ms,
            tuple((each.name, bytes(each.metadata)) for each in classic.supported_protocols),
        ),
    )


def assigned(member: Member, value: wire.ConsumerGroupCurrentMemberAssignmentValue) -> Member:
    """Return ``member`` as a record of its current assignment describes it."""
    return replace(
        member,
        member_epoch=value.member_epoch,
        previous_member_epoch=value.previous_member_epoch,
        state=MemberState.of(value.state),
        assigned=_assigned(value.assigned_partitions, value.member_epoch),
        pending_revocation=_assigned(value.partitions_pending_revocation, value.member_epoch),
    )


def _assigned(topics: Iterable[wire.TopicPartitions], member_epoch: int) -> AssignedPartitions:
    # Before KIP-1251 a record had no epochs; what a member had, it had since its own epoch.
    default = max(member_epoch, 0)
    found: dict[Uuid, dict[int, int]] = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [default] * len(topic.partitions)
        found[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return found
