"""What can be asked of the source: the options of Spark's Kafka source, and a few of our own.

Names, defaults, precedence and refusals are those of ``format("kafka")``, so that a job changes one
word (batch writes need ``mode("append")`` besides: see ``sink``). ``kafka.*`` goes to the client;
what the Java client knows and ours has no use for is ignored, what neither knows is an error. Ours
are ``commitOffsetsToGroup``, ``log.dirs``, ``columns`` (those that are wanted: Spark tells no
Python source which), ``keyFormat``, ``valueFormat``, ``keySchema``, ``valueSchema`` and
``avroFraming``.

Everything is checked when a DataFrame is made or, what depends on whether it is a stream, when a
query is planned: always before anything runs.

Missing: the option ``kafkaConsumer.pollTimeoutMs`` also limits how long a
task waits without progress, but Spark's ``spark.network.timeout`` is not its default: 120 s is.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, Literal, NamedTuple

from odradek.client.consumer.settings import DEFINITIONS
from odradek.client.errors import ConfigurationError
from odradek.client.settings import Settings
from odradek.core.ids import TopicPartition
from odradek.spark.offsets import (
    EARLIEST,
    LATEST,
    AtTimestamp,
    AtTimestamps,
    Everywhere,
    OffsetLimit,
    Offsets,
    Specific,
    parse_offsets,
)
from odradek.wire.sasl.login import login_from

Format = Literal["binary", "utf8", "json", "avro"]
_FORMATS: Final[tuple[Format, ...]] = ("binary", "utf8", "json", "avro")
Framing = Literal["plain", "confluent", "single-object"]
_FRAMINGS: Final[tuple[Framing, ...]] = ("plain", "confluent", "single-object")

_STRATEGIES: Final = ("subscribe", "subscribePattern", "assign")
_STARTS: Final = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
_ENDS: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
_NAMES: Final = (
    *_STRATEGIES,
    *_STARTS,
    *_ENDS,
    "startingOffsetsByTimestampStrategy",
    "failOnDataLoss",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "columns",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafkaConsumer.pollTimeoutMs",
    "groupIdPrefix",
    "commitOffsetsToGroup",
    "log.dirs",
    "keyFormat",
    "valueFormat",
    "keySchema",
    "valueSchema",
    "avroFraming",
)
_OF_SPARK: Final = frozenset({"path", "name", "withwatermark"})
_KAFKA: Final = "kafka."
_SERVERS: Final = "bootstrap.servers"
_NO_SERVERS: Final = "none:1"  # where files are read the rest of the settings is checked as well
_REFUSED: Final[Mapping[str, str]] = {
    "auto.offset.reset": "set the source option 'startingOffsets' to 'earliest' or 'latest' "
    "instead: Structured Streaming decides which offsets are read",
    "key.deserializer": "keys are bytes; use 'keyFormat', or DataFrame operations on them",
    "value.deserializer": "values are bytes; use 'valueFormat', or DataFrame operations on them",
    "enable.auto.commit": "use 'commitOffsetsToGroup'",
    "interceptor.classes": "there are no interceptors here",
}
# Settings of the Java client that say how to do, not what: without them we do it our way.
_WITHOUT_EFFECT: Final = frozenset(
    {
        *("client.dns.lookup", "connections.max.idle.ms", "receive.buffer.bytes"),
        *("send.buffer.bytes", "metadata.recovery.strategy", "metric.reporters"),
        *("metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms"),
        *("socket.connection.setup.timeout.max.ms", "security.providers", "ssl.protocol"),
        *("enable.metrics.push", "auto.include.jmx.reporter"),
        *("internal.leave.group.on.close", "share.acknowledgement.mode", "ssl.provider"),
        *("metadata.recovery.rebootstrap.trigger.ms", "ssl.secure.random.implementation"),
    }
)
_DURATION: Final = re.compile(r"\s*(-?\d+)\s*([a-z]*)\s*")
_UNITS_MS: Final = {
    "us": 0.001,
    "ms": 1,
    "": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}


class OptionError(ValueError):
    """An option is missing, unknown, wrong, or does not go with another."""


class Subscribe(NamedTuple):
    topics: tuple[str, ...]


class SubscribePattern(NamedTuple):
    pattern: str


class Assign(NamedTuple):
    partitions: frozenset[TopicPartition]


Selection = Subscribe | SubscribePattern | Assign


@dataclass(frozen=True)
class SourceOptions:
    """Options that make sense by themselves. Picklable: they travel to the executors."""

    selection: Selection
    starting: OffsetLimit | None
    ending: OffsetLimit | None
    client: Mapping[str, str]
    log_dirs: tuple[str, ...]
    fail_on_data_loss: bool
    include_headers: bool
    columns: tuple[str, ...]
    offsets_per_trigger_max: int | None
    offsets_per_trigger_min: int | None
    trigger_delay_max_ms: int
    partitions_min: int | None
    records_per_partition_max: int | None
    retries: int
    retry_interval_ms: int
    poll_timeout_ms: int
    commit_group: str | None
    key_format: Format
    value_format: Format
    key_schema: str | None
    value_schema: str | None
    avro_framing: Framing

    @property
    def starting_for_batch(self) -> OffsetLimit:
        return self.starting or Everywhere(EARLIEST)

    @property
    def ending_for_batch(self) -> OffsetLimit:
        return self.ending or Everywhere(LATEST)

    @property
    def starting_for_stream(self) -> OffsetLimit:
        return self.starting or Everywhere(LATEST)

    @property
    def is_read_committed(self) -> bool:
        return self.client.get("isolation.level") == "read_committed"


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """Check what holds for batches and streams alike.

    Raises:
        OptionError: The message names the option and says what is wrong with it.
    """
    options = {name.lower(): value for name, value in given.items()}
    _check_names(options)
    reader = _Reader(options)
    least, most = reader.positive("minOffsetsPerTrigger"), reader.positive("maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise OptionError(
            f"minOffsetsPerTrigger({least}) is higher than the maxOffsetsPerTrigger({most})"
        )
    key_format, value_format = reader.format("keyFormat"), reader.format("valueFormat")
    return SourceOptions(
        selection=_selection(reader),
        starting=_limit(reader, _STARTS, is_start=True),
        ending=_limit(reader, _ENDS, is_start=False),
        client=_client_settings(options),
        log_dirs=reader.listed("log.dirs"),
        fail_on_data_loss=reader.flag("failOnDataLoss", default=True),
        include_headers=reader.flag("includeHeaders", default=False),
        columns=tuple(dict.fromkeys(reader.listed("columns"))),
        offsets_per_trigger_max=most,
        offsets_per_trigger_min=least,
        trigger_delay_max_ms=_duration_ms(reader.text("maxTriggerDelay", "15m")),
        partitions_min=reader.positive("minPartitions"),
        records_per_partition_max=reader.positive("maxRecordsPerPartition"),
        retries=reader.number("fetchOffset.numRetries", 3),
        retry_interval_ms=reader.number("fetchOffset.retryIntervalMs", 1000),
        poll_timeout_ms=reader.number("kafkaConsumer.pollTimeoutMs", 120_000),
        commit_group=_commit_group(reader),
        key_format=key_format,
        value_format=value_format,
        key_schema=reader.schema("keySchema", key_format),
        value_schema=reader.schema("valueSchema", value_format),
        avro_framing=reader.framing("avroFraming", (key_format, value_format)),
    )


def check_for_batch(options: SourceOptions) -> None:
    """Check what holds for batches only.

    Raises:
        OptionError: A batch cannot begin at the end, nor end at the beginning.
    """
    starting, ending = options.starting_for_batch, options.ending_for_batch
    if starting == Everywhere(LATEST):
        raise OptionError("starting offset can't be latest for batch queries")
    if ending == Everywhere(EARLIEST):
        raise OptionError("ending offset can't be earliest for batch queries")
    _check_marks(starting, LATEST, "startingOffsets for {} can't be latest for batch queries")
    _check_marks(ending, EARLIEST, "ending offset for {} can't be earliest for batch queries")
    if isinstance(starting, Specific) and isinstance(ending, Specific):
        _check_order(starting.offsets, ending.offsets, "offset")
    elif isinstance(starting, AtTimestamps) and isinstance(ending, AtTimestamps):
        _check_order(starting.timestamps, ending.timestamps, "timestamp")
    if options.commit_group is not None:
        raise OptionError("commitOffsetsToGroup is for streaming queries")


def check_for_stream(options: SourceOptions) -> None:
    """Check what holds for streams only.

    Raises:
        OptionError: A stream has no end, and needs a broker.
    """
    if options.ending is not None:
        kind = "offset" if isinstance(options.ending, Everywhere | Specific) else "timestamp"
        raise OptionError(f"ending {kind} not valid in streaming queries")
    if options.log_dirs:
        raise OptionError("log.dirs is not valid in streaming queries: give brokers instead")


class _Reader:
    """Looks options up, whatever the case of their names."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options

    def has(self, name: str) -> bool:
        return name.lower() in self._options

    def text(self, name: str, default: str) -> str:
        return self._options.get(name.lower(), default)

    def listed(self, name: str) -> tuple[str, ...]:
        return tuple(filter(None, map(str.strip, self.text(name, "").split(","))))

    def flag(self, name: str, *, default: bool) -> bool:
        text = self.text(name, str(default)).strip().lower()
        if text not in ("true", "false"):
            raise OptionError(f"{name}: {text!r} is neither true nor false")
        return text == "true"

    def number(self, name: str, default: int) -> int:
        text = self.text(name, str(default)).strip()
        if not re.fullmatch(r"\d{1,18}", text):
            raise OptionError(f"{name}: {text!r} is not a number of 0 or more")
        return int(text)

    def positive(self, name: str) -> int | None:
        if not self.has(name):
            return None
        if not re.fullmatch(r"0*[1-9]\d{0,17}", self.text(name, "").strip()):
            raise OptionError(f"{name} must be positive, not {self.text(name, '')!r}")
        return int(self.text(name, ""))

    def format(self, name: str) -> Format:
        text = self.text(name, "binary").strip().lower()
        for each in _FORMATS:
            if each == text:
                return each
        raise OptionError(f"{name}: {text!r} is not one of {', '.join(_FORMATS)}")

    def schema(self, name: str, kind: Format) -> str | None:
        schema = self.text(name, "").strip() or None
        which = name.replace("Schema", "Format")
        if kind in ("json", "avro") and schema is None:
            raise OptionError(f"{which}={kind} and {name} go together: give both or neither")
        if kind not in ("json", "avro") and schema is not None:
            raise OptionError(f"{name} goes together with {which}=json or avro")
        return schema

    def framing(self, name: str, kinds: tuple[Format, ...]) -> Framing:
        text = self.text(name, "plain").strip().lower()
        if self.has(name) and "avro" not in kinds:
            raise OptionError(f"{name} is for keyFormat or valueFormat=avro")
        for each in _FRAMINGS:
            if each == text:
                return each
        raise OptionError(f"{name}: {text!r} is not one of {', '.join(_FRAMINGS)}")


