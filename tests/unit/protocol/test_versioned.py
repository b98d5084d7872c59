"""Internal records carry their version or type exactly as Kafka writes them."""

import pytest

from odradek.core.errors import CorruptionError
from odradek.core.ids import Uuid
from odradek.protocol.generated.consumer_group_records import (
    ClassicMemberMetadata,
    ConsumerGroupMemberMetadataValue,
)
from odradek.protocol.generated.consumer_protocol import ConsumerProtocolSubscription
from odradek.protocol.generated.control_records import ControlRecordTypeSchema, EndTxnMarker
from odradek.protocol.generated.metadata_records import NoOpRecord, TopicRecord
from odradek.protocol.generated.offset_records import (
    GroupMetadataKey,
    OffsetCommitKey,
    OffsetCommitValue,
)
from odradek.protocol.versioned import (
    decode_key,
    decode_metadata,
    decode_versioned,
    encode_key,
    encode_metadata,
    encode_versioned,
    record_type,
)


def test_commit_marker_bytes_are_kafkas() -> None:
    assert encode_versioned(ControlRecordTypeSchema(type=1), 0).hex() == "00000001"
    assert encode_versioned(EndTxnMarker(coordinator_epoch=7), 0).hex() == "000000000007"


def test_offset_commit_key_bytes_are_those_of_the_note() -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=2)
    assert encode_key(key).hex() == "0001" + "000167" + "000174" + "00000002"
    assert record_type(encode_key(key)) == OffsetCommitKey.ID
    assert decode_key(OffsetCommitKey, encode_key(key)) == key
    assert encode_key(GroupMetadataKey(group="g")).hex() == "0002" + "000167"


@pytest.mark.parametrize("version", range(5))
def test_offset_commit_value_round_trip(version: int) -> None:
    value = OffsetCommitValue(offset=5, metadata="m", commit_timestamp=9)
    data = encode_versioned(value, version)
    assert data[:2] == bytes([0, version])
    assert decode_versioned(OffsetCommitValue, data) == value


def test_unknown_version_is_corrupt_unless_the_newest_may_stand_in() -> None:
    subscription = ConsumerProtocolSubscription(topics=["t"], generation_id=4)
    from_the_future = bytes([0, 9]) + encode_versioned(subscription, 3)[2:] + b"new field"
    with pytest.raises(CorruptionError, match="unknown version 9"):
        decode_versioned(ConsumerProtocolSubscription, from_the_future)
    read = decode_versioned(ConsumerProtocolSubscription, from_the_future, newest_if_newer=True)
    assert read == subscription


def test_negative_version_is_corrupt() -> None:
    with pytest.raises(CorruptionError, match="unknown version -1"):
        decode_versioned(EndTxnMarker, b"\xff\xff\0\0\0\0", newest_if_newer=True)


def test_metadata_record_frame_bytes_are_kafkas() -> None:
    assert encode_metadata(NoOpRecord(), 0).hex() == "01" + "14" + "00" + "00"
    record = TopicRecord(name="t", topic_id=Uuid(b"i" * 16))
    framed = encode_metadata(record, 0)
    assert framed.hex() == "01" + "02" + "00" + "0274" + "69" * 16 + "00"
    assert decode_metadata(framed) == record


@pytest.mark.parametrize("data", ["", "01", "0102", "020200", "017f00", "010263"])
def test_bad_metadata_frames_are_corrupt(data: str) -> None:
    with pytest.raises(CorruptionError, match="metadata record"):
        decode_metadata(bytes.fromhex(data))


@pytest.mark.parametrize("data", [b"", b"\0"])
def test_bytes_too_short_for_a_version_are_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptionError, match="too few"):
        decode_versioned(EndTxnMarker, data)
    with pytest.raises(CorruptionError, match="too few"):
        record_type(data)


def test_a_null_struct_in_a_tagged_field_is_written_as_kafka_writes_it() -> None:
    """Kafka's default there is a struct of defaults, so null is sent: tag 0, size 1, 0."""
    value = ConsumerGroupMemberMetadataValue(client_id="c", classic_member_metadata=None)
    data = encode_versioned(value, 0)
    assert data[-4:].hex() == "01000100"
    assert decode_versioned(ConsumerGroupMemberMetadataValue, data) == value
    value.classic_member_metadata = ClassicMemberMetadata(session_timeout_ms=5)
    data = encode_versioned(value, 0)
    assert data[-10:].hex() == "01000701" + "00000005" + "01" + "00"
    assert decode_versioned(ConsumerGroupMemberMetadataValue, data) == value
    value.classic_member_metadata = ClassicMemberMetadata()
    assert encode_versioned(value, 0)[-1:] == b"\0"
