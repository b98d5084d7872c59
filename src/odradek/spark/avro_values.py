"""Avro values into Arrow, each on its own: one that is broken breaks no other.

How a value lies in a record is the option ``avroFraming``:

``plain``          the value and nothing else
``confluent``      0x00, the number of a schema in a registry (4 bytes), the value. The number is
                   not looked up: all values must have been written with the schema that is given
``single-object``  0xC3 0x01, the fingerprint of the schema (8 bytes), the value. Values of another
                   schema are refused

fastavro decodes, in C and a value at a time: there is no decoder to Arrow that is well kept and
knows all types.
"""

import json
from io import BytesIO
from typing import Any, Final

import pyarrow as pa

from odradek.spark.avro_schema import FIELD, column_type
from odradek.spark.options import Framing

_CONFLUENT_MAGIC: Final = b"\0"
_CONFLUENT_BYTES: Final = 5
_SINGLE_OBJECT_MAGIC: Final = b"\xc3\x01"
_FINGERPRINT: Final = "CRC-64-AVRO"


class AvroDecoder:
    """Decodes the values of one column; ``arrow`` is what they are made for."""

    def __init__(self, schema: str, framing: Framing) -> None:
        """Raise AvroSchemaError if the schema cannot be that of a column."""
        from fastavro import parse_schema, schemaless_reader

        kind = column_type(schema)
        self.arrow = pa.struct([(FIELD, kind.arrow)])
        self._reader: Any = parse_schema(kind.reader)
        self._read: Any = schemaless_reader
        self._magic, self._start = _header(schema, framing)

    def values(self, column: pa.Array, errors: dict[int, str]) -> list[dict[str, Any] | None]:
        """Return a value for each row, None where there is none or, with an error, a bad one."""
        values: list[dict[str, Any] | None] = []
        for row, data in enumerate(column.to_pylist()):
            value = None
            if data is not None:
                try:
                    value = self._value(data)
                # What a decoder says to bytes that are no Avro is any of a dozen exceptions.
                except Exception as error:
                    errors[row] = _told(error)
            values.append(value)
        return values

    def array(self, values: list[dict[str, Any] | None]) -> pa.Array:
        """Return an array of values; pyarrow's error if one is out of the range of its type."""
        (column,) = pa.array(values, self.arrow).flatten()
        return column

    def _value(self, data: bytes) -> dict[str, Any]:
        if not data.startswith(self._magic):
            found, wanted = data[: len(self._magic)].hex(), self._magic.hex()
            raise ValueError(f"begins with {found!r} instead of {wanted!r}")
        stream = BytesIO(data)
        stream.seek(self._start)
        value: dict[str, Any] = self._read(stream, self._reader, None)
        if stream.tell() != len(data):
            raise ValueError(f"{len(data) - stream.tell()} bytes are left behind the value")
        return value


def _header(schema: str, framing: Framing) -> tuple[bytes, int]:
    """Return what a value begins with, and where the value itself begins."""
    match framing:
        case "plain":
            return b"", 0
        case "confluent":
            return _CONFLUENT_MAGIC, _CONFLUENT_BYTES
        case "single-object":
            from fastavro.schema import fingerprint, to_parsing_canonical_form

            canonical = to_parsing_canonical_form(json.loads(schema))
            # In the order of the wire already: little-endian.
            magic = _SINGLE_OBJECT_MAGIC + bytes.fromhex(fingerprint(canonical, _FINGERPRINT))
            return magic, len(magic)


def _told(error: Exception) -> str:
    return f"not Avro of this schema: {str(error) or type(error).__name__}"
