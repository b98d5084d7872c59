"""From a file to a ``Definition``, or to a list of all that is wrong with it.

Nothing here asks a cluster or starts Spark: what is checked is the file. Names of fields are known
or refused with the nearest one, references go to what is there, options are what the source and the
sinks take.
"""

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit

from odradek.spark.options import OptionError, check_for_stream, parse_options
from odradek.spark.pipeline.definition import (
    CORRUPT_CHOICES,
    DEAD_LETTERS,
    FILE_FORMATS,
    OUTPUT_MODES,
    SOURCE,
    VERDICTS,
    AvailableNow,
    Corrupt,
    DeadLetters,
    Definition,
    Every,
    Expectation,
    FormatSink,
    Once,
    OutputMode,
    Place,
    PythonStep,
    Sink,
    Source,
    SparkSettings,
    SqlStep,
    Step,
    Table,
    TopicSink,
    Trigger,
    Verdict,
    Watermark,
    start_at,
)
from odradek.spark.pipeline.sql_text import find_problem, tables_read
from odradek.spark.pipeline.yaml_positions import (
    FILE_BYTES_MAX,
    DefinitionError,
    Problem,
    Problems,
    Section,
    Value,
    nearest,
    read_yaml,
    shown,
)
from odradek.spark.sink_options import parse_sink_options

SINKS_MAX: Final = 50
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_FUNCTION: Final = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_]\w*)")
_INTERVAL: Final = re.compile(
    r"\d+(\.\d+)?\s*(millisecond|second|minute|hour|day|week)s?", re.IGNORECASE
)
_FORMATS: Final = ("binary", "utf8", "json")
_LETTERS: Final = "must be of letters, digits"


def load(path: str | Path, environment: Mapping[str, str] | None = None) -> Definition:
    """Read a pipeline from its file.

    Raises:
        DefinitionError: The file cannot be read or is not sound; the message has a line for each
            problem, with file, line and field.
    """
    try:
        with Path(path).open("rb") as file:
            text = file.read(FILE_BYTES_MAX + 1).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise DefinitionError([Problem(str(path), 1, "", f"cannot be read: {error}")]) from error
    return parse(text, file=str(path), environment=environment)


def parse(
    text: str, *, file: str = "pipeline.yaml", environment: Mapping[str, str] | None = None
) -> Definition:
    """Read a pipeline from the text of its file.

    Raises:
        DefinitionError: It is not sound.
    """
    variables = os.environ if environment is None else environment
    problems = Problems(file, variables)
    root = Section(read_yaml(text, file), "", problems)
    definition = _Loader(root, file, problems).definition()
    problems.check()
    return definition