def _check_names(options: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in _NAMES}
    for name in options:
        if name in known or name in _OF_SPARK or name.startswith(_KAFKA):
            continue
        close = get_close_matches(name, known, n=1)
        hint = f"; did you mean {known[close[0]]!r}?" if close else ""
        raise OptionError(f"unknown option {name!r}{hint}")


def _selection(reader: _Reader) -> Selection:
    given = [name for name in _STRATEGIES if reader.has(name)]
    if len(given) != 1:
        how = "One of the following options must" if not given else "Only one of these options can"
        raise OptionError(f"{how} be specified for the source: {', '.join(_STRATEGIES)}")
    value = reader.text(given[0], "").strip()
    if given[0] == "assign":
        return Assign(_assigned(value))
    if given[0] == "subscribe":
        topics = tuple(dict.fromkeys(reader.listed("subscribe")))
        if not topics:
            raise OptionError(f"No topics to subscribe to: option 'subscribe' is {value!r}")
        return Subscribe(topics)
    try:
        re.compile(value)
    except re.error as error:
        raise OptionError(f"subscribePattern: {value!r} is no pattern: {error}") from error
    if not value:
        raise OptionError("Pattern to subscribe is empty: option 'subscribePattern' is ''")
    return SubscribePattern(value)


def _assigned(text: str) -> frozenset[TopicPartition]:
    parsed = _json_object("assign", text, '{"topicA":[0,1],"topicB":[2,4]}')
    partitions: set[TopicPartition] = set()
    for topic, numbers in parsed.items():
        if not isinstance(numbers, list) or not all(_is_count(each) for each in numbers):
            raise OptionError(f"assign: {topic!r} needs a list of partition numbers")
        partitions.update(TopicPartition(topic, number) for number in numbers)
    if not partitions:
        raise OptionError(f"No topicpartitions to assign: option 'assign' is {text!r}")
    return frozenset(partitions)


