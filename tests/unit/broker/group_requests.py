"""Requests about groups in any version: for groups and topics that exist, and for others."""

from collections.abc import Callable

from odradek.core.ids import ZERO_UUID, Uuid
from odradek.protocol.generated.consumer_group_describe import ConsumerGroupDescribeRequest
from odradek.protocol.generated.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.protocol.generated.delete_groups import DeleteGroupsRequest
from odradek.protocol.generated.describe_groups import DescribeGroupsRequest
from odradek.protocol.generated.find_coordinator import FindCoordinatorRequest
from odradek.protocol.generated.heartbeat import HeartbeatRequest
from odradek.protocol.generated.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.generated.leave_group import LeaveGroupRequest, MemberIdentity
from odradek.protocol.generated.list_groups import ListGroupsRequest
from odradek.protocol.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.generated.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from odradek.protocol.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from odradek.protocol.generated.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from odradek.protocol.message import Message
from odradek.testing.broker import Broker

GROUPS = ["committed", "ghost"]
TOPICS = ["t", "ghost"]


def topic_ids(broker: Broker) -> list[tuple[str, Uuid]]:
    return [("t", broker.node.broker.image.topics["t"].topic_id), ("ghost", ZERO_UUID)]


def find_coordinator(_broker: Broker, version: int) -> Message:
    if version < 4:
        return FindCoordinatorRequest(key="committed")
    return FindCoordinatorRequest(coordinator_keys=GROUPS)


def join_group(_broker: Broker, version: int) -> Message:
    return JoinGroupRequest(
        group_id=f"joined-{version}",
        session_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        group_instance_id="static" if version >= 5 else None,
    )


def sync_group(_broker: Broker, _version: int) -> Message:
    assignment = SyncGroupRequestAssignment(member_id="m", assignment=b"a")
    return SyncGroupRequest(
        group_id="committed", generation_id=1, member_id="m", assignments=[assignment]
    )


def heartbeat(_broker: Broker, _version: int) -> Message:
    return HeartbeatRequest(group_id="committed", generation_id=1, member_id="m")


def leave_group(_broker: Broker, version: int) -> Message:
    if version < 3:
        return LeaveGroupRequest(group_id="committed", member_id="m")
    members = [MemberIdentity(member_id="m"), MemberIdentity(group_instance_id="static")]
    return LeaveGroupRequest(group_id="committed", members=members)


def offset_commit(broker: Broker, version: int) -> Message:
    partitions = [
        OffsetCommitRequestPartition(partition_index=i, committed_offset=1, committed_metadata="x")
        for i in (0, 9)
    ]
    return OffsetCommitRequest(
        group_id="committed",
        topics=[
            OffsetCommitRequestTopic(
                name=name if version < 10 else "",
                topic_id=topic_id if version >= 10 else ZERO_UUID,
                partitions=partitions,
            )
            for name, topic_id in topic_ids(broker)
        ],
    )


def offset_fetch(broker: Broker, version: int) -> Message:
    if version < 8:
        topics = [OffsetFetchRequestTopic(name=name, partition_indexes=[0, 9]) for name in TOPICS]
        return OffsetFetchRequest(group_id="committed", topics=topics)
    wanted = [
        OffsetFetchRequestTopics(
            name=name if version < 10 else "",
            topic_id=topic_id if version >= 10 else ZERO_UUID,
            partition_indexes=[0, 9],
        )
        for name, topic_id in topic_ids(broker)
    ]
    groups = [OffsetFetchRequestGroup(group_id=name, topics=wanted) for name in GROUPS]
    everything = OffsetFetchRequestGroup(group_id="committed", topics=None)
    return OffsetFetchRequest(groups=[*groups, everything])


def offset_delete(_broker: Broker, _version: int) -> Message:
    partitions = [OffsetDeleteRequestPartition(partition_index=i) for i in (0, 9)]
    topics = [OffsetDeleteRequestTopic(name=name, partitions=partitions) for name in TOPICS]
    return OffsetDeleteRequest(group_id="committed", topics=topics)


def list_groups(_broker: Broker, version: int) -> Message:
    return ListGroupsRequest(
        states_filter=["Empty", "Stable"] if version >= 4 else [],
        types_filter=["classic", "consumer"] if version >= 5 else [],
    )


def describe_groups(_broker: Broker, _version: int) -> Message:
    return DescribeGroupsRequest(groups=["committed", "joined-0", "consumer-0", "ghost"])


def delete_groups(_broker: Broker, _version: int) -> Message:
    return DeleteGroupsRequest(groups_names=GROUPS)


def consumer_group_heartbeat(_broker: Broker, version: int) -> Message:
    return ConsumerGroupHeartbeatRequest(
        group_id=f"consumer-{version}",
        member_id="m" if version >= 1 else "",
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )


def consumer_group_describe(_broker: Broker, _version: int) -> Message:
    return ConsumerGroupDescribeRequest(group_ids=["consumer-0", "consumer-1", "ghost"])


GROUP_REQUESTS: dict[str, Callable[[Broker, int], Message]] = {
    "ConsumerGroupDescribe": consumer_group_describe,
    "ConsumerGroupHeartbeat": consumer_group_heartbeat,
    "DeleteGroups": delete_groups,
    "DescribeGroups": describe_groups,
    "FindCoordinator": find_coordinator,
    "Heartbeat": heartbeat,
    "JoinGroup": join_group,
    "LeaveGroup": leave_group,
    "ListGroups": list_groups,
    "OffsetCommit": offset_commit,
    "OffsetDelete": offset_delete,
    "OffsetFetch": offset_fetch,
    "SyncGroup": sync_group,
}
