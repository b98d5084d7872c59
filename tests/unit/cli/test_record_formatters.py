"""How the console consumer shows records. Kafka's own formatters are compared in tests/interop."""

import json

import pytest

from odradek.cli.record_formatters import formatter_for
from odradek.cli.tool_options import ToolError
from odradek.client.consumer import ConsumerRecord
from odradek.protocol.generated.offset_records import (
    GroupMetadataKey,
    OffsetCommitKey,
    OffsetCommitValue,
)
from odradek.protocol.versioned import encode_key, encode_versioned
from odradek.records import TimestampType

RECORD = ConsumerRecord("t", 3, 7, 1234, b"k", b"v", (("a", b"1"), ("b", None)))
KEY = encode_key(OffsetCommitKey(group="g", topic="t", partition=3))


def show(record: ConsumerRecord, name: str = "default", **properties: str) -> bytes:
    named = {each.replace("_", "."): value for each, value in properties.items()}
    return formatter_for(name, named).format(record)


def test_values_alone_are_shown_by_default() -> None:
    assert show(RECORD) == b"v\n"
    assert show(RECORD._replace(value=None)) == b"null\n"
    assert show(RECORD._replace(value=b"\xff")) == b"\xff\n"


def test_columns_have_their_order() -> None:
    shown = show(
        RECORD,
        print_value="true",
        print_key="true",
        print_headers="true",
        print_offset="true",
        print_partition="true",
        print_timestamp="true",
    )
    assert shown == b"CreateTime:1234\tPartition:3\tOffset:7\ta:1,b:null\tk\tv\n"


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("timestamp", b"CreateTime:1234\n"),
        ("partition", b"Partition:3\n"),
        ("offset", b"Offset:7\n"),
        ("headers", b"a:1,b:null\n"),
        ("key", b"k\n"),
    ],
)
def test_a_column_can_be_alone(column: str, text: bytes) -> None:
    assert show(RECORD, **{f"print_{column}": "true", "print_value": "false"}) == text


def test_the_broker_s_time_is_told_apart() -> None:
    appended = RECORD._replace(timestamp_type=TimestampType.LOG_APPEND_TIME)
    shown = show(appended, print_timestamp="true", print_value="false")
    assert shown == b"LogAppendTime:1234\n"


def test_nothing_chosen_prints_nothing() -> None:
    assert show(RECORD, print_value="false") == b""
    assert show(RECORD, "no-op") == b""


def test_null_is_the_literal_whatever_the_deserializer() -> None:
    shown = show(RECORD._replace(value=None), value_deserializer="long", null_literal="-")
    assert shown == b"-\n"


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("short", b"\xff\xfe", b"-2"),
        ("integer", b"\0\0\1\0", b"256"),
        ("long", b"\0\0\0\0\0\0\1\0", b"256"),
        ("float", bytes.fromhex("3dcccccd"), b"0.1"),
        ("double", bytes.fromhex("3fb999999999999a"), b"0.1"),
        ("boolean", b"\1", b"true"),
        ("bytes", b"a\\\n", b"a\\x5C\\x0A"),
        ("string", b"\xff", "�".encode()),
        ("bytearray", b"\xff", b"\xff"),
        ("org.apache.kafka.common.serialization.IntegerDeserializer", b"\0\0\0\1", b"1"),
    ],
)
def test_bytes_are_shown_as_what_they_are_said_to_be(name: str, data: bytes, text: bytes) -> None:
    assert show(RECORD._replace(value=data), value_deserializer=name) == text + b"\n"


@pytest.mark.parametrize("name", ["short", "integer", "long", "float", "double", "boolean", "uuid"])
def test_bytes_that_are_not_are_refused(name: str) -> None:
    with pytest.raises(ToolError):
        show(RECORD._replace(value=b"123"), value_deserializer=name)


@pytest.mark.seed_row("0.15")
@pytest.mark.parametrize(
    "name",
    [
        "offsets",
        "org.apache.kafka.tools.consumer.OffsetsMessageFormatter",
        "kafka.coordinator.group.GroupMetadataManager$OffsetsMessageFormatter",
        "kafka.coordinator.GroupMetadataManager$OffsetsMessageFormatter",
    ],
)
def test_offsets_are_json_by_names_of_all_ages(name: str) -> None:
    value = OffsetCommitValue(offset=5, metadata="note", commit_timestamp=9)
    shown = show(RECORD._replace(key=KEY, value=encode_versioned(value, 3)), name)
    assert shown.endswith(b"}\n")
    assert json.loads(shown) == {
        "key": {"type": 1, "data": {"group": "g", "topic": "t", "partition": 3}},
        "value": {
            "version": 3,
            "data": {"offset": 5, "leaderEpoch": -1, "metadata": "note", "commitTimestamp": 9},
        },
    }


def test_a_deletion_is_a_value_of_null() -> None:
    assert json.loads(show(RECORD._replace(key=KEY, value=None), "offsets"))["value"] is None


def test_records_of_other_kinds_are_left_out() -> None:
    group = encode_key(GroupMetadataKey(group="g"))
    assert show(RECORD._replace(key=group, value=None), "offsets") == b""
    assert show(RECORD._replace(key=group, value=None), "group-metadata") != b""
    assert show(RECORD._replace(key=None), "offsets") == b""
    assert show(RECORD._replace(key=b"\x7f\xff"), "offsets") == b""


def test_broken_records_are_told_with_their_offset() -> None:
    broken = RECORD._replace(key=KEY, value=b"\0\x63")
    with pytest.raises(ToolError, match="Could not read record at offset 7 due to: "):
        show(broken, "offsets")


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ToolError, match="offsets"):
        formatter_for("com.example.Mine", {})
    with pytest.raises(ToolError, match="string"):
        formatter_for("default", {"key.deserializer": "com.example.Mine"})
