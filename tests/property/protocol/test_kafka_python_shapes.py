"""Our definitions have the shape of the schemas that kafka-python carries.

kafka-python ships Kafka's own schema files for the 108 messages it speaks. For every version of
each the fields must agree in name, order, type, nulls, tag, default and ignorable. The files still
describe the fields of versions that Kafka 4.0 dropped, so our legacy versions are compared too.
"""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import kafka.protocol.schemas.resources
import pytest

from fuzz.catalog import entries
from tools.notation import NONE, Field, Versions

RESOURCES = Path(kafka.protocol.schemas.resources.__file__).parent

NEWER_HERE = {"ApiVersions": [5], "DeleteGroups": [3], "TxnOffsetCommit": [6]}
"""Versions of Kafka 4.4 that kafka-python does not have yet."""

RENAMED = {("TxnOffsetCommitRequest", "generation_id"): "generation_id_or_member_epoch"}
"""Names that Kafka 4.4 changed."""

MORE_IGNORABLE_HERE = {
    # Kafka 4.4 made the name ignorable when version 6 replaced it by the topic id.
    "TxnOffsetCommitRequest.topics.name",
    "TxnOffsetCommitResponse.topics.name",
    # Fields of dropped versions only: a handler may set them without asking for the version.
    "DescribeConfigsResponse.results.configs.is_default",
    "OffsetCommitRequest.topics.partitions.commit_timestamp",
}


class Shape(NamedTuple):
    """What one field is in one version."""

    path: str
    type: str
    is_array: bool
    nullable: bool
    tag: int | None
    default: str | int
    ignorable: bool


@cache
def schemas() -> dict[str, Any]:
    return {path.stem: load(path) for path in sorted(RESOURCES.glob("*.json"))}


def load(path: Path) -> Any:
    lines = path.read_text().splitlines()
    return json.loads("\n".join(line for line in lines if not line.lstrip().startswith("//")))


def versions_of(text: str | None) -> Versions:
    return NONE if text in (None, "none") else Versions.parse(text)


def versions_compared(name: str) -> list[int]:
    last = versions_of(schemas()[name]["validVersions"]).last
    return [v for v in entries()[name].versions if v <= last]


def test_all_108_messages_of_kafka_python_are_compared() -> None:
    assert len(schemas()) == 108
    valid = {name: versions_of(schema["validVersions"]) for name, schema in schemas().items()}
    compared = {(name, v) for name in schemas() for v in versions_compared(name)}
    assert sum(v in valid[name] for name, v in compared) == 490
    assert sum(versions.last - versions.first + 1 for versions in valid.values()) == 490
    assert len(compared) - 490 == 44  # versions that Kafka 4.0 dropped


def test_versions_missing_there_are_those_of_kafka_4_4() -> None:
    newer = {
        name: [v for v in entries()[name].versions if v not in versions_compared(name)]
        for name in schemas()
    }
    assert {name: versions for name, versions in newer.items() if versions} == {
        f"{api}{kind}": versions
        for api, versions in NEWER_HERE.items()
        for kind in ("Request", "Response")
    }


@pytest.mark.parametrize("name", schemas())
def test_shape_is_that_of_kafka_python(name: str) -> None:
    schema, ours = schemas()[name], entries()[name].definition
    structs = {s["name"]: s["fields"] for s in schema.get("commonStructs", ())}
    for version in versions_compared(name):
        flexible = version in versions_of(schema["flexibleVersions"])
        assert flexible == (version in ours.flexible)
        theirs = their_shapes(name, schema["fields"], structs, version)
        assert our_shapes(name, ours.fields, version) == theirs


@pytest.mark.parametrize("name", schemas())
def test_api_key_is_that_of_kafka_python(name: str) -> None:
    assert entries()[name].definition.id == schemas()[name].get("apiKey")


def our_shapes(parent: str, fields: list[Field], version: int) -> list[Shape]:
    shapes: list[Shape] = []
    for field in (f for f in fields if version in f.versions):
        path = f"{parent}.{field.name}"
        shapes.append(
            Shape(
                path,
                "struct" if field.is_struct else field.type,
                field.is_array,
                version in field.nullable,
                field.tag,
                normal_default(field.default),
                field.ignorable and path not in MORE_IGNORABLE_HERE,
            )
        )
        shapes += our_shapes(path, field.fields, version)
    return shapes


def their_shapes(parent: str, fields: Any, structs: dict[str, Any], version: int) -> list[Shape]:
    shapes: list[Shape] = []
    for field in (f for f in fields if version in versions_of(f["versions"])):
        name = snake_case(field["name"])
        path = f"{parent}.{RENAMED.get((parent, name), name)}"
        element = field["type"].removeprefix("[]")
        is_tagged = version in versions_of(field.get("taggedVersions"))
        shapes.append(
            Shape(
                path,
                "struct" if element[0].isupper() else element,
                field["type"].startswith("[]"),
                version in versions_of(field.get("nullableVersions")),
                int(field["tag"]) if is_tagged else None,
                normal_default(field.get("default")),
                field.get("ignorable", False),
            )
        )
        inner = field.get("fields") or structs.get(element, ())
        shapes += their_shapes(path, inner, structs, version)
    return shapes


def normal_default(default: Any) -> str | int:
    """Return a default in one form: the schemas write 0, "0", "0x0", "" and nothing for zero."""
    text = str(default).lower()
    if default is None or text in ("", '""', "false"):
        return 0
    try:
        return int(text, 0)
    except ValueError:
        return text


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
