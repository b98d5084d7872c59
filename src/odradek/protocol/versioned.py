"""Records that brokers write for each other: messages behind their own version or type.

Three envelopes, all Kafka's:

- *versioned*: ``version int16, message``. Values of ``__consumer_offsets`` and
  ``__transaction_state``, control records, subscriptions inside JoinGroup, ``.txnindex`` entries.
- *keyed*: ``record type int16, message``. Keys of those topics. A key's layout never changes: a new
  layout is a new record type.
- *framed*: ``frame version, record type, message version`` as unsigned varints, then the message.
  The metadata log.
"""

from struct import Struct
from typing import Final, TypeVar

from odradek.core.errors import CorruptionError
from odradek.protocol.apis import message_class
from odradek.protocol.generated import MESSAGES
from odradek.protocol.message import Buffer, Message
from odradek.protocol.primitives import uvarint, write_uvarint

_INT16: Final = Struct(">h")
_KEY_VERSION: Final = 0
METADATA_FRAME_VERSION: Final = 1

M = TypeVar("M", bound=Message)


def encode_versioned(message: Message, version: int) -> bytes:
    return _INT16.pack(version) + message.to_bytes(version)


def decode_versioned(kind: type[M], data: Buffer, *, newest_if_newer: bool = False) -> M:
    """Decode ``data`` as the version it says it is.

    ``newest_if_newer`` reads a version from the future as the newest we know: consumers may be
    newer than the group they join, and the protocol of subscriptions only ever appends fields.
    """
    version = _int16(kind.__name__, data)
    if newest_if_newer:
        version = min(version, kind.VERSION_MAX)
    if version not in kind.DECODERS:
        raise CorruptionError(f"{kind.__name__}: unknown version {version}")
    return kind.decode_from(data, _INT16.size, version)[0]


def encode_key(key: Message) -> bytes:
    """Encode the key of a coordinator's record behind its record type."""
    return _INT16.pack(key.ID) + key.to_bytes(_KEY_VERSION)


def record_type(key: Buffer) -> int:
    """Return the type of record that the key of a coordinator's record announces."""
    return _int16("record key", key)


def decode_key(kind: type[M], key: Buffer) -> M:
    """Decode the key of a coordinator's record; the caller chose ``kind`` by its record type."""
    return kind.decode_from(key, _INT16.size, _KEY_VERSION)[0]


def encode_metadata(record: Message, version: int) -> bytes:
    """Frame a record of the metadata log."""
    out = bytearray()
    for number in (METADATA_FRAME_VERSION, record.ID, version):
        write_uvarint(out, number)
    parts: list[Buffer] = []
    parts.append(record.encode_after(out, parts, version))
    return b"".join(parts)


def decode_metadata(data: Buffer) -> Message:
    """Read a record of the metadata log, whichever it is."""
    view = memoryview(data)
    try:
        frame_version, position = uvarint(view, 0)
        number, position = uvarint(view, position)
        version, position = uvarint(view, position)
    except IndexError as error:
        raise CorruptionError("metadata record: frame too short") from error
    if frame_version != METADATA_FRAME_VERSION:
        raise CorruptionError(f"metadata record: unknown frame version {frame_version}")
    kind = _metadata_kinds().get(number)
    if kind is None or version not in kind.DECODERS:
        raise CorruptionError(f"metadata record: unknown type {number} version {version}")
    return kind.decode_from(view, position, version)[0]


_METADATA_KINDS: dict[int, type[Message]] = {}


def _metadata_kinds() -> dict[int, type[Message]]:
    if not _METADATA_KINDS:
        names = [name for name, module in MESSAGES.items() if module == "metadata_records"]
        _METADATA_KINDS.update({kind.ID: kind for kind in map(message_class, names)})
    return _METADATA_KINDS


def _int16(what: str, data: Buffer) -> int:
    if len(data) < _INT16.size:
        raise CorruptionError(f"{what}: {len(data)} bytes are too few")
    (number,) = _INT16.unpack_from(data)
    return int(number)
