"""Opening the records of a produced batch: they must be what the header says of them. Hot path.

Codes are Kafka's::

    INVALID_RECORD (87)         records that are malformed, more or fewer than the header says, or
                                with other offsets than 0, 1, 2, …
    UNKNOWN_SERVER_ERROR (-1)   a codec that nobody has defined, data that does not unpack
    MESSAGE_TOO_LARGE (10)      it unpacks to more than ``unpacked_bytes_max``: here alone, Kafka
                                takes it. Java's producer splits such a batch and tries again.

A few kilobytes can unpack to gigabytes, and whoever sends them need not be allowed much. So there
are two limits. ``unpacked_bytes_max`` is on one batch, everywhere. A ``Budget`` is on all that one
turn of the event loop unpacks: what goes beyond it raises ``OpeningDeferredError``, and the caller
has the batch validated again on a thread, where it has no budget (``broker/opening.py``).
"""

from typing import Final, Protocol

from odradek.core.errors import ApiError, CorruptionError, ErrorCode
from odradek.records.batch import BatchHeader
from odradek.records.compression import DECOMPRESSED_BYTES_MAX, Room, UnpacksTooLongError
from odradek.records.implementation import summarize_records
from odradek.records.reader import records_body
from odradek.records.record import Buffer, RecordsSummary
from odradek.storage.config import LogConfig
from odradek.storage.record_errors import RecordsRefusedError

UNPACKED_BYTES_MAX: Final = 16 * 1024 * 1024
"""What any batch may unpack to. Producers bound a batch before they pack it, and by far less."""

UNPACKED_RATIO_MAX: Final = 32
"""A larger one may unpack to so many times its size; logs and JSON come to ten or twenty."""

_RATIO_USUAL: Final = 2
"""A batch that would pass its budget at this ratio is not tried first: it would be in vain."""


class Budget(Protocol):
    """Bytes that may still be unpacked here and now."""

    @property
    def left(self) -> int: ...
    @property
    def room(self) -> Room: ...
    def spend(self, count: int) -> None: ...


class OpeningDeferredError(Exception):
    """The batch is too much work for here and now; nothing is known against it."""


def unpacked_bytes_max(header: BatchHeader, config: LogConfig) -> int:
    """Return what a batch may unpack to: never less than what may come without compression."""
    allowed = max(UNPACKED_BYTES_MAX, config.max_message_bytes, UNPACKED_RATIO_MAX * header.size)
    return min(allowed, DECOMPRESSED_BYTES_MAX)


def open_body(
    records: Buffer, header: BatchHeader, config: LogConfig, budget: Budget | None
) -> Buffer:
    """Return the records of a compressed batch; good until others are unpacked within the budget.

    Raises:
        OpeningDeferredError: That is more than the budget allows.
        ApiError: They do not unpack, or to too much.
    """
    bytes_max = allowed = unpacked_bytes_max(header, config)
    room = None
    if budget is not None:
        room = budget.room
        bytes_max = min(allowed, budget.left)
        if header.size * _RATIO_USUAL > bytes_max:
            raise OpeningDeferredError
    try:
        body = records_body(records, header, output_bytes_max=bytes_max, room=room)
    except CorruptionError as error:
        if budget is not None:
            budget.spend(bytes_max)  # as if all of it was unpacked: it may have been
        if not isinstance(error, UnpacksTooLongError):
            raise RecordsRefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error), ()) from error
        if bytes_max < allowed:
            raise OpeningDeferredError from error
        problem = f"{header.size} bytes that unpack to more than {allowed}; send smaller batches"
        raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, problem) from error
    if budget is not None:
        budget.spend(len(body))
    return body


def check_body(body: Buffer, header: BatchHeader) -> RecordsSummary:
    """Walk through all records once.

    Raises:
        RecordsRefusedError: They are not what the header says, or not what records are.
    """
    try:
        summary = summarize_records(body, header.records_count, header.base_timestamp)
    except CorruptionError as error:
        raise RecordsRefusedError(ErrorCode.INVALID_RECORD, str(error), ()) from error
    if not summary.consecutive:
        # Kafka numbers such records anew, answers -1 or takes them, by codec. Taken, they have
        # consumers skip records, or wait for offsets that never come.
        problem = "the offsets of the records are not 0, 1, 2, …"
        raise RecordsRefusedError(ErrorCode.INVALID_RECORD, problem, ())
    return summary
