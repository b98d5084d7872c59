"""Control records: end-of-transaction markers and what KRaft writes into the metadata log."""

from typing import Final, TypeAlias

from odradek.core.errors import CorruptionError
from odradek.protocol.generated.control_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from odradek.records import Record
from odradek.records.control import (
    ControlRecordType,
    decode_control_key,
    decode_end_transaction_marker,
)
from odradek.storage.dump.java_text import json_text
from odradek.storage.dump.message_json import to_json

_Kraft: TypeAlias = (
    KRaftVersionRecord
    | LeaderChangeMessage
    | SnapshotFooterRecord
    | SnapshotHeaderRecord
    | VotersRecord
)

# Written and read as version 0 whatever the version field of the message says.
_VERSION: Final = 0
_MESSAGES: Final[dict[ControlRecordType, tuple[str, type[_Kraft]]]] = {
    ControlRecordType.LEADER_CHANGE: ("LeaderChange:", LeaderChangeMessage),
    ControlRecordType.SNAPSHOT_HEADER: ("SnapshotHeader", SnapshotHeaderRecord),
    ControlRecordType.SNAPSHOT_FOOTER: ("SnapshotFooter", SnapshotFooterRecord),
    ControlRecordType.KRAFT_VERSION: ("KRaftVersion", KRaftVersionRecord),
    ControlRecordType.KRAFT_VOTERS: ("KRaftVoters", VotersRecord),
}


def control_text(record: Record) -> str:
    """Return what a control record says, with a space before it.

    Raises:
        CorruptionError: It is no control record, or not of the type that it claims.
    """
    control_type = decode_control_key(record.key)
    if control_type in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
        marker = decode_end_transaction_marker(record.key, record.value)
        return f" endTxnMarker: {marker.type.name} coordinatorEpoch: {marker.coordinator_epoch}"
    if control_type not in _MESSAGES:
        assert record.key is not None
        number = int.from_bytes(record.key[2:4], "big", signed=True)
        return f" controlType: UNKNOWN({number})"
    title, kind = _MESSAGES[control_type]
    if record.value is None:
        raise CorruptionError(f"a control record of type {control_type.name} has no value")
    message = kind.decode(record.value, _VERSION)
    return f" {title} {json_text(to_json(message, message.version))}"