def _limit(reader: _Reader, names: tuple[str, str, str], *, is_start: bool) -> OffsetLimit | None:
    """Read where to begin or to end; the first of the names that is given counts, as in Spark."""
    everywhere, by_partition, offsets = names
    strategy = reader.text("startingOffsetsByTimestampStrategy", "error").strip().lower()
    if strategy not in ("error", "latest"):
        raise OptionError(f"startingOffsetsByTimestampStrategy: {strategy!r} is no strategy")
    # Where nothing is as new as that, an end is the end of the log in any case.
    or_latest = not is_start or strategy == "latest"
    if reader.has(everywhere):
        text = reader.text(everywhere, "").strip()
        if not re.fullmatch(r"\d{1,18}", text):
            raise OptionError(f"{everywhere}: expected a single long value, got {text}")
        return AtTimestamp(int(text), or_latest=or_latest)
    if reader.has(by_partition):
        text = reader.text(by_partition, "")
        return AtTimestamps(_offsets(by_partition, text, minimum=0), or_latest=or_latest)
    if not reader.has(offsets):
        return None
    text = reader.text(offsets, "").strip()
    if text.lower() in ("earliest", "latest"):
        return Everywhere(EARLIEST if text.lower() == "earliest" else LATEST)
    return Specific(_offsets(offsets, text, minimum=EARLIEST))


