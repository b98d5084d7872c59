"""Keys and values as typed columns: ``valueFormat`` and ``keyFormat``, decoded in Arrow.

``utf8`` makes a string of the bytes. ``json`` makes a struct of ``valueSchema``, fields and types
as in ``CREATE TABLE``; fields that a document lacks are null, and those that the schema lacks are
left out. ``avro`` makes what ``valueSchema``, an Avro schema, says (``avro_schema``). A null stays
null. A row that cannot be decoded has null there, and all that came of it in the column
``_corrupt``: ``struct<key binary, value binary, error string>``; good rows have null.

What types JSON can have is up to pyarrow's reader: numbers, booleans, strings, dates and timestamps
in ISO form, decimals as strings, structs and lists; no maps. Avro needs the extra ``avro``.
"""

import io
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as pa_json

from odradek.spark.avro_schema import AvroSchemaError, column_type
from odradek.spark.avro_values import AvroDecoder
from odradek.spark.options import Format, Framing, OptionError, SourceOptions

CORRUPT: Final = "_corrupt"
CORRUPT_TYPE: Final = pa.struct(
    [("key", pa.binary()), ("value", pa.binary()), ("error", pa.string())]
)
CORRUPT_DDL: Final = f"{CORRUPT} STRUCT<key: BINARY, value: BINARY, error: STRING>"
_FIELD: Final = "v"
_BLOCK_BYTES_MIN: Final = 64 * 1024

Errors = dict[int, str]
Decode = Callable[[pa.Array, Errors], pa.Array]
"""Returns a column decoded, null where a row is bad, and tells in ``Errors`` by row what is."""


def has_formats(options: SourceOptions) -> bool:
    return options.key_format != "binary" or options.value_format != "binary"


def column_ddl(name: str, kind: Format, schema: str | None) -> str:
    """Return a column's definition for Spark's parser; a wrong JSON schema is its to refuse.

    Raises:
        OptionError: An Avro schema is wrong, or there is nothing to read Avro with.
    """
    if kind == "json":
        return f"{name} STRUCT<{schema}>"
    if kind != "avro":
        return f"{name} {'STRING' if kind == 'utf8' else 'BINARY'}"
    assert schema is not None, "options were checked"
    try:
        return f"{name} {column_type(schema).ddl}"
    except AvroSchemaError as error:
        raise OptionError(f"{name}Schema: {error}") from error
    except ModuleNotFoundError as error:
        raise OptionError(
            f"{name}Format=avro needs fastavro: pip install 'odradek[avro]'"
        ) from error


class Formatter:
    """Turns batches with binary keys and values into batches of ``schema``."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        """Raise pyarrow's error if JSON cannot have such types."""
        self._schema = schema
        chosen: tuple[tuple[str, Format, str | None], ...] = (
            ("key", options.key_format, options.key_schema),
            ("value", options.value_format, options.value_schema),
        )
        self._decoders = {
            name: _decoder(kind, schema.field(name).type, text, options.avro_framing)
            for name, kind, text in chosen
            if kind != "binary" and name in schema.names
        }
        for decode in self._decoders.values():
            decode(pa.array([None], pa.binary()), {})

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        errors: Errors = {}
        for name, decode in self._decoders.items():
            found: Errors = {}
            columns[name] = decode(columns[name], found)
            for row, error in found.items():
                errors.setdefault(row, f"{name}: {error}")
        columns[CORRUPT] = _corrupt(batch, errors)
        arrays = [_as_type(columns[field.name], field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _corrupt(batch: pa.RecordBatch, errors: dict[int, str]) -> pa.Array:
    if not errors:
        return pa.nulls(batch.num_rows, CORRUPT_TYPE)
    keys, values = batch.column("key"), batch.column("value")
    rows: list[dict[str, Any] | None] = [None] * batch.num_rows
    for row, error in errors.items():
        rows[row] = {"key": keys[row].as_py(), "value": values[row].as_py(), "error": error}
    return pa.array(rows, CORRUPT_TYPE)


def _decoder(kind: Format, to: pa.DataType, schema: str | None, framing: Framing) -> Decode:
    if kind == "avro":
        assert schema is not None, "options were checked"
        return _avro_decoder(AvroDecoder(schema, framing), to)

    def convert(column: pa.Array) -> pa.Array:
        return column.cast(pa.string()) if kind == "utf8" else _parse_json(column, to)

    def decode(column: pa.Array, errors: Errors) -> pa.Array:
        return _by_halves(column, convert, pa.array([None], pa.binary()), errors)

    return decode


def _avro_decoder(decoder: AvroDecoder, to: pa.DataType) -> Decode:
    def convert(values: list[Any]) -> pa.Array:
        # Here and not at the end: a time may be too far off for Spark's microseconds.
        return _as_type(decoder.array(values), to)

    def decode(column: pa.Array, errors: Errors) -> pa.Array:
        return _by_halves(decoder.values(column, errors), convert, [None], errors)

    return decode


def _by_halves(column: Any, convert: Callable[[Any], pa.Array], null: Any, errors: Errors) -> Any:
    """Convert all at once, and only if that fails by halves, until what is bad is found."""
    pieces: list[pa.Array] = []
    pending = [(0, len(column))]
    while pending:
        start, end = pending.pop()
        try:
            pieces.append(convert(column[start:end]))
        except pa.ArrowException as error:
            if end - start == 1:
                errors.setdefault(start, str(error).strip())
                pieces.append(convert(null))
            else:
                middle = (start + end) // 2
                pending += [(middle, end), (start, middle)]
    return pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)


def _parse_json(column: pa.Array, to: pa.DataType) -> pa.Array:
    """Parse one document per row.

    Each is put into an array of its own, in a line of its own: text that is no single document
    then breaks its own line, or makes an array of another length, and can never be taken for parts
    of its neighbours.

    Raises:
        pa.ArrowException: Some row is not JSON, or not of this type.
    """
    if not len(column):
        return pa.array([], to)
    lines = pc.binary_join_element_wise(
        pa.scalar(b'{"' + _FIELD.encode() + b'":['),
        pc.fill_null(column, b"null"),
        pa.scalar(b"]}\n"),
        pa.scalar(b""),
    )
    text = lines.buffers()[2]
    table = pa_json.read_json(
        io.BytesIO(text),
        # In one block: lines may have line breaks inside, and blocks end at line breaks.
        read_options=pa_json.ReadOptions(
            use_threads=False, block_size=max(text.size, _BLOCK_BYTES_MIN) + 1
        ),
        parse_options=pa_json.ParseOptions(
            explicit_schema=pa.schema([(_FIELD, pa.list_(to))]),
            unexpected_field_behavior="ignore",
        ),
    )
    parsed = table.column(0).combine_chunks()
    if isinstance(parsed, pa.ChunkedArray):
        parsed = pa.concat_arrays(parsed.chunks)
    lengths = pc.unique(pc.list_value_length(parsed))
    if len(parsed) != len(column) or lengths.to_pylist() != [1]:
        raise pa.ArrowInvalid("not one JSON document")
    return parsed.flatten()


def _as_type(array: pa.Array, to: pa.DataType) -> pa.Array:
    return array if array.type == to else array.cast(to)
