"""Answers as JSON, without what differs from run to run: ids of topics, sessions, ports, times."""

from typing import Any, Final

from odradek.core.ids import ZERO_UUID, Uuid
from odradek.protocol.generated.metadata import MetadataResponseBroker, MetadataResponseTopic
from odradek.protocol.message import Message, Struct
from odradek.records import iter_headers

DROPPED: Final = ("throttle_time_ms", "unknown_tags", "controller_id", "host")
"""Of no meaning here."""
PRESENT: Final = ("session_id", "port")
"""Of which only matters whether it is there."""


def rows(answer: Message, topics: dict[Uuid, str]) -> Any:
    """Return an answer as JSON; ``topics`` gives the names of ids."""
    return _fields(answer, topics)


def _fields(value: Struct, topics: dict[Uuid, str]) -> dict[str, Any]:
    """Return the fields that do not have their default value."""
    found: dict[str, Any] = {}
    defaults = type(value)()
    for name in value.__slots__:
        item = getattr(value, name)
        if name in DROPPED or item == getattr(defaults, name):
            continue
        if name == "records":
            found[name] = _batches(item)
        elif name in PRESENT:
            found[name] = "some" if item else "none"
        else:
            found[name] = _plain(item, topics)
    return found


def _plain(value: Any, topics: dict[Uuid, str]) -> Any:
    if isinstance(value, Struct):
        return _fields(value, topics)
    if isinstance(value, list):
        if value and isinstance(value[0], MetadataResponseBroker):
            value = sorted(value, key=lambda each: each.node_id)
        if value and isinstance(value[0], MetadataResponseTopic):
            value = sorted(value, key=lambda each: each.name)
        return [_plain(each, topics) for each in value]
    if isinstance(value, Uuid):
        return "zero" if value == ZERO_UUID else topics.get(value, "unknown")
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    return value


def _batches(records: Any) -> list[list[int]] | None:
    """Return first and last offset, epoch, and checksum of each batch."""
    if records is None:
        return None
    return [
        [each.base_offset, each.last_offset, each.partition_leader_epoch, each.crc]
        for each in iter_headers(bytes(records))
    ]
