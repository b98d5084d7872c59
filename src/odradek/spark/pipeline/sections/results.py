"""The sections ``expectations``, ``sinks`` and ``dead_letters``: what comes out, and where to."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, cast

from odradek.spark.pipeline.definition import (
    DEAD_LETTERS,
    FILE_FORMATS,
    OUTPUT_MODES,
    VERDICTS,
    DeadLetters,
    Expectation,
    FormatSink,
    OutputMode,
    Place,
    Sink,
    TopicSink,
    Verdict,
)
from odradek.spark.pipeline.sections.names import LETTERS, NAME, Names
from odradek.spark.pipeline.sql_text import find_problem
from odradek.spark.pipeline.yaml_positions import Section

SINKS_MAX: Final = 50
EXPECTATIONS_MAX: Final = 500


def read_expectations(
    root: Section, names: Names, *, has_dead_letters: bool
) -> tuple[Expectation, ...]:
    found: list[Expectation] = []
    for section in root.sections("expectations", count_max=EXPECTATIONS_MAX):
        name = section.text("name", required=True) or ""
        condition = section.text("expect", required=True, is_raw=True) or "true"
        problem = find_problem(f"SELECT ({condition})")
        if problem is not None:
            section.problem("expect", problem)
        if name in {each.name for each in found}:
            section.problem("name", f"{name!r} is the name of another expectation")
        otherwise = section.choice("otherwise", VERDICTS, default="drop")
        if otherwise == "quarantine" and not has_dead_letters:
            section.problem("otherwise", "quarantine needs dead_letters: {topic: …}")
        place = Place(section.line_of("expect"), section.path("expect"))
        step = names.referred_step(section)
        found.append(Expectation(name, place, step, condition, cast("Verdict", otherwise)))
        section.finish()
    return tuple(found)


def read_sinks(root: Section, names: Names, path_of: Callable[[str], str]) -> tuple[Sink, ...]:
    sinks: list[Sink] = []
    for section in root.sections("sinks", required=True, count_max=SINKS_MAX):
        sink = _sink(section, names, path_of)
        section.finish()
        if sink is not None:
            _check_against(section, sink, sinks)
            sinks.append(sink)
    return tuple(sinks)


def read_dead_letters(root: Section) -> DeadLetters | None:
    section = root.section("dead_letters")
    if section is None:
        return None
    topic = section.text("topic", required=True) or ""
    options = section.options("options")
    section.finish()
    return DeadLetters(Place(section.line, section.field), topic, options)


def _check_against(section: Section, sink: Sink, others: Sequence[Sink]) -> None:
    if not NAME.fullmatch(sink.name):
        section.problem("name", f"{LETTERS}, '.', '_' and '-', not {sink.name!r}")
    if sink.name in {DEAD_LETTERS, *(each.name for each in others)}:
        section.problem("name", f"{sink.name!r} is the name of another sink")
    for other in others:
        # Each would take the other's list of files that count for its own.
        if _files(sink) is not None and _files(sink) == _files(other):
            section.problem("path", f"is that of sink {other.name!r} already")


def _files(sink: Sink) -> str | None:
    if isinstance(sink, FormatSink) and sink.has_files and sink.path is not None:
        return sink.path.rstrip("/")
    return None


def _sink(section: Section, names: Names, path_of: Callable[[str], str]) -> Sink | None:
    name = section.text("name", required=True) or "unnamed"
    step = names.referred_step(section)
    mode = cast("OutputMode", section.choice("mode", OUTPUT_MODES, default="append"))
    place = Place(section.line, section.field)
    topic, kind = section.text("topic"), section.text("format")
    options, key = section.options("options"), section.text("key", is_raw=True)
    path, partition_by = section.text("path"), section.texts("partition_by")
    if (topic is None) == (kind is None):
        what = "both" if topic is not None else "neither"
        section.problem("topic", f"a sink has either a topic or a format, not {what}")
        return None
    if topic is not None:
        _refuse(section, {"path": path, "partition_by": partition_by}, "files, not topics")
        return TopicSink(name, place, step, mode, topic, key, options)
    assert kind is not None
    _refuse(section, {"key": key}, "topics, not files")
    if kind in FILE_FORMATS:
        if path is None:
            section.problem("path", f"is missing: where do {kind} files go?")
        if mode != "append":
            section.problem("mode", f"files can only be appended, not {mode!r}")
    path = None if path is None else path_of(path)
    return FormatSink(name, place, step, mode, kind, path, partition_by, options)


def _refuse(section: Section, given: Mapping[str, object], what: str) -> None:
    for name, value in given.items():
        if value:
            section.problem(name, f"is for {what}")
