"""An Avro schema as a Spark column: which type it has, and how its bytes are read. Pure.

Types are those that Spark's ``from_avro`` gives::

    boolean, int, long, float, double, string   BOOLEAN, INT, BIGINT, FLOAT, DOUBLE, STRING
    bytes, fixed · enum · record                BINARY · STRING · STRUCT
    array · map                                 ARRAY · MAP<STRING, …>
    date · decimal                              DATE · DECIMAL(precision, scale)
    timestamp-millis, -micros · local-…         TIMESTAMP · TIMESTAMP_NTZ
    a union with null                           the type of the rest, which may then be null
    int and long, float and double              BIGINT, DOUBLE
    any other union                             STRUCT<member0: …, member1: …>, one not null

What else calls itself a logical type (``uuid``, ``time-millis``, …) is of the type beneath.

Bytes are read with a schema made from the given one: a record with one field looks like the field
alone, so the branches of a union can be given names, and every schema can be a record.

Missing: schemas that contain themselves, which no column type can; reading with another schema
than that of the writer.
"""

import json
from collections.abc import Iterator
from itertools import count
from typing import Any, Final, NamedTuple

import pyarrow as pa

FIELD: Final = "v"
DEPTH_MAX: Final = 32
FIELDS_MAX: Final = 10_000
_DECIMAL_DIGITS_MAX: Final = 38  # as many as Spark has


class AvroType(NamedTuple):
    """A type in the three languages that it is needed in."""

    reader: Any
    """A schema for its bytes, whose values ``arrow`` takes."""
    arrow: pa.DataType
    ddl: str
    bytes_min: int
    """Of its shortest value. What may take none at all could be there any number of times."""


class AvroSchemaError(ValueError):
    """A schema is none, or cannot be a column."""


_PRIMITIVES: Final = {
    "boolean": AvroType("boolean", pa.bool_(), "BOOLEAN", 1),
    "int": AvroType("int", pa.int32(), "INT", 1),
    "long": AvroType("long", pa.int64(), "BIGINT", 1),
    "float": AvroType("float", pa.float32(), "FLOAT", 4),
    "double": AvroType("double", pa.float64(), "DOUBLE", 8),
    "bytes": AvroType("bytes", pa.binary(), "BINARY", 1),
    "string": AvroType("string", pa.string(), "STRING", 1),
}
_LOGICAL: Final = {
    ("int", "date"): AvroType("int", pa.date32(), "DATE", 1),
    ("long", "timestamp-millis"): AvroType("long", pa.timestamp("ms", "UTC"), "TIMESTAMP", 1),
    ("long", "timestamp-micros"): AvroType("long", pa.timestamp("us", "UTC"), "TIMESTAMP", 1),
    ("long", "local-timestamp-millis"): AvroType("long", pa.timestamp("ms"), "TIMESTAMP_NTZ", 1),
    ("long", "local-timestamp-micros"): AvroType("long", pa.timestamp("us"), "TIMESTAMP_NTZ", 1),
}
_WIDENED: Final = {frozenset({"int", "long"}): "long", frozenset({"float", "double"}): "double"}


def column_type(text: str) -> AvroType:
    """Return the type of a column whose values were written with the schema in ``text``.

    Its ``reader`` is a record whose only field, ``FIELD``, is the value.

    Raises:
        AvroSchemaError: It says what is wrong and where.
    """
    from fastavro.schema import SchemaParseException, UnknownType, expand_schema

    try:
        schema = expand_schema(json.loads(text))
    except (ValueError, SchemaParseException, UnknownType) as error:
        raise AvroSchemaError(f"not an Avro schema: {error}") from error
    except (TypeError, KeyError, AttributeError) as error:  # the parser trusts shapes it is given
        raise AvroSchemaError(f"not an Avro schema: {error!r}") from error
    except RecursionError as error:
        raise AvroSchemaError("the schema is nested too deeply") from error
    kind = _Walk().type_of(schema, "the schema", 0)
    reader = _record("column", [{"name": FIELD, "type": kind.reader}])
    return kind._replace(reader=reader)