class _Loader:
    def __init__(self, root: Section, file: str, problems: Problems) -> None:
        self._root = root
        self._file = file
        self._problems = problems
        self._folder = Path(file).absolute().parent
        self._known: list[str] = [SOURCE]
        """What steps can read, in the order of the file."""

    def definition(self) -> Definition:
        root = self._root
        name = root.text("name", required=True) or "unnamed"
        if not _NAME.fullmatch(name):
            root.problem("name", f"{_LETTERS}, '.', '_' and '-', 100 at most, not {name!r}")
        dead_letters = self._dead_letters()
        definition = Definition(
            file=self._file,
            folder=str(self._folder),
            name=name,
            brokers=root.text("brokers", required=True) or "",
            kafka=root.options("kafka"),
            source=self._source(has_dead_letters=dead_letters is not None),
            tables=self._tables(),
            steps=self._steps(),
            expectations=self._expectations(has_dead_letters=dead_letters is not None),
            sinks=self._sinks(),
            dead_letters=dead_letters,
            trigger=self._trigger(),
            checkpoint=self._path(root.text("checkpoint", required=True) or ""),
            spark=self._spark(),
        )
        root.finish()
        if definition.brokers:
            self._check_options(definition)
        return definition

    def _path(self, text: str) -> str:
        """Return a path that does not depend on where the program was started."""
        return text if urlsplit(text).scheme else str(self._folder / text)

    # The source.

    def _source(self, *, has_dead_letters: bool) -> Source:
        section = self._root.section("source", required=True)
        if section is None:
            section = Section(Value(self._root.line, {}), "source", self._problems)
        elif section.find("topics") is None and section.find("pattern") is None:
            self._problems.add(section.line, "source.topics", "is missing; or give a pattern")
        topics, pattern = section.texts("topics"), section.text("pattern")
        if topics and pattern is not None:
            section.problem("pattern", "does not go with topics: give one of them")
        kind = section.choice("format", _FORMATS, default="binary")
        key_kind = section.choice("key_format", _FORMATS, default="binary")
        source = Source(
            place=Place(section.line, section.field),
            topics=topics,
            pattern=pattern,
            start=_start(section),
            format=kind,
            schema=_schema(section, "schema", "format", kind),
            key_format=key_kind,
            key_schema=_schema(section, "key_schema", "key_format", key_kind),
            headers=section.flag("headers", default=False),
            corrupt=_corrupt(section, kind, key_kind, has_dead_letters=has_dead_letters),
            records_per_batch_max=section.integer("records_per_batch_max", least=1),
            watermark=_watermark(section),
            options=section.options("options"),
        )
        section.finish()
        return source

    # Tables and steps.

    def _tables(self) -> tuple[Table, ...]:
        tables = []
        for name, section in self._root.named_sections("tables").items():
            self._learn(name, section, None)
            path = section.text("path")
            tables.append(
                Table(
                    name=name,
                    place=Place(section.line, section.field),
                    format=section.text("format", required=True) or "",
                    path=None if path is None else self._path(path),
                    schema=section.text("schema"),
                    options=section.options("options"),
                )
            )
            section.finish()
        return tuple(tables)

    def _steps(self) -> tuple[Step, ...]:
        steps = [self._step(section) for section in self._root.sections("steps")]
        return tuple(step for step in steps if step is not None)

    def _step(self, section: Section) -> Step | None:
        name = section.text("name", required=True) or ""
        sql, python = section.text("sql", is_raw=True), section.text("python")
        inputs = section.texts("input")
        watermark = _watermark(section)
        section.finish()
        step: Step | None = None
        if (sql is None) == (python is None):
            found = "both" if sql is not None else "neither"
            section.problem("sql", f"a step is either sql or python (module:function), not {found}")
        elif sql is not None:
            self._check_sql(section, sql, has_input=bool(inputs))
            step = SqlStep(name, Place(section.line_of("sql"), section.path("sql")), sql, watermark)
        elif python is not None:
            step = self._python_step(section, name, python, inputs, watermark)
        if name:
            self._learn(name, section, "name")
        return step

    def _python_step(
        self,
        section: Section,
        name: str,
        python: str,
        inputs: tuple[str, ...],
        watermark: Watermark | None,
    ) -> PythonStep | None:
        place = Place(section.line_of("python"), section.path("python"))
        for each in inputs:
            self._check_known(section, "input", each)
        match = _FUNCTION.fullmatch(python)
        if match is None:
            section.problem("python", f"must be module:function, not {python!r}")
            return None
        return PythonStep(name, place, match[1], match[2], inputs or (self._previous(),), watermark)

    def _previous(self) -> str:
        tables = self._root.find("tables")
        names = set() if tables is None else set(tables.content)
        return [each for each in self._known if each not in names][-1]

    def _check_sql(self, section: Section, sql: str, *, has_input: bool) -> None:
        if has_input:
            section.problem("input", "is for python steps: sql says what it reads")
        problem = find_problem(sql)
        if problem is not None:
            section.problem("sql", problem)
            return
        for each in tables_read(sql):
            self._check_known(section, "sql", each)

    def _check_known(self, section: Section, name: str, read: str) -> None:
        if read.lower() not in {each.lower() for each in self._known}:
            hint = nearest(read, self._known) or f"; there are: {', '.join(self._known)}"
            section.problem(name, f"there is no step or table {read!r} before this one{hint}")

    def _learn(self, name: str, section: Section, field: str | None) -> None:
        def problem(message: str) -> None:
            if field is None:
                self._problems.add(section.line, section.field, message)
            else:
                section.problem(field, message)

        if not _IDENTIFIER.fullmatch(name):
            problem(f"{_LETTERS} and '_', for SQL to read it, not {name!r}")
        elif name.lower() in {each.lower() for each in self._known}:
            problem(f"{name!r} is the name of something else already")
        self._known.append(name)

    def _referred_step(self, section: Section) -> str:
        """Return the step that something is about: the last one if it does not say."""
        step = section.text("step") or self._previous()
        tables = self._root.find("tables")
        streams = [each for each in self._known if tables is None or each not in tables.content]
        if step not in streams:
            hint = nearest(step, streams) or f"; there are: {', '.join(streams)}"
            section.problem("step", f"there is no step {step!r}{hint}")
        return step

    # Expectations, sinks, dead letters.

    def _expectations(self, *, has_dead_letters: bool) -> tuple[Expectation, ...]:
        found: list[Expectation] = []
        for section in self._root.sections("expectations"):
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
            step = self._referred_step(section)
            found.append(Expectation(name, place, step, condition, cast("Verdict", otherwise)))
            section.finish()
        return tuple(found)

    def _sinks(self) -> tuple[Sink, ...]:
        sinks: list[Sink] = []
        for section in self._root.sections("sinks", required=True):
            sink = self._sink(section)
            section.finish()
            if sink is None:
                continue
            if not _NAME.fullmatch(sink.name):
                section.problem("name", f"{_LETTERS}, '.', '_' and '-', not {sink.name!r}")
            if sink.name in {DEAD_LETTERS, *(each.name for each in sinks)}:
                section.problem("name", f"{sink.name!r} is the name of another sink")
            sinks.append(sink)
        if len(sinks) > SINKS_MAX:
            self._root.problem("sinks", f"more than {SINKS_MAX}")
        return tuple(sinks)

    def _sink(self, section: Section) -> Sink | None:
        name = section.text("name", required=True) or "unnamed"
        step = self._referred_step(section)
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
        path = None if path is None else self._path(path)
        return FormatSink(name, place, step, mode, kind, path, partition_by, options)

    def _dead_letters(self) -> DeadLetters | None:
        section = self._root.section("dead_letters")
        if section is None:
            return None
        topic = section.text("topic", required=True) or ""
        options = section.options("options")
        section.finish()
        return DeadLetters(Place(section.line, section.field), topic, options)

    # How it runs.

    def _trigger(self) -> Trigger:
        found = self._root.find("trigger")
        if found is None:
            return Every("")
        if found.content in ("available_now", "availableNow"):
            return AvailableNow()
        if found.content == "once":
            return Once()
        if not isinstance(found.content, dict):
            given = shown(found.content)
            wanted = "must be available_now, once or {every: 10 seconds}"
            self._root.problem("trigger", f"{wanted}, not {given}")
            return Every("")
        section = Section(found, "trigger", self._problems)
        interval = section.text("every", required=True)
        section.finish()
        if interval is not None and not _INTERVAL.fullmatch(interval.strip()):
            section.problem("every", f"must be a time like '10 seconds', not {interval!r}")
        return Every(interval or "")

    def _spark(self) -> SparkSettings:
        section = self._root.section("spark")
        if section is None:
            return SparkSettings("local[*]", {})
        master, remote = section.text("master"), section.text("remote")
        if master is not None and remote is not None:
            section.problem("remote", "does not go with master: give one of them")
        if remote is not None and not remote.startswith("sc://"):
            section.problem("remote", f"must begin with sc://, not {remote!r}")
        conf = section.options("conf")
        section.finish()
        return SparkSettings(remote or master or "local[*]", conf)

    # What the source and the sinks say of their options.

    def _check_options(self, definition: Definition) -> None:
        source = definition.source
        self._check_with(
            source.place,
            lambda: check_for_stream(parse_options(definition.source_options("any"))),
        )
        topics: list[TopicSink | DeadLetters] = [
            sink for sink in definition.sinks if isinstance(sink, TopicSink)
        ]
        if definition.dead_letters is not None:
            topics.append(definition.dead_letters)
        for sink in topics:
            options = definition.topic_options(sink.topic, sink.options)
            self._check_with(sink.place, partial(parse_sink_options, options))

    def _check_with(self, place: Place, check: Callable[[], object]) -> None:
        # What is wrong already would be told once more, in other words.
        if self._problems.has_under(place.field):
            return
        try:
            check()
        except OptionError as error:
            self._problems.add(*place, str(error))