def _offsets(name: str, text: str, *, minimum: int) -> Offsets:
    example = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
    try:
        return parse_offsets(_json_object(name, text, example), minimum=minimum)
    except ValueError as error:
        raise OptionError(f"{name}: {error}") from error


def _json_object(name: str, text: str, example: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise OptionError(f"{name}: expected e.g. {example}, got {text}")
    return parsed


def _client_settings(options: Mapping[str, str]) -> Mapping[str, str]:
    named = {name[len(_KAFKA) :]: text for name, text in options.items() if name.startswith(_KAFKA)}
    for name, reason in _REFUSED.items():
        if name in named:
            raise OptionError(f"Kafka option '{name}' is not supported: {reason}")
    if _SERVERS not in named and not options.get("log.dirs"):
        raise OptionError("Option 'kafka.bootstrap.servers' must be specified")
    used = {name: text for name, text in named.items() if name not in _WITHOUT_EFFECT}
    try:
        settings = Settings(DEFINITIONS, {_SERVERS: _NO_SERVERS, **used})
        settings.addresses(_SERVERS)
        login_from(settings)
    except ConfigurationError as error:
        raise OptionError(f"kafka.*: {error}") from error
    return used


def _commit_group(reader: _Reader) -> str | None:
    if not reader.has("commitOffsetsToGroup"):
        return None
    group = reader.text("commitOffsetsToGroup", "").strip()
    if not group:
        raise OptionError("commitOffsetsToGroup: the name of a group is empty")
    return group


def _duration_ms(text: str) -> int:
    match = _DURATION.fullmatch(text.lower())
    if match is None or match[2] not in _UNITS_MS:
        raise OptionError(f"maxTriggerDelay: {text!r} is not a time like 10s or 15m")
    return max(0, int(int(match[1]) * _UNITS_MS[match[2]]))


def _check_marks(limit: OffsetLimit, mark: int, problem: str) -> None:
    if isinstance(limit, Specific):
        for partition, offset in limit.offsets.items():
            if offset == mark:
                raise OptionError(problem.format(partition))


def _check_order(starts: Offsets, ends: Offsets, what: str) -> None:
    if starts.keys() != ends.keys():
        raise OptionError(f"starting and ending {what}s are of different topic partitions")
    for partition, start in starts.items():
        if 0 <= ends[partition] < start:
            problem = f"{partition}: the starting {what} {start} is after the ending one"
            raise OptionError(f"{problem}, {ends[partition]}")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
