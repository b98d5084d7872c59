"""How the console consumer shows records; by short names, or those of Kafka's formatter classes.

Records of internal topics are JSON, one a line. (Kafka 4.3 leaves the line ends out.)
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Protocol

import click

from odradek.cli.coordinator_records import KINDS, Kinds, coordinator_json
from odradek.cli.record_deserializers import Deserializer, deserializer_for
from odradek.cli.tool_options import ToolError
from odradek.client.consumer import ConsumerRecord
from odradek.core.errors import CorruptionError
from odradek.records import TimestampType
from odradek.storage.dump.java_text import text_of

_JAVA_NAMES: Final[Mapping[str, str]] = {
    "DefaultMessageFormatter": "default",
    "LoggingMessageFormatter": "logging",
    "NoOpMessageFormatter": "no-op",
    "OffsetsMessageFormatter": "offsets",
    "GroupMetadataMessageFormatter": "group-metadata",
    "TransactionLogMessageFormatter": "transaction-log",
    "ShareGroupMessageFormatter": "share-group",
    "ShareGroupStateMessageFormatter": "share-group-state",
}
_TIMESTAMP_TYPES: Final = {
    TimestampType.CREATE_TIME: b"CreateTime",
    TimestampType.LOG_APPEND_TIME: b"LogAppendTime",
}
# Kafka's console consumer drops what it knows of these two before it prints them.
_NOT_PRESENT: Final = b"NOT_PRESENT"

Column = Callable[[ConsumerRecord], bytes]


class Formatter(Protocol):
    def format(self, record: ConsumerRecord) -> bytes:
        """Return all that is printed of a record; nothing, if it is none of ours.

        Raises:
            ToolError: The record is not what it should be.
        """
        ...


class DefaultFormatter:
    """Columns that properties choose, between separators."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Take the properties of Kafka's DefaultMessageFormatter.

        Raises:
            ToolError: A deserializer is not known.
        """

        def separator(name: str, default: str) -> bytes:
            return properties.get(name, default).encode()

        self._between = separator("key.separator", "\t")
        self._end = separator("line.separator", "\n")
        self._null = separator("null.literal", "null")
        self._between_headers = separator("headers.separator", ",")
        names = ("key.deserializer", "value.deserializer", "headers.deserializer")
        self._key, self._value, self._header = (
            deserializer_for(properties[name]) if name in properties else None for name in names
        )
        columns: dict[str, Column] = {
            "print.timestamp": _timestamp,
            "print.partition": lambda record: b"Partition:%d" % record.partition,
            "print.offset": lambda record: b"Offset:%d" % record.offset,
            "print.delivery": lambda _: b"Delivery:" + _NOT_PRESENT,
            "print.epoch": lambda _: b"Epoch:" + _NOT_PRESENT,
            "print.headers": self._headers,
            "print.key": lambda record: self._text(self._key, record.key),
            "print.value": lambda record: self._text(self._value, record.value),
        }
        chosen = {"print.value": "true", **properties}
        self._columns = [
            column for name, column in columns.items() if _is_true(chosen.get(name, ""))
        ]

    def format(self, record: ConsumerRecord) -> bytes:
        if not self._columns:
            return b""
        return self._between.join([column(record) for column in self._columns]) + self._end

    def _text(self, deserializer: Deserializer | None, data: bytes | None) -> bytes:
        """Return what is shown; nothing at all is the null literal, whatever the deserializer."""
        if data is None:
            return self._null
        return data if deserializer is None else deserializer(data).encode()

    def _headers(self, record: ConsumerRecord) -> bytes:
        if not record.headers:
            return b"NO_HEADERS"
        pairs = (
            name.encode("utf-8", "surrogateescape") + b":" + self._text(self._header, value)
            for name, value in record.headers
        )
        return self._between_headers.join(pairs)


def _timestamp(record: ConsumerRecord) -> bytes:
    return b"%s:%d" % (_TIMESTAMP_TYPES[record.timestamp_type], record.timestamp)


def _is_true(text: str) -> bool:
    return text.strip().lower() == "true"


class LoggingFormatter:
    """What the default one prints, and a line of the log for each record."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._default = DefaultFormatter(properties)

    def format(self, record: ConsumerRecord) -> bytes:
        key = "null " if record.key is None else f"{text_of(record.key)}, "
        value = "null" if record.value is None else text_of(record.value)
        click.echo(f"{_timestamp(record).decode()}, key:{key}value:{value}", err=True)
        return self._default.format(record)


class NoOpFormatter:
    def __init__(self, _: Mapping[str, str]) -> None:
        """Take properties of no use."""

    def format(self, _: ConsumerRecord) -> bytes:
        return b""


class CoordinatorFormatter:
    """Records that coordinators keep in an internal topic, as JSON."""

    def __init__(self, kinds: Kinds, _: Mapping[str, str]) -> None:
        self._kinds = kinds

    def format(self, record: ConsumerRecord) -> bytes:
        try:
            shown = coordinator_json(self._kinds, record.key, record.value)
        except CorruptionError as error:
            problem = f"Could not read record at offset {record.offset} due to: {error}"
            raise ToolError(problem) from error
        return b"" if shown is None else shown.encode("utf-8", "replace") + b"\n"


FORMATTERS: Final[Mapping[str, Callable[[Mapping[str, str]], Formatter]]] = {
    "default": DefaultFormatter,
    "logging": LoggingFormatter,
    "no-op": NoOpFormatter,
    **{name: partial(CoordinatorFormatter, kinds) for name, kinds in KINDS.items()},
}


def formatter_for(name: str, properties: Mapping[str, str]) -> Formatter:
    """Return a formatter, by its short name or that of its Java class, of whatever age.

    Raises:
        ToolError: It is not known, or a property is wrong.
    """
    java_class = name.rpartition("$")[2].rpartition(".")[2]
    short = _JAVA_NAMES.get(java_class, name)
    if short not in FORMATTERS:
        raise ToolError(f"The formatter {name} is not known: use one of {', '.join(FORMATTERS)}")
    return FORMATTERS[short](properties)
