"""What applications may hang into a producer: serializers, and interceptors that watch."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from odradek.client.producer.batch import Headers, RecordMetadata

_log: Final = logging.getLogger(__name__)


class ObjectSerializer(Protocol):
    """A serializer that wants to know the topic."""

    def serialize(self, topic: str, data: Any, /) -> bytes | None: ...


Serializer: TypeAlias = Callable[[Any], bytes | None] | ObjectSerializer


class ProducerRecord(NamedTuple):
    """What ``send`` was given, for interceptors."""

    topic: str
    value: Any = None
    key: Any = None
    partition: int | None = None
    headers: Headers = ()
    timestamp: int | None = None


class Interceptor(Protocol):
    """Sees every record on its way out and what became of it; what it raises is logged."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord: ...

    def on_acknowledgement(
        self, metadata: RecordMetadata | None, error: BaseException | None
    ) -> None: ...


class Interceptors:
    def __init__(self, interceptors: Sequence[Interceptor]) -> None:
        self._interceptors = tuple(interceptors)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        for each in self._interceptors:
            try:
                record = each.on_send(record)
            except Exception:
                _log.exception("an interceptor failed; the record goes on as it was")
        return record

    def on_done(self, future: "asyncio.Future[RecordMetadata]") -> None:
        if future.cancelled():
            return
        error = future.exception()
        for each in self._interceptors:
            try:
                each.on_acknowledgement(None if error else future.result(), error)
            except Exception:
                _log.exception("an interceptor failed")


def as_function(given: Serializer | None) -> Callable[[str, Any], Any] | None:
    """Return a serializer of either kind as a function of topic and data."""
    if given is None:
        return None
    serialize = getattr(given, "serialize", None)
    if serialize is not None:
        made: Callable[[str, Any], Any] = serialize
        return made
    if not callable(given):
        raise TypeError(f"{given!r} is not a serializer: a function, or has serialize(topic, data)")
    call = given
    return lambda _, data: call(data)
