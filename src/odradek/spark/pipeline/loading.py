"""From a file to a ``Definition``, or to a list of all that is wrong with it.

Nothing here asks a cluster or starts Spark: what is checked is the file. Names of fields are known
or refused with the nearest one, references go to what is there, options are what the source and the
sinks take, and no sink writes to what the source reads.
"""

import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from odradek.spark.options import OptionError, check_for_stream, parse_options
from odradek.spark.pipeline.definition import DeadLetters, Definition, Place, Source, TopicSink
from odradek.spark.pipeline.sections.names import LETTERS, NAME, Names
from odradek.spark.pipeline.sections.results import (
    read_dead_letters,
    read_expectations,
    read_sinks,
)
from odradek.spark.pipeline.sections.running import read_spark, read_trigger
from odradek.spark.pipeline.sections.source import read_source
from odradek.spark.pipeline.sections.steps import read_steps, read_tables
from odradek.spark.pipeline.yaml_positions import (
    FILE_BYTES_MAX,
    DefinitionError,
    Problem,
    Problems,
    Section,
    read_yaml,
)
from odradek.spark.sink_options import parse_sink_options


def load(path: str | Path, environment: Mapping[str, str] | None = None) -> Definition:
    """Read a pipeline from its file.

    Raises:
        DefinitionError: The file cannot be read or is not sound; the message has a line for each
            problem, with file, line and field.
    """
    try:
        with Path(path).open("rb") as file:
            text = file.read(FILE_BYTES_MAX + 1).decode()
    except OSError as error:
        told = f"cannot be read: {error.strerror or error}"
        raise DefinitionError([Problem(str(path), 1, "", told)]) from error
    except UnicodeDecodeError as error:
        raise DefinitionError([Problem(str(path), 1, "", f"is no text: {error}")]) from error
    return parse(text, file=str(path), environment=environment)


def parse(
    text: str, *, file: str = "pipeline.yaml", environment: Mapping[str, str] | None = None
) -> Definition:
    """Read a pipeline from the text of its file.

    Raises:
        DefinitionError: It is not sound.
    """
    problems = Problems(file, os.environ if environment is None else environment)
    root = Section(read_yaml(text, file), "", problems)
    definition = _definition(root, file)
    if definition.brokers:
        _check_options(definition, problems)
        _check_topics(definition, problems)
    problems.check()
    return definition


def _definition(root: Section, file: str) -> Definition:
    folder = Path(file).absolute().parent

    def path_of(text: str) -> str:
        """Return a path that does not depend on where the program was started."""
        return text if urlsplit(text).scheme else str(folder / text)

    name = root.text("name", required=True) or "unnamed"
    if not NAME.fullmatch(name):
        root.problem("name", f"{LETTERS}, '.', '_' and '-', 100 at most, not {name!r}")
    names = Names()
    dead_letters = read_dead_letters(root)
    has_dead_letters = dead_letters is not None
    definition = Definition(
        file=file,
        folder=str(folder),
        name=name,
        brokers=root.text("brokers", required=True) or "",
        kafka=root.options("kafka"),
        source=read_source(root, path_of, has_dead_letters=has_dead_letters),
        # From here on in the order of the file: a step knows those before it.
        tables=read_tables(root, names, path_of),
        steps=read_steps(root, names),
        expectations=read_expectations(root, names, has_dead_letters=has_dead_letters),
        sinks=read_sinks(root, names, path_of),
        dead_letters=dead_letters,
        trigger=read_trigger(root),
        checkpoint=path_of(root.text("checkpoint", required=True) or ""),
        spark=read_spark(root),
    )
    root.finish()
    return definition


def _check_options(definition: Definition, problems: Problems) -> None:
    """Have the source and the sinks look at their options."""

    def check_with(place: Place, check: Callable[[], object]) -> None:
        # What is wrong already would be told once more, in other words.
        if problems.has_under(place.field):
            return
        try:
            check()
        except OptionError as error:
            problems.add(*place, str(error))

    source = definition.source
    check_with(
        source.place, lambda: check_for_stream(parse_options(definition.source_options("any")))
    )
    for sink in _topic_writers(definition):
        options = definition.topic_options(sink.topic, sink.options)
        check_with(sink.place, partial(parse_sink_options, options))


def _check_topics(definition: Definition, problems: Problems) -> None:
    """Complain of a topic that is written and read: what goes out would come in again."""
    if problems.has_under("source"):
        return
    for sink in _topic_writers(definition):
        if sink.topic and _reads(definition.source, sink.topic):
            line, field = sink.place
            told = f"the source reads {sink.topic!r} too: what is written would come in again"
            problems.add(line, f"{field}.topic", told)


def _reads(source: Source, topic: str) -> bool:
    if source.pattern is None:
        return topic in source.topics
    return re.fullmatch(source.pattern, topic) is not None


def _topic_writers(definition: Definition) -> list[TopicSink | DeadLetters]:
    sinks: list[TopicSink | DeadLetters] = [
        sink for sink in definition.sinks if isinstance(sink, TopicSink)
    ]
    return sinks if definition.dead_letters is None else [*sinks, definition.dead_letters]
