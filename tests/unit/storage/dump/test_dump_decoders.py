"""Records of the internal topics as JSON, in Kafka's spelling."""

import json

import pytest

from odradek.core.ids import Uuid
from odradek.protocol.apis import message_class
from odradek.protocol.generated import MESSAGES
from odradek.protocol.generated.consumer_protocol import ConsumerProtocolSubscription
from odradek.protocol.generated.metadata_records import (
    ClientQuotaRecord,
    NoOpRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    UserScramCredentialRecord,
)
from odradek.protocol.generated.offset_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from odradek.protocol.generated.share_state_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    StateBatch,
)
from odradek.protocol.message import Message
from odradek.protocol.versioned import encode_key, encode_metadata, encode_versioned
from odradek.records import Record
from odradek.storage.dump import decoder_for
from odradek.storage.dump.decoders import Texts
from odradek.storage.dump.definitions import Field, read_definitions
from odradek.storage.dump.java_text import java_double, json_text
from odradek.storage.dump.message_json import camel_case, to_json

INTERNAL = (
    "consumer_group_records",
    "consumer_protocol",
    "control_records",
    "metadata_records",
    "offset_records",
    "share_group_records",
    "share_state_records",
    "streams_group_records",
    "transaction_records",
)
KEY = encode_key(OffsetCommitKey(group="g", topic="t", partition=3))


def decoded(decoder: str, key: bytes | None, value: bytes | None) -> Texts:
    return decoder_for(decoder).texts(Record(7, 0, key, value))


@pytest.mark.seed_row("0.10")
def test_an_offset_commit() -> None:
    value = OffsetCommitValue(offset=5, metadata='say "hi"', commit_timestamp=9)
    assert decoded("offsets", KEY, encode_versioned(value, 3)) == (
        '{"type":"1","data":{"group":"g","topic":"t","partition":3}}',
        '{"version":"3","data":{"offset":5,"leaderEpoch":-1,"metadata":"say \\"hi\\"",'
        '"commitTimestamp":9}}',
    )
    assert decoded("offsets", KEY, None).payload == "<DELETE>"


def test_what_a_version_lacks_is_left_out() -> None:
    value = OffsetCommitValue(offset=5, commit_timestamp=9, expire_timestamp=11)
    assert json.loads(decoded("offsets", KEY, encode_versioned(value, 1)).payload or "") == {
        "version": "1",
        "data": {"offset": 5, "metadata": "", "commitTimestamp": 9, "expireTimestamp": 11},
    }


def test_subscriptions_of_consumers_are_opened_and_other_bytes_are_not() -> None:
    subscription = ConsumerProtocolSubscription(topics=["t"])
    member = MemberMetadata(
        member_id="m", subscription=encode_versioned(subscription, 1), assignment=b"\0"
    )
    value = GroupMetadataValue(protocol_type="consumer", members=[member])
    key = encode_key(GroupMetadataKey(group="g"))
    payload = decoded("offsets", key, encode_versioned(value, 3)).payload or ""
    shown = json.loads(payload)["data"]["members"][0]
    assert shown["subscription"] == {"topics": ["t"], "userData": None, "ownedPartitions": []}
    assert shown["assignment"] == "AA=="
    value.protocol_type = "connect"
    payload = decoded("offsets", key, encode_versioned(value, 3)).payload or ""
    assert isinstance(json.loads(payload)["data"]["members"][0]["subscription"], str)


def test_share_group_state() -> None:
    topic_id = Uuid(range(16))
    key = encode_key(ShareSnapshotKey(group_id="g", topic_id=topic_id, partition=1))
    value = ShareSnapshotValue(
        start_offset=4, state_batches=[StateBatch(first_offset=4, last_offset=5)]
    )
    texts = decoded("share-group-state", key, encode_versioned(value, 0))
    assert json.loads(texts.key or "")["data"]["topicId"] == "AAECAwQFBgcICQoLDA0ODw"
    data = json.loads(texts.payload or "")["data"]
    assert data["stateBatches"][0]["lastOffset"] == 5
    assert "deliveryCompleteCount" not in data  # tagged, and as by default


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        (b"\0\x63", b"", "Unknown record type 99 at offset 7, skipping."),
        (b"\0", b"", "Error at offset 7, skipping. "),
        (b"\0\1\0", b"", "Error at offset 7, skipping. Could not read record with version 1 from"),
        (KEY, b"\0", "Error at offset 7, skipping. Could not read version from value's buffer."),
        (KEY, b"\0\x2a", "Error at offset 7, skipping. Found an unknown record version 42 for 1"),
        (KEY, b"\0\1", "Error at offset 7, skipping. Could not read record with version 1 from"),
    ],
)
def test_a_record_of_another_topic_is_skipped(key: bytes, value: bytes, problem: str) -> None:
    texts = decoded("offsets", key, value)
    assert (texts.key or "").startswith(problem)
    assert texts.payload is None


