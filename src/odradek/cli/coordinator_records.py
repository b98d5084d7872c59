"""Records of ``__consumer_offsets`` and its like as JSON, as Kafka's message formatters write them.

``{"key":{"type":1,"data":{…}},"value":{"version":3,"data":{…}}}``, or a value of null for a
deletion. ``dump-log`` has the same messages in another envelope.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from odradek.protocol.message import Message
from odradek.protocol.versioned import decode_key, decode_versioned, record_type
from odradek.storage.dump.decoders import record_kinds
from odradek.storage.dump.java_text import json_text
from odradek.storage.dump.message_json import to_json

_GROUPS: Final = (
    "offset_records",
    "consumer_group_records",
    "share_group_records",
    "streams_group_records",
)


class Kinds(NamedTuple):
    """Which records are shown: those of some modules, perhaps by the names of their keys only."""

    modules: tuple[str, ...]
    key_prefixes: tuple[str, ...] = ("",)


KINDS: Final[Mapping[str, Kinds]] = {
    "offsets": Kinds(_GROUPS, ("OffsetCommitKey", "LegacyOffsetCommitKey")),
    "group-metadata": Kinds(_GROUPS, ("GroupMetadataKey",)),
    "share-group": Kinds(_GROUPS, ("ShareGroup",)),
    "transaction-log": Kinds(("transaction_records",)),
    "share-group-state": Kinds(("share_state_records",)),
}


def coordinator_json(kinds: Kinds, key: bytes | None, value: bytes | None) -> str | None:
    """Return a record as JSON; None if it is not one of these kinds.

    Raises:
        CorruptionError: Key or value are not what they say.
    """
    if key is None:
        return None
    number = record_type(key)
    found = record_kinds(kinds.modules).get(number)
    if found is None or not found.key.__name__.startswith(kinds.key_prefixes):
        return None
    document: dict[str, Any] = {
        "key": {"type": number, "data": to_json(decode_key(found.key, key), 0)},
        "value": None if value is None else _value_json(found.value, value),
    }
    return json_text(document)


def _value_json(value_class: type[Message], value: bytes) -> dict[str, Any]:
    message = decode_versioned(value_class, value)
    version = int.from_bytes(value[:2], "big", signed=True)
    return {"version": version, "data": to_json(message, version)}
