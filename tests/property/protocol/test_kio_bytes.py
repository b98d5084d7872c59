"""Our bytes are kio's bytes, for every message-version that kio knows.

kio (Kafka 4.3's schemas) is another implementation of the whole protocol. Its encoder is the
oracle: the same content must give the same bytes, and its bytes must decode to an equal object of
ours. Its decoder is never run: it can crash the interpreter on bad bytes.
"""

import io
from dataclasses import MISSING, is_dataclass
from dataclasses import Field as DataclassField
from dataclasses import fields as dataclass_fields
from datetime import UTC, datetime, timedelta
from functools import cache
from pkgutil import resolve_name
from random import Random
from typing import Any, get_args, get_origin
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.index import schema_name_map
from kio.serial import entity_writer

from fuzz.builder import USUAL, build
from fuzz.catalog import Entry, entries, message_versions
from odradek.core.ids import ZERO_UUID
from odradek.protocol.message import Message, Struct
from tools.notation import Field

ROUNDS = 4
NEW_IN_KAFKA_4_4 = {
    "ApiVersions": [5],
    "DeleteGroups": [3],
    "StreamsGroupDescribe": [1],
    "StreamsGroupHeartbeat": [1],
    "StreamsGroupTopologyDescriptionUpdate": [0],
    "TxnOffsetCommit": [6],
    "UnregisterController": [0],
}
INTERNAL_RECORDS = """
    AbortTransactionRecord AbortedTxn AccessControlEntryRecord BeginTransactionRecord
    BrokerRegistrationChangeRecord ClearElrRecord ClientQuotaRecord ConfigRecord
    ConsumerGroupCurrentMemberAssignmentKey ConsumerGroupCurrentMemberAssignmentValue
    ConsumerGroupMemberMetadataKey ConsumerGroupMemberMetadataValue ConsumerGroupMetadataKey
    ConsumerGroupMetadataValue ConsumerGroupPartitionMetadataKey
    ConsumerGroupPartitionMetadataValue ConsumerGroupRegularExpressionKey
    ConsumerGroupRegularExpressionValue ConsumerGroupTargetAssignmentMemberKey
    ConsumerGroupTargetAssignmentMemberValue ConsumerGroupTargetAssignmentMetadataKey
    ConsumerGroupTargetAssignmentMetadataValue DelegationTokenRecord EndTransactionRecord
    FeatureLevelRecord FenceBrokerRecord GroupMetadataKey GroupMetadataValue
    LegacyOffsetCommitKey LegacyOffsetCommitValue NoOpRecord OffsetCommitKey OffsetCommitValue
    PartitionChangeRecord PartitionRecord ProducerIdsRecord ProducerSnapshot
    RegisterBrokerRecord RegisterControllerRecord RemoveAccessControlEntryRecord
    RemoveDelegationTokenRecord RemoveTopicRecord RemoveUserScramCredentialRecord
    ShareGroupCurrentMemberAssignmentKey ShareGroupCurrentMemberAssignmentValue
    ShareGroupMemberMetadataKey ShareGroupMemberMetadataValue ShareGroupMetadataKey
    ShareGroupMetadataValue ShareGroupStatePartitionMetadataKey
    ShareGroupStatePartitionMetadataValue ShareGroupTargetAssignmentMemberKey
    ShareGroupTargetAssignmentMemberValue ShareGroupTargetAssignmentMetadataKey
    ShareGroupTargetAssignmentMetadataValue ShareSnapshotKey ShareSnapshotValue ShareUpdateKey
    ShareUpdateValue StickyAssignorUserData StreamsGroupCurrentMemberAssignmentKey
    StreamsGroupCurrentMemberAssignmentValue StreamsGroupMemberMetadataKey
    StreamsGroupMemberMetadataValue StreamsGroupMetadataKey StreamsGroupMetadataValue
    StreamsGroupTargetAssignmentMemberKey StreamsGroupTargetAssignmentMemberValue
    StreamsGroupTargetAssignmentMetadataKey StreamsGroupTargetAssignmentMetadataValue
    StreamsGroupTopologyKey StreamsGroupTopologyValue TopicRecord TransactionLogKey
    TransactionLogValue UnfenceBrokerRecord UnregisterBrokerRecord UnregisterControllerRecord
    UserScramCredentialRecord ZkMigrationStateRecord
"""
"""No kio class: their layouts rest on the definitions and round trips alone."""
KIO_ERROR_CODES = sorted(code.value for code in ErrorCode)
TIME_MS_MAX = 1 << 40
"""Times beyond lose milliseconds in the floats through which kio writes them."""


