"""The types of record in ``__consumer_offsets``, by the number that a key begins with."""

from typing import Final

from odradek.protocol.generated.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from odradek.protocol.generated.offset_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from odradek.protocol.message import Message
from odradek.protocol.versioned import decode_key, decode_versioned, record_type

_LEGACY_OFFSET_COMMIT: Final = 0
_TYPES: Final[dict[int, tuple[type[Message], type[Message]]]] = {
    # The oldest commits differ in their number only.
    _LEGACY_OFFSET_COMMIT: (OffsetCommitKey, OffsetCommitValue),
    **{
        key.ID: (key, value)
        for key, value in (
            (OffsetCommitKey, OffsetCommitValue),
            (GroupMetadataKey, GroupMetadataValue),
            (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
            (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
            (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
            (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
            (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
            (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
            (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
        )
    },
}


def decode_group_record(key: bytes, value: bytes | None) -> tuple[Message, Message | None] | None:
    """Decode a record; None for a type that is not known here (share and streams groups).

    Raises:
        CorruptionError: The bytes are not what their type says.
    """
    kinds = _TYPES.get(record_type(key))
    if kinds is None:
        return None
    decoded = decode_key(kinds[0], key)
    return decoded, None if value is None else decode_versioned(kinds[1], value)
