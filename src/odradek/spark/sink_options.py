"""What can be asked of the sink: the options and columns of Spark's Kafka sink, and a few of ours.

``topic``                  where all rows go; without it a column ``topic`` says so for each row
``kafka.*``                settings of the client, ``kafka.bootstrap.servers`` above all
``deliveryGuarantee``      ``exactly-once`` (the default) or ``at-least-once``
``deadLetterTopic``        where rows go that cannot be written; without it they fail the query
``deadLetterCountFile``    where the driver keeps how many of them there were; of pipelines
``transactionalIdPrefix``  what names of transactions and groups begin with, for ACLs
``txnAppId``, ``txnVersion``  make a batch write one that is done once only: a write with the same
                           name and the same or a lower number changes nothing. For ``foreachBatch``
                           and for jobs that are run again

Columns are ``value`` (needed), ``key``, ``topic``, ``partition`` and ``headers``, of Spark's types
for them; others are left out. All of this is checked before anything runs.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, Literal

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
)

from odradek.client.errors import ConfigurationError
from odradek.client.producer.settings import DEFINITIONS, options_from
from odradek.client.settings import Settings
from odradek.spark.options import OptionError

Guarantee = Literal["exactly-once", "at-least-once"]

EXACTLY_ONCE: Final = "exactly-once"
AT_LEAST_ONCE: Final = "at-least-once"
COLUMNS: Final = ("value", "key", "topic", "partition", "headers")

TRANSACTION_TIMEOUT_MS: Final = 300_000
"""A transaction lasts as long as a task, which computes what it writes: a minute is too short."""

_WITHOUT_MARKER: Final = "odradek.testing.withoutmarker"
_NAMES: Final = (
    "topic",
    "deliveryGuarantee",
    "deadLetterTopic",
    "deadLetterCountFile",
    "transactionalIdPrefix",
    "txnAppId",
    "txnVersion",
)
_KAFKA: Final = "kafka."
_REFUSED: Final[Mapping[str, str]] = {
    "key.serializer": "keys are strings or bytes; use DataFrame operations to make them so",
    "value.serializer": "values are strings or bytes; use DataFrame operations to make them so",
    "transactional.id": "the sink makes one for each task; see 'transactionalIdPrefix'",
    "interceptor.classes": "there are no interceptors here",
    "partitioner.class": "use the column 'partition'",
}
# Settings of the Java client that say how to do, not what: without them we do it our way.
_WITHOUT_EFFECT: Final = frozenset(
    {
        *("client.dns.lookup", "connections.max.idle.ms", "receive.buffer.bytes"),
        *("send.buffer.bytes", "metadata.recovery.strategy", "metric.reporters"),
        *("metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms"),
        *("socket.connection.setup.timeout.max.ms", "security.providers", "ssl.protocol"),
        *("enable.metrics.push", "auto.include.jmx.reporter", "metadata.max.idle.ms"),
        *("metadata.recovery.rebootstrap.trigger.ms", "ssl.provider", "ssl.enabled.protocols"),
        *("ssl.cipher.suites", "ssl.secure.random.implementation", "ssl.engine.factory.class"),
    }
)
_PREFIX: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")


@dataclass(frozen=True)
class SinkOptions:
    """Options that make sense by themselves. Picklable: they travel to the executors."""

    topic: str | None
    client: Mapping[str, str]
    guarantee: Guarantee
    dead_letter_topic: str | None
    dead_letter_count_file: str | None
    transactional_id_prefix: str
    once: tuple[str, int] | None
    """Name and version of a batch write that is done once only."""
    without_marker: bool

    @property
    def is_exactly_once(self) -> bool:
        return self.guarantee == EXACTLY_ONCE

    def settings(self, transactional_id: str | None = None) -> Settings:
        """Return the settings of the producer of a task."""
        given = dict(self.client)
        if transactional_id is not None:
            given["transactional.id"] = transactional_id
            given.setdefault("transaction.timeout.ms", str(TRANSACTION_TIMEOUT_MS))
        return Settings(DEFINITIONS, given)


def parse_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Check what was given.

    Raises:
        OptionError: The message names the option and says what is wrong with it.
    """
    options = {name.lower(): value for name, value in given.items()}
    _check_names(options)
    parsed = SinkOptions(
        topic=_text(options, "topic"),
        client=_client_settings(options),
        guarantee=_guarantee(options),
        dead_letter_topic=_text(options, "deadLetterTopic"),
        dead_letter_count_file=_text(options, "deadLetterCountFile"),
        transactional_id_prefix=_prefix(options),
        once=_once(options),
        without_marker=options.get(_WITHOUT_MARKER, "false").lower() == "true",
    )
    try:
        settings = parsed.settings("any" if parsed.is_exactly_once else None)
        settings.addresses("bootstrap.servers")
        if options_from(settings).acks == 0:
            raise OptionError("kafka.acks: 0 gives no guarantee at all; use 1 or all")
    except ConfigurationError as error:
        raise OptionError(f"kafka.*: {error}") from error
    return parsed


