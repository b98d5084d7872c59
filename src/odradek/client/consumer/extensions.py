"""What applications may hang into a consumer: deserializers, and interceptors that watch.

Deserializers run when a record is about to be handed out, once, and never for what is None. One
that fails stops its partition there: the records before are handed out first, then
``RecordDeserializationError`` is raised until the application seeks past the record.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from odradek.client.consumer.errors import RecordDeserializationError
from odradek.client.consumer.records import AnyRecord, Offsets
from odradek.core.ids import TopicPartition

_log: Final = logging.getLogger("odradek.client")

RecordsByPartition = dict[TopicPartition, list[AnyRecord]]
Deserialize = Callable[[AnyRecord], AnyRecord]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class ObjectDeserializer(Protocol[T_co]):
    """A deserializer that wants to know the topic."""

    def deserialize(self, topic: str, data: bytes, /) -> T_co: ...


Deserializer: TypeAlias = Callable[[bytes], T] | ObjectDeserializer[T]


def deserialize_with(
    key: Deserializer[Any] | None, value: Deserializer[Any] | None
) -> Deserialize | None:
    """Return what makes a record of the application's out of one of bytes; None: nothing does."""
    if key is None and value is None:
        return None
    of_key, of_value = _as_function(key), _as_function(value)

    def deserialize(record: AnyRecord) -> AnyRecord:
        part = "key"
        try:
            made_key = None if record.key is None else of_key(record.topic, record.key)
            part = "value"
            made_value = None if record.value is None else of_value(record.topic, record.value)
        except Exception as error:
            raise RecordDeserializationError(record, part, error) from error
        return record._replace(key=made_key, value=made_value)

    return deserialize


def _as_function(given: Deserializer[Any] | None) -> Callable[[str, bytes], Any]:
    if given is None:
        return lambda _, data: data
    deserialize = getattr(given, "deserialize", None)
    if deserialize is not None:
        made: Callable[[str, bytes], Any] = deserialize
        return made
    if not callable(given):
        raise TypeError(
            f"{given!r} is no deserializer: a function, or has deserialize(topic, data)"
        )
    call = given
    return lambda _, data: call(data)


class ConsumerInterceptor(Protocol):
    """Sees records before they are handed out, and offsets once they are committed.

    ``on_consume`` may change records and leave some out, but not invent any. What it raises is
    logged, and the records go on as they were. Tables of ``poll_arrow`` go past it.
    """

    def on_consume(self, records: RecordsByPartition) -> RecordsByPartition: ...

    def on_commit(self, offsets: Offsets) -> None: ...


class ConsumerInterceptors:
    def __init__(self, interceptors: Sequence[ConsumerInterceptor]) -> None:
        self._interceptors = tuple(interceptors)

    def on_consume(self, partition: TopicPartition, records: list[AnyRecord]) -> list[AnyRecord]:
        for each in self._interceptors:
            if not records:
                break
            try:
                records = each.on_consume({partition: records}).get(partition, [])
            except Exception:
                _log.exception("an interceptor failed; the records go on as they were")
        return records

    def on_commit(self, offsets: Offsets) -> None:
        for each in self._interceptors:
            try:
                each.on_commit(offsets)
            except Exception:
                _log.exception("an interceptor failed")
