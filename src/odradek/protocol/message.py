"""The base of all generated classes: one object stands for every version of its message.

Hot path (``bench/protocol.py``): a generated class is plain slots, its codecs are straight-line
functions looked up by version. What is written here runs once per message, not once per field.
"""

from collections.abc import Callable, Mapping
from struct import error as struct_error
from typing import Any, ClassVar, Final, Self, TypeAlias

from odradek.core.errors import ApiError, CorruptionError, ErrorCode, OdradekError

Buffer: TypeAlias = bytes | bytearray | memoryview
Tags: TypeAlias = tuple[tuple[int, bytes], ...]
"""Tagged fields that this version of the code does not know, kept for whoever comes next."""

UNSET: Any = object()
"""Default of array arguments for which None is a value of its own."""


class Struct:
    """Fields by name. Two are equal when all their fields are."""

    __slots__ = ("unknown_tags",)
    unknown_tags: Tags

    def __eq__(self, other: object) -> bool:
        if self.__class__ is not other.__class__:
            return NotImplemented
        return self.unknown_tags == other.unknown_tags and all(
            getattr(self, name) == getattr(other, name) for name in self.__slots__
        )

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        fields = [f"{name}={_shown(getattr(self, name))}" for name in self.__slots__]
        if self.unknown_tags:
            fields.append(f"unknown_tags={[tag for tag, _ in self.unknown_tags]}")
        return f"{self.__class__.__name__}({', '.join(fields)})"


def _shown(value: object) -> str:
    """Return bytes as their size only: they may be a password, a token or a megabyte."""
    if isinstance(value, bytes | bytearray | memoryview) and type(value).__name__ != "Uuid":
        return f"<{len(value)} bytes>"
    return repr(value)


_BAD_INPUT: Final = (struct_error, IndexError, KeyError, UnicodeDecodeError)
"""What a decoder raises by itself; KeyError is a version that has no decoder."""

Decoder: TypeAlias = Callable[[memoryview, int], tuple[Any, int]]
Encoder: TypeAlias = Callable[[Any, int, bytearray, list[Buffer]], bytearray]


class Message(Struct):
    """A request, a response, a header or an internal record."""

    __slots__ = ()

    ID: ClassVar[int]
    """The API key, or the type of an internal record; absent where there is none."""
    VERSION_MIN: ClassVar[int]
    VERSION_MAX: ClassVar[int]
    VERSION_KNOWN_MIN: ClassVar[int]
    """Below VERSION_MIN where the codec still knows versions that Kafka 4 dropped."""
    FLEXIBLE_FROM: ClassVar[int]
    DECODERS: ClassVar[Mapping[int, Decoder]]
    ENCODERS: ClassVar[Mapping[int, Encoder]]

    @classmethod
    def decode(cls, data: Buffer, version: int) -> Self:
        """Decode a whole message; bytes after its end are ignored, as Kafka does.

        Record fields are views into ``data``: keep it unchanged for as long as they live.

        Raises:
            CorruptionError: The bytes are not such a message.
            ApiError: UNSUPPORTED_VERSION.
        """
        # The same as decode_from, spelled out: a second call would cost a tenth of a Produce.
        try:
            view = data if data.__class__ is memoryview else memoryview(data)
            message: Self = cls.DECODERS[version](view, 0)[0]
        except _BAD_INPUT as error:
            raise _refusal(cls, version, error) from error
        return message

    @classmethod
    def decode_from(cls, data: Buffer, position: int, version: int) -> tuple[Self, int]:
        """Decode at ``position``; also return where the message ended."""
        try:
            return cls.DECODERS[version](memoryview(data), position)
        except _BAD_INPUT as error:
            raise _refusal(cls, version, error) from error

    def encode(self, version: int) -> list[Buffer]:
        """Return the encoded message in pieces, so that record bytes need not be copied.

        Raises:
            ApiError: UNSUPPORTED_VERSION, also when a field is set that the version cannot carry.
        """
        parts: list[Buffer] = []
        parts.append(self.encode_after(bytearray(), parts, version))
        return parts

    def encode_after(self, out: bytearray, parts: list[Buffer], version: int) -> bytearray:
        """Encode behind what ``out`` holds; full pieces go to ``parts``, the last is returned."""
        encoder = self.ENCODERS.get(version)
        if encoder is None:
            raise _unsupported(self.__class__, version)
        return encoder(self, version, out, parts)

    def to_bytes(self, version: int) -> bytes:
        """Return the encoded message in one piece."""
        return b"".join(self.encode(version))


def _refusal(kind: type[Message], version: int, error: Exception) -> OdradekError:
    if version not in kind.DECODERS:
        return _unsupported(kind, version)
    return CorruptionError(f"{kind.__name__} v{version}: {error}")


def _unsupported(message: type[Message], version: int) -> ApiError:
    known = f"{message.VERSION_KNOWN_MIN}-{message.VERSION_MAX}"
    problem = f"{message.__name__} has no version {version}, only {known}"
    return ApiError(ErrorCode.UNSUPPORTED_VERSION, problem)