class _Walk:
    """Goes through a schema in which every name is written out."""

    def __init__(self) -> None:
        self._numbers = count()

    def type_of(self, schema: Any, where: str, depth: int) -> AvroType:
        if depth > DEPTH_MAX:
            raise AvroSchemaError(f"{where}: nested more than {DEPTH_MAX} deep")
        if isinstance(schema, list):
            return self._union(schema, where, depth)
        if isinstance(schema, str):
            return self._primitive(schema, where)
        name, logical = schema["type"], schema.get("logicalType")
        if isinstance(name, dict | list):
            return self.type_of(name, where, depth + 1)
        if logical == "decimal" and name in ("bytes", "fixed"):
            return self._decimal(schema, where)
        match name:
            case "record" | "error":
                return self._struct(schema, where, depth)
            case "array":
                return self._array(schema, where, depth)
            case "map":
                value = self.type_of(schema["values"], f"{where}, values", depth + 1)
                reader = {"type": "map", "values": value.reader}
                kind = pa.map_(pa.string(), value.arrow)
                return AvroType(reader, kind, f"MAP<STRING, {value.ddl}>", 1)
            case "enum":
                reader = self._named({"type": "enum", "symbols": schema["symbols"]})
                return AvroType(reader, pa.string(), "STRING", 1)
            case "fixed":
                reader = self._named({"type": "fixed", "size": schema["size"]})
                return AvroType(reader, pa.binary(), "BINARY", schema["size"])
        return _LOGICAL.get((name, logical)) or self._primitive(name, where)

    def _primitive(self, name: str, where: str) -> AvroType:
        if name == "null":
            raise AvroSchemaError(f"{where}: null alone is no type for a column")
        kind = _PRIMITIVES.get(name)
        if kind is None:
            raise AvroSchemaError(
                f"{where}: {name} contains itself, which no column can; read it as binary and "
                "decode it yourself"
            )
        return kind

    def _struct(self, schema: Any, where: str, depth: int) -> AvroType:
        fields = [
            (field["name"], self.type_of(field["type"], f"{where}, {field['name']}", depth + 1))
            for field in schema["fields"]
        ]
        if not fields:
            raise AvroSchemaError(f"{where}: a record without fields is no type for a column")
        if next(self._numbers) > FIELDS_MAX:
            raise AvroSchemaError(f"more than {FIELDS_MAX} records")
        reader = [{"name": name, "type": kind.reader} for name, kind in fields]
        return AvroType(
            self._named({"type": "record", "fields": reader}),
            pa.struct([(name, kind.arrow) for name, kind in fields]),
            f"STRUCT<{', '.join(f'`{name}`: {kind.ddl}' for name, kind in fields)}>",
            sum(kind.bytes_min for _, kind in fields),
        )

    def _array(self, schema: Any, where: str, depth: int) -> AvroType:
        item = self.type_of(schema["items"], f"{where}, items", depth + 1)
        if not item.bytes_min:
            raise AvroSchemaError(f"{where}: items that take no bytes may be any number of them")
        reader = {"type": "array", "items": item.reader}
        return AvroType(reader, pa.list_(item.arrow), f"ARRAY<{item.ddl}>", 1)

    def _decimal(self, schema: Any, where: str) -> AvroType:
        digits, scale = schema.get("precision"), schema.get("scale", 0)
        if not isinstance(digits, int) or not isinstance(scale, int):
            raise AvroSchemaError(f"{where}: a decimal needs precision and scale")
        if not 0 < digits <= _DECIMAL_DIGITS_MAX or not 0 <= scale <= digits:
            raise AvroSchemaError(f"{where}: Spark has no DECIMAL({digits}, {scale})")
        kept = {"logicalType": "decimal", "precision": digits, "scale": scale}
        reader: dict[str, Any] = {"type": schema["type"], **kept}
        if schema["type"] == "fixed":
            reader = self._named(reader | {"size": schema["size"]})
        return AvroType(
            reader,
            pa.decimal128(digits, scale),
            f"DECIMAL({digits}, {scale})",
            schema["size"] if schema["type"] == "fixed" else 1,
        )

    def _union(self, branches: list[Any], where: str, depth: int) -> AvroType:
        rest = [each for each in branches if not _is_null(each)]
        if not rest:
            raise AvroSchemaError(f"{where}: null alone is no type for a column")
        kinds = [
            self.type_of(each, where if len(rest) == 1 else f"{where}, member{number}", depth + 1)
            for number, each in enumerate(rest)
        ]
        if len(kinds) == 1:
            told = kinds[0]
            members: Iterator[Any] = iter([told.reader])
        elif all(isinstance(each, str) for each in rest) and frozenset(rest) in _WIDENED:
            told = _PRIMITIVES[_WIDENED[frozenset(rest)]]
            members = iter(rest)
        else:
            told = _members(kinds)
            # Each in a record of its own, or nobody could tell which of them a value was.
            members = (
                self._named({"type": "record", "fields": [{"name": name, "type": kind.reader}]})
                for name, kind in _numbered(kinds)
            )
        reader = ["null" if _is_null(each) else next(members) for each in branches]
        return told._replace(reader=reader, bytes_min=1)

    def _named(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Give a schema a name of its own: written out, one name would stand for many."""
        return schema | {"name": f"type{next(self._numbers)}"}


def _is_null(schema: Any) -> bool:
    return schema == "null" or (isinstance(schema, dict) and schema.get("type") == "null")


def _numbered(kinds: list[AvroType]) -> Iterator[tuple[str, AvroType]]:
    return ((f"member{number}", kind) for number, kind in enumerate(kinds))


def _members(kinds: list[AvroType]) -> AvroType:
    fields = ", ".join(f"{name}: {kind.ddl}" for name, kind in _numbered(kinds))
    arrow = pa.struct([(name, kind.arrow) for name, kind in _numbered(kinds)])
    return AvroType(None, arrow, f"STRUCT<{fields}>", 1)


def _record(name: str, fields: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": fields}
