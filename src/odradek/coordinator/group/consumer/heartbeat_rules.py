"""Which heartbeats of the consumer protocol are well formed, and which member epochs count."""

from odradek.coordinator.group.consumer.config import ConsumerGroupConfig
from odradek.coordinator.group.consumer.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    Member,
    Partitions,
    contains_all,
)
from odradek.core.errors import ApiError, ErrorCode
from odradek.protocol.generated.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

CLIENT_MADE_MEMBER_ID_VERSION = 1


def check_request(
    request: ConsumerGroupHeartbeatRequest, version: int, config: ConsumerGroupConfig
) -> None:
    """Check what can be checked without the group.

    Raises:
        ApiError: INVALID_REQUEST or UNSUPPORTED_ASSIGNOR.
    """
    epoch = request.member_epoch
    if version >= CLIENT_MADE_MEMBER_ID_VERSION or epoch > 0 or epoch == LEAVE_EPOCH:
        _require(request.member_id != "", "MemberId can't be empty.")
    _require(request.group_id != "", "GroupId can't be empty.")
    _require(request.instance_id != "", "InstanceId can't be empty.")
    _require(request.rack_id != "", "RackId can't be empty.")
    if epoch == JOIN_EPOCH:
        _check_join(request)
    elif epoch == STATIC_LEAVE_EPOCH:
        _require(request.instance_id is not None, "InstanceId can't be null.")
    else:
        _require(epoch > STATIC_LEAVE_EPOCH, "MemberEpoch is invalid.")
    assignor = request.server_assignor
    if assignor is not None and assignor not in config.assignors:
        raise ApiError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {assignor} is not supported. "
            f"Supported assignors: {', '.join(config.assignors)}.",
        )


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    _require(
        request.rebalance_timeout_ms != -1, "RebalanceTimeoutMs must be provided in first request."
    )
    _require(request.topic_partitions == [], "TopicPartitions must be empty when (re-)joining.")
    # Empty ones are fine: such a member is in the group without any topic.
    _require(
        request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None,
        "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
    )


def _require(condition: bool, problem: str) -> None:
    if not condition:
        raise ApiError(ErrorCode.INVALID_REQUEST, problem)


def is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the member sent everything, as it does on joining and after an error.

    It then does not know, or may have missed, what it has.
    """
    return (
        request.rebalance_timeout_ms != -1
        and request.topic_partitions is not None
        and (
            request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        )
    )


def check_epoch(member: Member, claimed: int, owned: Partitions | None) -> None:
    """Check the epoch in which a member believes itself to be.

    Raises:
        ApiError: FENCED_MEMBER_EPOCH.
    """
    current = member.member_epoch
    if claimed in (JOIN_EPOCH, current):
        return
    if claimed > current:
        raise _fenced("greater", claimed, current)
    # The answer that announced the current epoch may have been lost. The member is then one behind
    # and can have nothing that it was not assigned.
    if (
        claimed != member.previous_member_epoch
        or owned is None
        or not contains_all(member.assigned, owned)
    ):
        raise _fenced("smaller", claimed, current)


def _fenced(which: str, claimed: int, current: int) -> ApiError:
    return ApiError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {which} member epoch ({claimed}) than the one known by "
        f"the group coordinator ({current}). The member must abandon all its partitions and "
        "rejoin.",
    )


def check_not_fenced(member: Member, member_id: str, instance_id: str) -> None:
    """Raise FENCED_INSTANCE_ID if another member has taken the instance id over."""
    if member.member_id != member_id:
        raise ApiError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member "
            f"{member.member_id}.",
        )


def check_released(member: Member, member_id: str, instance_id: str) -> None:
    """Raise UNRELEASED_INSTANCE_ID unless the holder of an instance id has left for a while."""
    if member.member_epoch != STATIC_LEAVE_EPOCH:
        raise ApiError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group "
            f"because the instance id is owned by {member.member_id} member.",
        )


def unknown_member(member_id: str, group_id: str) -> ApiError:
    problem = f"Member {member_id} is not a member of group {group_id}."
    return ApiError(ErrorCode.UNKNOWN_MEMBER_ID, problem)


def unknown_instance(instance_id: str) -> ApiError:
    return ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
