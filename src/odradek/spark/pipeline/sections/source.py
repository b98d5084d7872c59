"""The section ``source``: which topics, from where on, and how their records are decoded."""

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime
from typing import Any, Final, cast

from odradek.spark.pipeline.definition import (
    CORRUPT_CHOICES,
    Corrupt,
    Place,
    Source,
    Watermark,
    start_at,
)
from odradek.spark.pipeline.sections.names import INTERVAL
from odradek.spark.pipeline.sections.schemas import read_schema
from odradek.spark.pipeline.yaml_positions import Section, Value, shown

_FORMATS: Final = ("binary", "utf8", "json", "avro")


def read_source(root: Section, path_of: Callable[[str], str], *, has_dead_letters: bool) -> Source:
    section = root.section("source", required=True)
    if section is None:
        section = Section(Value(root.line, {}), "source", root.problems)
    elif section.find("topics") is None and section.find("pattern") is None:
        root.problems.add(section.line, "source.topics", "is missing; or give a pattern")
    topics, pattern = section.texts("topics"), section.text("pattern")
    if topics and pattern is not None:
        section.problem("pattern", "does not go with topics: give one of them")
    kind = section.choice("format", _FORMATS, default="binary")
    key_kind = section.choice("key_format", _FORMATS, default="binary")
    schemas = {
        "schema": read_schema(section, "schema", "format", kind, path_of),
        "key_schema": read_schema(section, "key_schema", "key_format", key_kind, path_of),
    }
    source = Source(
        place=Place(section.line, section.field),
        topics=topics,
        pattern=pattern,
        start=_start(section),
        format=kind,
        schema=schemas["schema"],
        key_format=key_kind,
        key_schema=schemas["key_schema"],
        headers=section.flag("headers", default=False),
        corrupt=_corrupt(section, kind, key_kind, has_dead_letters=has_dead_letters),
        records_per_batch_max=section.integer("records_per_batch_max", least=1),
        watermark=read_watermark(section),
        options=section.options("options"),
        schemas={
            Place(section.line_of(name), section.path(name)): text
            for (name, text), of in zip(schemas.items(), (kind, key_kind), strict=True)
            if text is not None and of == "json"
        },
    )
    section.finish()
    return source


def read_watermark(section: Section) -> Watermark | None:
    found = section.section("watermark")
    if found is None:
        return None
    column, delay = found.text("column", required=True), found.text("delay", required=True)
    found.finish()
    if delay is not None and not INTERVAL.fullmatch(delay.strip()):
        found.problem("delay", f"must be a time like '10 minutes', not {delay!r}")
    return Watermark(column or "", delay or "")


def _corrupt(section: Section, *kinds: str, has_dead_letters: bool) -> Corrupt:
    has_format = any(kind != "binary" for kind in kinds)
    default = "dead_letters" if has_dead_letters and has_format else "fail"
    chosen = section.choice("corrupt", CORRUPT_CHOICES, default=default)
    if section.find("corrupt") is not None and not has_format:
        section.problem("corrupt", "is for sources with a format")
    if chosen == "dead_letters" and not has_dead_letters:
        section.problem("corrupt", "dead_letters needs dead_letters: {topic: …}")
    return cast("Corrupt", chosen)


def _start(section: Section) -> dict[str, str]:
    found = section.find("start")
    if found is None:
        return {"startingOffsets": "earliest"}
    content = found.content
    if content in ("earliest", "latest"):
        return {"startingOffsets": content}
    if isinstance(content, str):
        content = _moment(section.text("start") or "") or content
    if isinstance(content, datetime):
        return start_at(content)
    if isinstance(content, date):
        return start_at(datetime(content.year, content.month, content.day))
    if isinstance(content, dict):
        return _start_offsets(section, content)
    wanted = "must be earliest, latest, a time like 2026-01-31T12:00:00Z"
    section.problem("start", f"{wanted} or {{topic: {{partition: offset}}}}, not {shown(content)}")
    return {}


def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _start_offsets(section: Section, topics: Mapping[str, Any]) -> dict[str, str]:
    offsets: dict[str, dict[str, Any]] = {}
    for topic, partitions in topics.items():
        pairs: Iterable[tuple[str, Any]] = ()
        if isinstance(partitions.content, dict):
            pairs = partitions.content.items()
        offsets[topic] = {number: value.content for number, value in pairs}
        is_sound = all(
            number.isdecimal() and isinstance(offset, int) and offset >= -2
            for number, offset in offsets[topic].items()
        )
        if not offsets[topic] or not is_sound:
            section.problem("start", f"{topic}: must be partitions and their offsets, {{0: 42}}")
    return {"startingOffsets": json.dumps(offsets)}
