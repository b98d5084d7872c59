"""Keys and values of records as text: plain, or decoded as records of an internal topic."""

from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple, Protocol

from odradek.core.errors import CorruptionError, OdradekError
from odradek.protocol.apis import message_class
from odradek.protocol.generated import MESSAGES
from odradek.protocol.generated.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from odradek.protocol.generated.offset_records import GroupMetadataValue
from odradek.protocol.message import Message
from odradek.protocol.primitives import uvarint
from odradek.protocol.versioned import METADATA_FRAME_VERSION, record_type
from odradek.records import Record
from odradek.storage.dump.java_text import json_text, text_of
from odradek.storage.dump.message_json import to_json

_PREFIX_BYTES: Final = 2  # record type of a key, version of a value
_INT16_MAX: Final = 2**15 - 1


class Texts(NamedTuple):
    """What is shown of a record; None for what is not shown at all."""

    key: str | None
    payload: str | None


class Decoder(Protocol):
    def texts(self, record: Record) -> Texts: ...


def _int_text(size: int) -> Callable[[bytes], str]:
    def text(data: bytes) -> str:
        if len(data) < size:
            raise CorruptionError(f"{len(data)} bytes are no integer of {size} bytes")
        return str(int.from_bytes(data[:size], "big", signed=True))

    return text


DEFAULT_TEXT: Final = "org.apache.kafka.tools.api.StringDecoder"
TEXTS: Final[dict[str, Callable[[bytes], str]]] = {
    DEFAULT_TEXT: text_of,
    "org.apache.kafka.tools.api.IntegerDecoder": _int_text(4),
    "org.apache.kafka.tools.api.LongDecoder": _int_text(8),
}
"""What --key-decoder-class and --value-decoder-class may name."""


class TextDecoder:
    def __init__(self, key: str = DEFAULT_TEXT, value: str = DEFAULT_TEXT) -> None:
        self._key_text = TEXTS[key]
        self._value_text = TEXTS[value]

    def texts(self, record: Record) -> Texts:
        return Texts(
            None if record.key is None else self._key_text(record.key),
            None if record.value is None else self._value_text(record.value),
        )


class CoordinatorDecoder:
    """Records of a coordinator: a typed key, and a versioned value or none for a deletion."""

    def __init__(self, *modules: str) -> None:
        self._modules = modules

    def texts(self, record: Record) -> Texts:
        """Return both as JSON; what cannot be decoded is said in place of the key.

        Raises:
            CorruptionError: There is no key, so this is the log of something else.
        """
        if record.key is None:
            raise CorruptionError(
                f"Failed to decode message at offset {record.offset} "
                "using the specified decoder (message had a missing key)"
            )
        try:
            return self._texts(record.key, record.value)
        except _UnknownTypeError as error:
            problem = f"Unknown record type {error} at offset {record.offset}, skipping."
        except OdradekError as error:
            problem = f"Error at offset {record.offset}, skipping. {error}"
        return Texts(problem, None)

    def _texts(self, key: bytes, value: bytes | None) -> Texts:
        number = record_type(key)
        kinds = record_kinds(self._modules).get(number)
        if kinds is None:
            raise _UnknownTypeError(number)
        decoded = _decode(kinds.key, key, 0, f"version {number} from key's")
        key_text = json_text({"type": str(number), "data": to_json(decoded, 0)})
        if value is None:
            return Texts(key_text, "<DELETE>")
        message, version = _decode_value(kinds.value, number, value)
        document = to_json(message, version)
        if isinstance(message, GroupMetadataValue) and message.protocol_type == "consumer":
            _open_members(document)
        return Texts(key_text, json_text({"version": str(version), "data": document}))


class _UnknownTypeError(Exception):
    pass


class RecordKinds(NamedTuple):
    """The messages in keys and values of one type of record."""

    key: type[Message]
    value: type[Message]


@cache
def record_kinds(modules: tuple[str, ...]) -> dict[int, RecordKinds]:
    """Return the kinds that generated modules define, by record type."""
    names = [name for name, module in MESSAGES.items() if module in modules]
    classes = {name: message_class(name) for name in names}
    return {
        kind.ID: RecordKinds(kind, classes[name.removesuffix("Key") + "Value"])
        for name, kind in classes.items()
        if name.endswith("Key")
    }


