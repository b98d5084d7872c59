"""Control records: what a broker or a controller writes between the records of the producers.

A control batch has the control flag and its records have a key of two int16: a version (0) and a
type. What the value holds depends on the type. The markers that end a transaction have an int16
version (0) and the int32 epoch of the transaction coordinator that wrote them. A newer version may
only add fields at the end, so it is read as version 0; a type that nobody here knows is skipped by
consumers, so it is an answer and not an error.
"""

from enum import IntEnum
from typing import NamedTuple

from odradek.core.errors import CorruptionError
from odradek.protocol.generated.control_records import ControlRecordTypeSchema, EndTxnMarker
from odradek.protocol.versioned import decode_versioned, encode_versioned


class ControlRecordType(IntEnum):
    """The meaning of a control record."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class EndTransactionMarker(NamedTuple):
    """The record that commits or aborts all that a producer wrote since the last one."""

    type: ControlRecordType
    coordinator_epoch: int


def encode_control_key(control_type: ControlRecordType) -> bytes:
    assert control_type != ControlRecordType.UNKNOWN
    return encode_versioned(ControlRecordTypeSchema(type=control_type), 0)


def decode_control_key(key: bytes | None) -> ControlRecordType:
    """Return the type of a control record, UNKNOWN for one from the future."""
    if key is None:
        raise CorruptionError("a control record needs a key")
    schema = decode_versioned(ControlRecordTypeSchema, key, newest_if_newer=True)
    try:
        return ControlRecordType(schema.type)
    except ValueError:
        return ControlRecordType.UNKNOWN


def encode_end_transaction_marker(marker: EndTransactionMarker) -> tuple[bytes, bytes]:
    """Return the key and the value of the marker's record."""
    assert marker.type in (ControlRecordType.ABORT, ControlRecordType.COMMIT)
    value = EndTxnMarker(coordinator_epoch=marker.coordinator_epoch)
    return encode_control_key(marker.type), encode_versioned(value, 0)


def decode_end_transaction_marker(key: bytes | None, value: bytes | None) -> EndTransactionMarker:
    """Return the marker that a control record of type ABORT or COMMIT holds."""
    control_type = decode_control_key(key)
    if control_type not in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
        raise CorruptionError(f"a control record of type {control_type.name} ends no transaction")
    if value is None:
        raise CorruptionError("an end-of-transaction marker needs a value")
    fields = decode_versioned(EndTxnMarker, value, newest_if_newer=True)
    return EndTransactionMarker(control_type, fields.coordinator_epoch)