@cache
def kio_classes() -> dict[tuple[str, int], str]:
    """Return the import path of every message-version of kio."""
    return {
        (path.partition(":")[2], version): path
        for versions in schema_name_map.values()
        for version, kinds in versions.items()
        for path in kinds.values()
    }


COMPARED = {name: [v for n, v in kio_classes() if n == name] for name, _ in kio_classes()}
"""The versions of each message that the tests below compare: all that kio has."""


def test_all_625_message_versions_of_kio_are_compared() -> None:
    ours = {(entry.name, version) for entry, version in message_versions()}
    assert {(name, v) for name, versions in COMPARED.items() for v in versions} <= ours
    assert sum(len(versions) for versions in COMPARED.values()) == 625
    assert len(ours) == 792


def test_what_kio_lacks_is_known_by_name() -> None:
    """What is missing there: versions dropped or not yet made by Kafka 4.3, internal records."""
    newer: dict[str, list[int]] = {}
    records: set[str] = set()
    for entry, version in message_versions():
        is_legacy = version < entry.definition.versions.first
        if (entry.name, version) in kio_classes() or is_legacy:
            continue
        if entry.name.endswith(("Request", "Response")):
            newer.setdefault(entry.name, []).append(version)
        else:
            records.add(entry.name)
    assert newer == {
        f"{api}{kind}": versions
        for api, versions in NEW_IN_KAFKA_4_4.items()
        for kind in ("Request", "Response")
    }
    assert records == set(INTERNAL_RECORDS.split())


@pytest.mark.parametrize("name", COMPARED)
def test_bytes_are_those_of_kio(name: str) -> None:
    entry = entries()[name]
    for version in COMPARED[name]:
        kio_class = resolve_name(kio_classes()[name, version])
        for seed in range(ROUNDS):
            random = Random(f"{name} {version} {seed}")
            ours = build(entry, version, random, USUAL, unknown_tags=False)
            check_same_bytes(entry, ours, kio_class, version)


def check_same_bytes(entry: Entry, ours: Message, kio_class: type, version: int) -> None:
    theirs = to_kio(ours, entry.definition.fields, kio_class, version)
    buffer = io.BytesIO()
    entity_writer(kio_class)(buffer, theirs)
    assert ours.to_bytes(version) == buffer.getvalue()
    assert type(ours).decode(buffer.getvalue(), version) == ours


@pytest.mark.parametrize("name", COMPARED)
def test_tags_nulls_and_defaults_are_those_of_kio(name: str) -> None:
    entry = entries()[name]
    for version in COMPARED[name]:
        kio_class = resolve_name(kio_classes()[name, version])
        check_shape(entry, entry.definition.fields, entry.message_class(), kio_class, version)


def check_shape(
    entry: Entry, fields: list[Field], defaults: Struct, kio_class: type, version: int
) -> None:
    for field, theirs in paired(fields, kio_class, version):
        where = f"{entry.name} v{version} {field.name}"
        assert field.tag == theirs.metadata.get("tag"), where
        assert field.is_array == (get_origin(not_none(theirs.type)) is tuple), where
        default = getattr(defaults, field.name)
        if theirs.default is MISSING:
            assert is_zero(default, field), where
        else:
            assert kio_value(default, field, theirs, version) == theirs.default, where
        if theirs.metadata.get("kafka_type") not in ("uuid", "datetime_i64"):
            nullable = type(None) in get_args(theirs.type)
            assert (version in field.nullable) == nullable, where
        if field.is_struct:
            inner = entry.struct_class(field.type)()
            check_shape(entry, field.fields, inner, struct_class(theirs.type), version)