def _decode_value(kind: type[Message], number: int, value: bytes) -> tuple[Message, int]:
    if len(value) < _PREFIX_BYTES:
        raise CorruptionError("Could not read version from value's buffer.")
    version = int.from_bytes(value[:_PREFIX_BYTES], "big", signed=True)
    if version not in kind.DECODERS:
        raise CorruptionError(f"Found an unknown record version {version} for {number} type")
    return _decode(kind, value, version, f"version {version} from value's"), version


def _decode(kind: type[Message], data: bytes, version: int, what: str) -> Message:
    try:
        return kind.decode_from(data, _PREFIX_BYTES, version)[0]
    except OdradekError as error:
        problem = f"Could not read record with {what} buffer due to: {error}."
        raise CorruptionError(problem) from error


def _open_members(document: dict[str, Any]) -> None:
    """Show what consumers put into the metadata of their group; what is not theirs stays bytes."""
    for member in document["members"]:
        for name, kind in (
            ("subscription", ConsumerProtocolSubscription),
            ("assignment", ConsumerProtocolAssignment),
        ):
            data = bytes(member[name])
            version = int.from_bytes(data[:_PREFIX_BYTES], "big", signed=True)
            if len(data) < _PREFIX_BYTES or version not in kind.DECODERS:
                continue
            try:
                member[name] = to_json(kind.decode_from(data, _PREFIX_BYTES, version)[0], version)
            except OdradekError:
                continue


class MetadataDecoder:
    """Records of the metadata log, which have no key."""

    def texts(self, record: Record) -> Texts:
        try:
            return Texts(None, _metadata_text(record.value))
        except OdradekError as error:
            return Texts(None, f"Error at {record.offset}, skipping. {error}")


def _metadata_text(value: bytes | None) -> str:
    view = memoryview(value or b"")
    frame_version, position = _frame_number(view, 0, "frame version")
    if frame_version != METADATA_FRAME_VERSION:
        raise CorruptionError(
            "Could not deserialize metadata record due to unknown frame version "
            f"{frame_version}(only frame version {METADATA_FRAME_VERSION} is supported)"
        )
    number, position = _frame_number(view, position, "type")
    version, position = _frame_number(view, position, "version")
    kind = _metadata_kinds().get(number)
    if kind is None or version not in kind.DECODERS:
        raise CorruptionError(f"Unknown metadata id {number} version {version}")
    message, position = kind.decode_from(view, position, version)
    if position < len(view):
        raise CorruptionError(f"Found {len(view) - position} byte(s) of garbage after {number}")
    name = _enum_name(kind.__name__)
    return json_text({"type": name, "version": version, "data": to_json(message, version)})


def _frame_number(view: memoryview, position: int, entity: str) -> tuple[int, int]:
    try:
        number, position = uvarint(view, position)
    except (IndexError, CorruptionError):
        raise CorruptionError(f"Error while reading {entity}") from None
    if number > _INT16_MAX:
        raise CorruptionError(f"Value for {entity} was too large.")
    return number, position


@cache
def _metadata_kinds() -> dict[int, type[Message]]:
    names = [name for name, module in MESSAGES.items() if module == "metadata_records"]
    return {kind.ID: kind for kind in map(message_class, names)}


def _enum_name(name: str) -> str:
    """Turn ``NoOpRecord`` into ``NO_OP_RECORD``."""
    words = "".join(f"_{c}" if c.isupper() else c for c in name)
    return words.removeprefix("_").upper()


INTERNAL_DECODERS: Final[dict[str, Decoder]] = {
    "offsets": CoordinatorDecoder(
        "offset_records",
        "consumer_group_records",
        "share_group_records",
        "streams_group_records",
    ),
    "transaction-log": CoordinatorDecoder("transaction_records"),
    "cluster-metadata": MetadataDecoder(),
    "share-group-state": CoordinatorDecoder("share_state_records"),
}
"""What the options --NAME-decoder choose."""


def decoder_for(
    internal: str | None = None, key: str | None = None, value: str | None = None
) -> Decoder:
    """Return the decoder of an internal topic; without its name, a plain one for two classes."""
    if internal is not None:
        return INTERNAL_DECODERS[internal]
    return TextDecoder(key or DEFAULT_TEXT, value or DEFAULT_TEXT)