def _refuse(section: Section, given: Mapping[str, object], what: str) -> None:
    for name, value in given.items():
        if value:
            section.problem(name, f"is for {what}")


def _schema(section: Section, name: str, of: str, kind: str) -> str | None:
    schema = section.text(name)
    if kind == "json" and schema is None:
        section.problem(name, f"is missing: {of} json needs one, like 'id STRING, amount DOUBLE'")
    if kind != "json" and schema is not None:
        section.problem(name, f"is for {of} json, not {kind}")
        return None
    return schema


def _corrupt(section: Section, *kinds: str, has_dead_letters: bool) -> Corrupt:
    has_format = any(kind != "binary" for kind in kinds)
    default = "dead_letters" if has_dead_letters and has_format else "fail"
    chosen = section.choice("corrupt", CORRUPT_CHOICES, default=default)
    if section.find("corrupt") is not None and not has_format:
        section.problem("corrupt", "is for sources with a format")
    if chosen == "dead_letters" and not has_dead_letters:
        section.problem("corrupt", "dead_letters needs dead_letters: {topic: …}")
    return cast("Corrupt", chosen)


def _watermark(section: Section) -> Watermark | None:
    found = section.section("watermark")
    if found is None:
        return None
    column, delay = found.text("column", required=True), found.text("delay", required=True)
    found.finish()
    if delay is not None and not _INTERVAL.fullmatch(delay.strip()):
        found.problem("delay", f"must be a time like '10 minutes', not {delay!r}")
    return Watermark(column or "", delay or "")


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
