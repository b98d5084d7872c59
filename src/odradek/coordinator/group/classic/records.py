"""What a classic group writes: one record that holds all of a generation, or a tombstone.

Subscriptions are whatever the members' protocol says they are. Of the consumers' own protocol the
topics are read, for nothing but to know which committed offsets are still wanted.
"""

from collections.abc import Iterable
from typing import Final

from odradek.coordinator.group.classic.member import Member
from odradek.coordinator.record import CoordinatorRecord
from odradek.core.errors import CorruptionError
from odradek.protocol.generated.consumer_protocol import ConsumerProtocolSubscription
from odradek.protocol.generated.offset_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
NO_TIMESTAMP: Final = -1
_VALUE_VERSION: Final = 3  # Kafka 4.3's too; version 4 is for readers only
_NO_REBALANCE_TIMEOUT: Final = -1
_VERSION_BYTES: Final = 2


def metadata_record(group_id: str, value: GroupMetadataValue) -> CoordinatorRecord:
    return CoordinatorRecord(GroupMetadataKey(group=group_id), value, _VALUE_VERSION)


def metadata_tombstone(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(GroupMetadataKey(group=group_id), None)


def new_group_value(state_timestamp_ms: int) -> GroupMetadataValue:
    """Return what is written of a group before its first generation."""
    return GroupMetadataValue(
        protocol_type="",
        generation=0,
        protocol=None,
        leader=None,
        current_state_timestamp=state_timestamp_ms,
        members=[],
    )


def recorded_member(member: Member, protocol_name: str) -> MemberMetadata:
    return MemberMetadata(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout=member.rebalance_timeout_ms,
        session_timeout=member.session_timeout_ms,
        subscription=member.metadata(protocol_name),
        assignment=member.assignment,
    )


def loaded_member(recorded: MemberMetadata, value: GroupMetadataValue) -> Member:
    """Build a member as far as a record tells: of its protocols only the chosen one."""
    rebalance_timeout_ms = recorded.rebalance_timeout
    if rebalance_timeout_ms == _NO_REBALANCE_TIMEOUT:
        rebalance_timeout_ms = recorded.session_timeout
    return Member(
        member_id=recorded.member_id,
        instance_id=recorded.group_instance_id,
        client_id=recorded.client_id,
        client_host=recorded.client_host,
        rebalance_timeout_ms=rebalance_timeout_ms,
        session_timeout_ms=recorded.session_timeout,
        protocol_type=value.protocol_type,
        protocols=((value.protocol or "", recorded.subscription),),
        assignment=recorded.assignment,
    )


def subscribed_topics(members: Iterable[Member], protocol_name: str) -> frozenset[str] | None:
    """Return the topics consumers subscribed to; None where one's subscription is not readable."""
    topics: set[str] = set()
    try:
        for member in members:
            topics.update(_topics(member.metadata(protocol_name)))
    except CorruptionError:
        return None
    return frozenset(topics)


def _topics(subscription: bytes) -> list[str]:
    """Read a subscription as version 0, with which those of every version begin."""
    version = int.from_bytes(subscription[:_VERSION_BYTES], "big", signed=True)
    if len(subscription) < _VERSION_BYTES or version < 0:
        raise CorruptionError("a subscription without a version")
    return ConsumerProtocolSubscription.decode_from(subscription, _VERSION_BYTES, 0)[0].topics
