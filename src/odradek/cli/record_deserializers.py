"""Bytes as text, for those who read a topic at the console: by the names of Java's deserializers.

Missing: lists and buffers, and classes of one's own.
"""

import struct
import uuid
from collections.abc import Callable, Mapping
from typing import Final

from odradek.cli.tool_options import ToolError
from odradek.storage.dump.java_text import java_bool, java_double, text_of

Deserializer = Callable[[bytes], str]

_JAVA: Final = "org.apache.kafka.common.serialization."
_FLOAT_DIGITS: Final = range(1, 10)


def _integer(kind: str, size: int) -> Deserializer:
    def text(data: bytes) -> str:
        _check_size(kind, data, size)
        return str(int.from_bytes(data, "big", signed=True))

    return text


def _check_size(kind: str, data: bytes, size: int) -> None:
    if len(data) != size:
        raise ToolError(f"Size of data received by {kind}Deserializer is not {size}")


def _double(data: bytes) -> str:
    _check_size("Double", data, 8)
    return java_double(struct.unpack(">d", data)[0])


def _float(data: bytes) -> str:
    """Return the shortest text that stands for this very float, and no other."""
    _check_size("Float", data, 4)
    (value,) = struct.unpack(">f", data)
    for digits in _FLOAT_DIGITS:
        short = float(f"{value:.{digits}g}")
        if struct.pack(">f", short) == data:
            return java_double(short)
    return java_double(value)


def _boolean(data: bytes) -> str:
    _check_size("Boolean", data, 1)
    if data not in (b"\0", b"\1"):
        raise ToolError(f"Unexpected byte received by BooleanDeserializer: {data[0]}")
    return java_bool(data == b"\1")


def _uuid(data: bytes) -> str:
    try:
        return str(uuid.UUID(text_of(data)))
    except ValueError as error:
        raise ToolError(f"{text_of(data)!r} is no UUID") from error


def _bytes(data: bytes) -> str:
    r"""Return printable ASCII as it is and all else as ``\xNN``."""
    backslash = ord("\\")
    return "".join(
        chr(each) if 32 <= each <= 126 and each != backslash else f"\\x{each:02X}" for each in data
    )


def _void(data: bytes) -> str:
    raise ToolError(f"Data should be null for a VoidDeserializer, and is {len(data)} bytes")


_DESERIALIZERS: Final[Mapping[str, Deserializer]] = {
    "Boolean": _boolean,
    "Bytes": _bytes,
    "Double": _double,
    "Float": _float,
    "Integer": _integer("Integer", 4),
    "Long": _integer("Long", 8),
    "Short": _integer("Short", 2),
    "String": text_of,
    "UUID": _uuid,
    "Void": _void,
}
_SHORT: Final = {name.lower(): each for name, each in _DESERIALIZERS.items()}
_AS_THEY_ARE: Final = ("bytearray",)


def deserializer_for(name: str) -> Deserializer | None:
    """Return what a class is for, by its full or short name; None for bytes as they are.

    Raises:
        ToolError: It is not known here.
    """
    short = name.removeprefix(_JAVA).removesuffix("Deserializer").lower()
    if short in _AS_THEY_ARE:
        return None
    if short not in _SHORT:
        raise ToolError(f"{name} is not known: use one of {', '.join(sorted(_SHORT))}")
    return _SHORT[short]
