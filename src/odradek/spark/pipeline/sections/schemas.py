"""What ``schema`` and ``key_schema`` say: fields for JSON; for Avro a schema, here or in a file."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from odradek.spark.pipeline.yaml_positions import Section

SCHEMA_BYTES_MAX: Final = 1024 * 1024


def read_schema(
    section: Section, name: str, of: str, kind: str, path_of: Callable[[str], str]
) -> str | None:
    """Return the schema that goes with a format, the field ``of``."""
    text, file = section.text(name), section.text(f"{name}_file")
    if file is not None and kind != "avro":
        section.problem(f"{name}_file", f"is for {of} avro, not {kind}")
    if kind == "avro":
        return _avro(section, name, of, text, None if file is None else path_of(file))
    if kind == "json" and text is None:
        section.problem(name, f"is missing: {of} json needs one, like 'id STRING, amount DOUBLE'")
    if kind != "json" and text is not None:
        section.problem(name, f"is for {of} json or avro, not {kind}")
        return None
    return text


def _avro(section: Section, name: str, of: str, text: str | None, path: str | None) -> str | None:
    field = name if path is None else f"{name}_file"
    if (text is None) == (path is None):
        what = "is missing" if text is None else "does not go with the other"
        section.problem(name, f"{what}: {of} avro needs either {name} or {name}_file")
        return None
    if path is not None:
        text = _content(section, field, Path(path))
    if text is not None:
        _check(section, field, text)
    return text


def _content(section: Section, field: str, path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            content = file.read(SCHEMA_BYTES_MAX + 1)
        if len(content) > SCHEMA_BYTES_MAX:
            section.problem(field, f"{path} has more than {SCHEMA_BYTES_MAX} bytes")
            return None
        return content.decode()
    except (OSError, UnicodeDecodeError) as error:
        section.problem(field, f"{path} cannot be read: {error}")
        return None


def _check(section: Section, field: str, text: str) -> None:
    from odradek.spark.avro_schema import AvroSchemaError, column_type

    try:
        column_type(text)
    except AvroSchemaError as error:
        section.problem(field, str(error))
    except ModuleNotFoundError:
        section.problem(field, "Avro needs fastavro: pip install 'odradek[avro]'")
