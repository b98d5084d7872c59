"""Who may commit offsets to a consumer group, and who may read what it must not outrun.

A commit in the member's own epoch is good. In an older one it is good for partitions that the
member has had without interruption since then (KIP-1251): the offset cannot have been overtaken.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from odradek.coordinator.group.consumer.group_state import GroupState
from odradek.coordinator.group.consumer.heartbeat_rules import unknown_member
from odradek.coordinator.group.consumer.member import Member
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import Uuid

PartitionCheck: TypeAlias = Callable[[Uuid, int], ErrorCode]
"""Judges a partition of a commit: NONE, or why it may not be committed."""

_MEMBER_EPOCH_VERSION: Final = 9
_NO_EPOCH: Final = -1


def check_commit(
    state: GroupState,
    member_id: str,
    group_instance_id: str | None,
    member_epoch: int,
    *,
    is_transactional: bool,
    version: int,
) -> PartitionCheck:
    """Judge a commit as a whole, and return what judges its partitions.

    Raises:
        ApiError: UNKNOWN_MEMBER_ID, UNSUPPORTED_VERSION, STALE_MEMBER_EPOCH, or for a classic
            member ILLEGAL_GENERATION.
    """
    if member_epoch < 0 and not state.members:
        return _accept  # an administrator, or a consumer that assigns itself
    is_anonymous = member_epoch == _NO_EPOCH and not member_id and group_instance_id is None
    if is_transactional and is_anonymous:
        return _accept  # a producer need not say for whom it commits
    member = state.members.get(member_id)
    if member is None:
        raise unknown_member(member_id, state.group_id)
    if not is_transactional and member.classic is None and version < _MEMBER_EPOCH_VERSION:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            "OffsetCommit version 9 or above must be used by members using the consumer group "
            "protocol",
        )
    if member_epoch == member.member_epoch:
        return _accept
    if member_epoch > member.member_epoch:
        problem = f"{member_epoch} is newer than the member's epoch {member.member_epoch}"
        raise ApiError(_stale(member), problem)

    def check_partition(topic_id: Uuid, partition: int) -> ErrorCode:
        since = member.assignment_epoch_of(topic_id, partition)
        return ErrorCode.NONE if since is not None and since <= member_epoch else _stale(member)

    return check_partition


def check_fetch(state: GroupState, member_id: str | None, member_epoch: int) -> None:
    """Judge who asks for committed offsets; who does not say is not judged.

    Raises:
        ApiError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, or for a classic member
            ILLEGAL_GENERATION.
    """
    if member_id is None and member_epoch < 0:
        return
    member = state.members.get(member_id or "")
    if member is None:
        raise unknown_member(member_id or "", state.group_id)
    if member_epoch != member.member_epoch:
        problem = f"{member_epoch} is not the member's epoch {member.member_epoch}"
        raise ApiError(_stale(member), problem)


def _accept(_topic_id: Uuid, _partition: int) -> ErrorCode:
    return ErrorCode.NONE


def _stale(member: Member) -> ErrorCode:
    is_classic = member.classic is not None
    return ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH
