"""A batch that still takes records, each with a future; the plain-Python twin of ``_compiled``'s.

Hot path (``bench/client_producer.py``): ``try_append`` and ``tell_all`` see every record that a
producer sends, and in Python they cost more than all else that is done for one.
"""

from collections.abc import Iterable
from typing import Any, Final, Protocol

from odradek.records.codec import RecordEncoder
from odradek.records.record import Buffer

RECORD_OVERHEAD_MAX: Final = 36
"""Length 5, attributes 1, timestamp delta 10, offset delta 5; key, value, header count 5 each."""

Headers = Iterable[tuple[str | bytes, Buffer | None]]


class RecordOutcome(Protocol):
    """What a sender of a record waits for: asyncio's future, or that of a thread."""

    def done(self) -> bool: ...

    def set_result(self, result: Any, /) -> None: ...

    def set_exception(self, exception: Any, /) -> None: ...

    def exception(self) -> BaseException | None: ...


class OpenBatch:
    """Records up to ``size_max`` bytes, and who waits to hear of them. Made to be inherited from.

    ``record_size_max`` is for records that come without a size of their own.
    """

    __slots__ = (
        "_encoder",
        "_record_size_max",
        "_size_max",
        "count",
        "futures",
        "is_closed",
        "is_full",
        "size",
        "timestamps",
    )

    def __init__(self, encoder: RecordEncoder, size_max: int, record_size_max: int) -> None:
        self.is_closed = self.is_full = False
        self.count = 0
        self.size = encoder.size
        self.futures: list[RecordOutcome] = []
        self.timestamps: list[int] = []
        self._encoder = encoder
        self._size_max = size_max
        self._record_size_max = record_size_max

    def append(
        self,
        timestamp: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Headers,
        future: RecordOutcome,
    ) -> None:
        """Take a record, whatever its size."""
        self.size = self._encoder.append(timestamp, key, value, headers)
        self.count += 1
        self.futures.append(future)
        self.timestamps.append(timestamp)

    def try_append(
        self,
        timestamp: int,
        key: Any,
        value: Any,
        headers: Headers,
        future: RecordOutcome,
        record_size: int = 0,
    ) -> bool:
        """Take a record of at most ``record_size`` bytes, or of a size that is easily found.

        False: there is no room, and the batch is closed by that; or, without a size, the record has
        headers, is too large, or is made of something else than bytes.
        """
        if self.is_closed:
            return False
        if record_size == 0:
            if headers or value.__class__ not in _PLAIN or key.__class__ not in _PLAIN:
                return False
            record_size = RECORD_OVERHEAD_MAX + len(key or b"") + len(value or b"")
            if record_size > self._record_size_max:
                return False
        if self.size + record_size > self._size_max:
            self.is_closed = self.is_full = True
            return False
        self.append(timestamp, key, value, headers, future)
        return True

    def reopen(self, size_max: int) -> None:
        """Take records up to another size; it has been full and stays so."""
        self._size_max = size_max
        self.is_closed = False

    def tell_all(
        self,
        result_type: type[tuple[Any, ...]],
        topic: str,
        partition: int,
        base_offset: int,
        log_append_time: int | None,
    ) -> None:
        """Set the results of all futures that are not done; a negative offset is that of all."""
        offset, step = base_offset, 1 if base_offset >= 0 else 0
        for future, timestamp in zip(self.futures, self.timestamps, strict=True):
            if not future.done():
                time_ms = timestamp if log_append_time is None else log_append_time
                result = tuple.__new__(result_type, (topic, partition, offset, time_ms))
                future.set_result(result)
            offset += step


_PLAIN: Final = frozenset({bytes, type(None)})