def check_schema(options: SinkOptions, schema: StructType) -> None:
    """Check that there are the columns it takes, of the right types, as Spark's Kafka sink does.

    Raises:
        OptionError: There are not.
    """
    columns = {field.name.lower(): field.dataType for field in schema.fields}
    if "value" not in columns:
        raise OptionError("Required attribute 'value' not found")
    if options.topic is None and "topic" not in columns:
        raise OptionError(
            "topic option required when no 'topic' attribute is present. "
            "Use the topic option for setting a topic."
        )
    texts: tuple[type[DataType], ...] = (StringType, BinaryType)
    _check_type(columns, "value", texts, "string or binary")
    _check_type(columns, "key", texts, "string or binary")
    _check_type(columns, "topic", (StringType,), "string")
    _check_type(columns, "partition", (IntegerType,), "int")
    if "headers" in columns and not _is_headers(columns["headers"]):
        raise OptionError(
            f"headers attribute unsupported type {columns['headers'].simpleString()}: "
            "it must be array<struct<key:string,value:binary>>"
        )


def _check_type(
    columns: Mapping[str, DataType], name: str, kinds: tuple[type[DataType], ...], wanted: str
) -> None:
    if name in columns and not isinstance(columns[name], kinds):
        kind = columns[name].simpleString()
        raise OptionError(f"{name} attribute unsupported type {kind}: it must be {wanted}")


def _is_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = kind.elementType.fields
    return (
        len(fields) == 2
        and isinstance(fields[0].dataType, StringType)
        and isinstance(fields[1].dataType, BinaryType)
    )


def _check_names(options: Mapping[str, str]) -> None:
    """Refuse what is nearly one of our names; Spark's own options come along and are let be."""
    known = {name.lower(): name for name in _NAMES}
    for name in options:
        if name in known or name.startswith(_KAFKA):
            continue
        close = get_close_matches(name, known, n=1, cutoff=0.85)
        if close:
            raise OptionError(f"unknown option {name!r}; did you mean {known[close[0]]!r}?")


def _text(options: Mapping[str, str], name: str) -> str | None:
    text = options.get(name.lower())
    if text is None:
        return None
    if not text.strip():
        raise OptionError(f"{name} is empty")
    return text.strip()


def _guarantee(options: Mapping[str, str]) -> Guarantee:
    text = options.get("deliveryguarantee", EXACTLY_ONCE).strip().lower()
    if text == EXACTLY_ONCE:
        return "exactly-once"
    if text == AT_LEAST_ONCE:
        return "at-least-once"
    raise OptionError(f"deliveryGuarantee: {text!r} is not {EXACTLY_ONCE} or {AT_LEAST_ONCE}")


def _prefix(options: Mapping[str, str]) -> str:
    prefix = options.get("transactionalidprefix", "odradek-spark").strip()
    if not _PREFIX.fullmatch(prefix):
        raise OptionError(
            f"transactionalIdPrefix: {prefix!r} is not 1 to 200 letters, digits, '.', '_' or '-'"
        )
    return prefix


def _once(options: Mapping[str, str]) -> tuple[str, int] | None:
    name, version = _text(options, "txnAppId"), _text(options, "txnVersion")
    if name is None and version is None:
        return None
    if name is None or version is None:
        raise OptionError("txnAppId and txnVersion go together: give both or neither")
    if not re.fullmatch(r"\d{1,18}", version):
        raise OptionError(f"txnVersion: {version!r} is not a number of 0 or more")
    return name, int(version)


def _client_settings(options: Mapping[str, str]) -> Mapping[str, str]:
    named = {name[len(_KAFKA) :]: text for name, text in options.items() if name.startswith(_KAFKA)}
    for name, reason in _REFUSED.items():
        if name in named:
            raise OptionError(f"Kafka option '{name}' is not supported: {reason}")
    if "bootstrap.servers" not in named:
        raise OptionError("Option 'kafka.bootstrap.servers' must be specified")
    return {name: text for name, text in named.items() if name not in _WITHOUT_EFFECT}
