"""Pipelines over Avro: a schema in the file or beside it, and what is said of wrong ones."""

import json
from pathlib import Path

import pytest

from odradek.spark.options import parse_options
from odradek.spark.pipeline.loading import load
from odradek.spark.pipeline.sections.schemas import SCHEMA_BYTES_MAX
from odradek.spark.pipeline.yaml_positions import DefinitionError

SCHEMA = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
PIPELINE = """\
name: orders
brokers: localhost:9092
source:
  topics: [orders]
  {source}
steps:
  - {{name: parsed, sql: SELECT value.* FROM source}}
sinks:
  - {{name: out, step: parsed, topic: out}}
checkpoint: state
"""


def write(folder: Path, *lines: str) -> Path:
    path = folder / "orders.yaml"
    path.write_text(PIPELINE.format(source="\n  ".join(lines)))
    return path


def problems(path: Path) -> list[tuple[str, str]]:
    with pytest.raises(DefinitionError) as caught:
        load(path, environment={})
    return [(each.field, each.message) for each in caught.value.problems]


def test_a_schema_is_taken_from_the_file_or_from_one_beside_it(tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text(json.dumps(SCHEMA, indent=2))
    path = write(
        tmp_path,
        "format: avro",
        "schema_file: order.avsc",
        "key_format: avro",
        """key_schema: '["null", "long"]'""",
        "options: {avroFraming: confluent}",
    )
    definition = load(path, environment={})
    options = parse_options(definition.source_options())
    assert (options.value_format, options.key_format) == ("avro", "avro")
    assert json.loads(options.value_schema or "") == SCHEMA
    assert options.key_schema == '["null", "long"]'
    assert options.avro_framing == "confluent"
    assert definition.source.schemas == {}


def test_wrong_schemas_are_told_where_they_are(tmp_path: Path) -> None:
    either = "format avro needs either schema or schema_file"
    missing = problems(write(tmp_path, "format: avro"))
    assert missing == [("source.schema", f"is missing: {either}")]
    (tmp_path / "a.avsc").write_text('"int"')
    both = problems(write(tmp_path, "format: avro", "schema: '\"int\"'", "schema_file: a.avsc"))
    assert both == [("source.schema", f"does not go with the other: {either}")]
    json_file = problems(write(tmp_path, "format: json", "schema: a INT", "schema_file: a.avsc"))
    assert json_file == [("source.schema_file", "is for format avro, not json")]
    [(field, told)] = problems(write(tmp_path, "format: avro", "schema: a INT"))
    assert (field, told.startswith("not an Avro schema")) == ("source.schema", True)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "cannot be read"),
        (b"\xff", "cannot be read"),
        (b" " * (SCHEMA_BYTES_MAX + 1), "more than"),
        (b'"null"', "null alone"),
        (
            b'{"type": "record", "name": "Node", "fields": [{"name": "next", "type": '
            b'["null", {"type": "array", "items": "Node"}]}]}',
            "the schema, next, items: Node contains itself, which no column can; read it as binary",
        ),
    ],
)
def test_wrong_schema_files_are_told(tmp_path: Path, content: bytes | None, told: str) -> None:
    if content is not None:
        (tmp_path / "order.avsc").write_bytes(content)
    [(field, message)] = problems(write(tmp_path, "format: avro", "schema_file: order.avsc"))
    assert field == "source.schema_file"
    assert told in message
    assert "\n" not in message