def metadata(record: Message, version: int) -> str:
    return decoded("cluster-metadata", None, encode_metadata(record, version)).payload or ""


def test_metadata_records() -> None:
    assert metadata(NoOpRecord(), 0) == '{"type":"NO_OP_RECORD","version":0,"data":{}}'
    change = PartitionChangeRecord(partition_id=1, topic_id=Uuid(16), leader=4)
    assert metadata(change, 0) == (
        '{"type":"PARTITION_CHANGE_RECORD","version":0,"data":{"partitionId":1,'
        '"topicId":"AAAAAAAAAAAAAAAAAAAAAA","leader":4}}'
    )
    quota = json.loads(metadata(ClientQuotaRecord(key="k", value=1.5e7), 0))["data"]
    assert quota == {"entity": [], "key": "k", "value": 1.5e7, "remove": False}
    assert '"value":1.5E7' in metadata(ClientQuotaRecord(key="k", value=1.5e7), 0)
    assert '"salt":"/w=="' in metadata(UserScramCredentialRecord(salt=b"\xff"), 0)
    assert '"rack":null,"fenced":true' in metadata(RegisterBrokerRecord(rack=None), 0)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (None, "Error at 7, skipping. Error while reading frame version"),
        (b"\xff\xff\x7f", "Error at 7, skipping. Value for frame version was too large."),
        (b"\2", "Error at 7, skipping. Could not deserialize metadata record due to unknown frame"),
        (b"\1\x7f\0", "Error at 7, skipping. Unknown metadata id 127 version 0"),
        (b"\1\2\0", "Error at 7, skipping. TopicRecord v0"),
        (b"\1\x14\0\0x", "Error at 7, skipping. Found 1 byte(s) of garbage after 20"),
    ],
)
def test_what_is_no_metadata_record_is_skipped(value: bytes | None, problem: str) -> None:
    assert (decoded("cluster-metadata", None, value).payload or "").startswith(problem)


def test_integers_as_keys_and_values() -> None:
    names = [f"org.apache.kafka.tools.api.{kind}Decoder" for kind in ("Integer", "Long")]
    decoder = decoder_for(None, *names)
    assert decoder.texts(Record(0, 0, b"\xff\xff\xff\xfe", bytes(7) + b"\5")) == ("-2", "5")


def slots(kind: type) -> tuple[str, ...]:
    found: tuple[str, ...] = kind.__dict__["__slots__"]
    return found


@pytest.mark.parametrize("module", INTERNAL)
def test_definitions_and_generated_classes_have_the_same_fields(module: str) -> None:
    definitions = read_definitions(module)
    assert set(definitions) == {name for name, found in MESSAGES.items() if found == module}
    for name, fields in definitions.items():
        kind = message_class(name)
        assert tuple(field.name for field in fields) == slots(kind)
        for version in kind.DECODERS:
            document = to_json(kind(), version)
            untagged = [f for f in fields if _has(f, version) and not f.is_tagged]
            assert list(document) == [camel_case(field.name) for field in untagged]


def _has(field: Field, version: int) -> bool:
    return field.first_version <= version <= field.last_version


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.5, "-0.5"),
        (0.001, "0.001"),
        (0.00012, "1.2E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (-1.25e100, "-1.25E100"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
        (float("nan"), "NaN"),
    ],
)
def test_doubles_look_as_in_java(value: float, text: str) -> None:
    assert java_double(value) == text


def test_json_is_what_jackson_writes() -> None:
    assert json_text("é\x1f\n\u2028") == '"é\\u001F\\n\u2028"'
    assert json_text('\\u001f"') == '"\\\\u001f\\""'
    assert json_text([None, True, 1, float("nan")]) == '[null,true,1,"NaN"]'