def is_zero(default: Any, field: Field) -> bool:
    """Return whether a field has the default that Kafka gives where its schema names none."""
    if field.is_struct and not field.is_array:
        return default is None if field.tag is not None else default == type(default)()
    if default is None:
        return field.is_struct and field.default == "null"  # kio keeps none for struct arrays
    return default in (0, "", [], b"", ZERO_UUID)


def paired(
    fields: list[Field], kio_class: type, version: int
) -> list[tuple[Field, "DataclassField[Any]"]]:
    """Return our fields beside kio's, which must have the same names in the same order."""
    present = [f for f in fields if version in f.versions]
    pairs = list(zip(present, dataclass_fields(kio_class), strict=True))
    for ours, theirs in pairs:
        assert theirs.name in kio_names(ours)
    return pairs


def to_kio(ours: Struct, fields: list[Field], kio_class: type, version: int) -> Any:
    """Return kio's object of the same content; ``ours`` is first fitted to what kio can hold."""
    content: dict[str, Any] = {}
    for field, their_field in paired(fields, kio_class, version):
        value = fitted(getattr(ours, field.name), their_field)
        setattr(ours, field.name, value)
        content[their_field.name] = kio_value(value, field, their_field, version)
    return kio_class(**content)


RENAMED = {
    "id": "id_",
    "type": "type_",
    # Kafka 4.4 gave these new names; the bytes are the same.
    "acceptable_recovery_lag_legacy": "acceptable_recovery_lag",
    "generation_id_or_member_epoch": "generation_id",
}


def kio_names(field: Field) -> set[str]:
    """Return what kio may call a field: durations and times lose their unit there."""
    return {field.name.removesuffix("_ms"), field.name, RENAMED.get(field.name, field.name)}


def fitted(value: Any, their_field: "DataclassField[Any]") -> Any:
    """Return ``value`` moved into what kio's richer types can express."""
    match their_field.metadata.get("kafka_type"):
        case "error_code":
            return KIO_ERROR_CODES[value % len(KIO_ERROR_CODES)]
        case "timedelta_i64":
            return value % TIME_MS_MAX - 1
        case "datetime_i64":
            low = -1 if type(None) in get_args(their_field.type) else 0
            return value % TIME_MS_MAX + low
        case _:
            return value


def kio_value(value: Any, field: Field, their_field: "DataclassField[Any]", version: int) -> Any:
    if value is None:
        # Our None of a tagged struct means "not sent"; kio says so with the struct's default.
        is_optional_struct = field.is_struct and field.tag is not None
        return their_field.default if is_optional_struct else None
    if field.is_array:
        return tuple(kio_element(v, field, their_field, version) for v in value)
    return kio_element(value, field, their_field, version)


def kio_element(value: Any, field: Field, their_field: "DataclassField[Any]", version: int) -> Any:
    if field.is_struct:
        return to_kio(value, field.fields, struct_class(their_field.type), version)
    match their_field.metadata["kafka_type"]:
        case "error_code":
            return ErrorCode(value)
        case "timedelta_i32" | "timedelta_i64":
            return timedelta(milliseconds=value)
        case "datetime_i64":
            epoch = datetime(1970, 1, 1, tzinfo=UTC)
            return None if value == -1 else epoch + timedelta(milliseconds=value)
        case "uuid":
            return UUID(bytes=value) if any(value) else None
        case "records" | "bytes" | _:
            return value


def not_none(annotation: Any) -> Any:
    inner = [a for a in get_args(annotation) if a is not type(None)]
    is_optional = len(inner) < len(get_args(annotation))
    return inner[0] if is_optional else annotation


def struct_class(annotation: Any) -> type:
    """Return the one dataclass inside ``X``, ``X | None`` or ``tuple[X, ...]``."""
    if is_dataclass(annotation):
        assert isinstance(annotation, type)
        return annotation
    inner = [a for a in get_args(annotation) if a not in (type(None), Ellipsis)]
    assert len(inner) == 1, annotation
    return struct_class(inner[0])
