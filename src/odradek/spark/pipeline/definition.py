"""What a pipeline is, once its file is sound: plain values, in the words of the file.

A pipeline reads one source, takes its rows through named steps, checks expectations on the way and
writes the results of steps to sinks. Each sink is a streaming query of its own with a checkpoint
and offsets of its own, so a slow or broken one never holds up or repeats the others' work; the
price is that each reads the source by itself. Dead letters are one more query.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple

Verdict = Literal["drop", "quarantine", "fail"]
OutputMode = Literal["append", "update", "complete"]
Corrupt = Literal["fail", "drop", "dead_letters"]

VERDICTS: Final = ("drop", "quarantine", "fail")
OUTPUT_MODES: Final = ("append", "update", "complete")
CORRUPT_CHOICES: Final = ("fail", "drop", "dead_letters")
FILE_FORMATS: Final = ("parquet", "orc", "json", "csv", "text")
SOURCE: Final = "source"
DEAD_LETTERS: Final = "dead_letters"
"""Name of the query that writes dead letters; no sink may have it."""


class Place(NamedTuple):
    """Where in the file something is said, for errors that only Spark can find."""

    line: int
    field: str


class Watermark(NamedTuple):
    column: str
    delay: str


class Every(NamedTuple):
    """Micro-batches for ever; with an empty interval one after the other."""

    interval: str


class AvailableNow(NamedTuple):
    """All that is there at the start, in as many batches as the rate limit makes; then the end."""


class Once(NamedTuple):
    """All that is there in one batch, whatever the rate limit; then the end.

    After an interruption that is the batch that was interrupted, and no more.
    """


Trigger = Every | AvailableNow | Once


@dataclass(frozen=True)
class Source:
    place: Place
    topics: tuple[str, ...]
    pattern: str | None
    start: Mapping[str, str]
    """Options of the source that say where to begin."""
    format: str
    schema: str | None
    key_format: str
    key_schema: str | None
    headers: bool
    corrupt: Corrupt
    records_per_batch_max: int | None
    watermark: Watermark | None
    options: Mapping[str, str]
    schemas: Mapping[Place, str]
    """Those that are given in Spark's words, by where."""

    @property
    def has_format(self) -> bool:
        return self.format != "binary" or self.key_format != "binary"


@dataclass(frozen=True)
class Table:
    """Something that is not a stream, to join with; read anew for each micro-batch."""

    name: str
    place: Place
    format: str
    path: str | None
    schema: str | None
    options: Mapping[str, str]


@dataclass(frozen=True)
class SqlStep:
    name: str
    place: Place
    sql: str
    watermark: Watermark | None


@dataclass(frozen=True)
class PythonStep:
    """``function(*frames) -> DataFrame``."""

    name: str
    place: Place
    module: str
    function: str
    inputs: tuple[str, ...]
    watermark: Watermark | None


Step = SqlStep | PythonStep


@dataclass(frozen=True)
class Expectation:
    name: str
    place: Place
    step: str
    condition: str
    """A condition in SQL; null is as good as false."""
    otherwise: Verdict


@dataclass(frozen=True)
class TopicSink:
    """Rows as records; without a column ``value`` the whole row is one, as JSON."""

    name: str
    place: Place
    step: str
    mode: OutputMode
    topic: str
    key: str | None
    options: Mapping[str, str]


@dataclass(frozen=True)
class FormatSink:
    """Files, or whatever else Spark can write streams to."""

    name: str
    place: Place
    step: str
    mode: OutputMode
    format: str
    path: str | None
    partition_by: tuple[str, ...]
    options: Mapping[str, str]

    @property
    def has_files(self) -> bool:
        return self.format in FILE_FORMATS

    def path_of(self, epoch: int) -> str | None:
        """Return where an epoch's files are.

        Spark's list of the files that count is numbered by micro-batch. A new checkpoint begins at
        0 again, and in the old folder its first batches would be taken for done.
        """
        if self.path is None or not self.has_files or epoch == 0:
            return self.path
        return f"{self.path.rstrip('/')}-epoch-{epoch}"


Sink = TopicSink | FormatSink


@dataclass(frozen=True)
class DeadLetters:
    place: Place
    topic: str
    options: Mapping[str, str]


@dataclass(frozen=True)
class SparkSettings:
    master: str
    """A Spark master, or the address of a Spark Connect server, ``sc://…``."""
    conf: Mapping[str, str]


@dataclass(frozen=True)
class Definition:
    file: str
    folder: str
    """Where relative paths begin, and where modules of steps are looked for."""
    name: str
    brokers: str
    kafka: Mapping[str, str]
    source: Source
    tables: tuple[Table, ...]
    steps: tuple[Step, ...]
    expectations: tuple[Expectation, ...]
    sinks: tuple[Sink, ...]
    dead_letters: DeadLetters | None
    trigger: Trigger
    checkpoint: str
    spark: SparkSettings
    client_options: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        settings = {"bootstrap.servers": self.brokers, **self.kafka}
        options = {f"kafka.{name}": value for name, value in settings.items()}
        object.__setattr__(self, "client_options", options)

    def group_of(self, query: str) -> str:
        """Return the group that a query commits its offsets to."""
        return f"{self.name}.{query}"

    @property
    def has_dead_letter_query(self) -> bool:
        """Tell whether something can become a dead letter before it gets to a sink."""
        is_source = self.source.has_format and self.source.corrupt == "dead_letters"
        return is_source or any(each.otherwise == "quarantine" for each in self.expectations)

    @property
    def queries(self) -> tuple[str, ...]:
        names = tuple(sink.name for sink in self.sinks)
        return (*names, DEAD_LETTERS) if self.has_dead_letter_query else names

    @property
    def is_remote(self) -> bool:
        """Whether it runs over Spark Connect, where plans and tasks are elsewhere."""
        return self.spark.master.startswith("sc://")

    def source_options(self, query: str | None = None) -> dict[str, str]:
        """Return the options of the source, for one of its queries or for none."""
        source = self.source
        options = {
            **self.client_options,
            **source.start,
            "valueFormat": source.format,
            "keyFormat": source.key_format,
            "includeHeaders": str(source.headers).lower(),
        }
        if source.pattern is None:
            options["subscribe"] = ",".join(source.topics)
        else:
            options["subscribePattern"] = source.pattern
        for name, value in (("valueSchema", source.schema), ("keySchema", source.key_schema)):
            if value is not None:
                options[name] = value
        if source.records_per_batch_max is not None:
            options["maxOffsetsPerTrigger"] = str(source.records_per_batch_max)
        if query is not None:
            options["commitOffsetsToGroup"] = self.group_of(query)
        return {**options, **source.options}

    def topic_options(self, topic: str, own: Mapping[str, str]) -> dict[str, str]:
        """Return the options of a sink that writes to a topic."""
        return {**self.client_options, "topic": topic, **own}


def start_at(moment: datetime) -> dict[str, str]:
    """Return the source's options for a start at a time; one without a zone is in UTC."""
    zoned = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return {
        "startingTimestamp": str(int(zoned.timestamp() * 1000)),
        "startingOffsetsByTimestampStrategy": "latest",
    }
