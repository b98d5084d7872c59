"""Which records of a batch a leader refuses, and why: what a producer is told of each (KIP-467).

A batch is refused as a whole, but only for the records named here; without them it is welcome. As
in Kafka a record has one fault, the missing key before the timestamp, and one bad timestamp makes
the whole refusal INVALID_TIMESTAMP.

They are looked for only when something is known to be wrong, by the compiled codec.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from odradek.core.errors import ApiError, ErrorCode
from odradek.records import BatchHeader, TimestampType
from odradek.records.batch import LOG_APPEND_TIME_FLAG
from odradek.records.implementation import find_refused
from odradek.records.record import Buffer
from odradek.storage.config import LONG_MAX, LogConfig

RECORD_ERRORS_MAX: Final = 10_000
"""How many records a refusal names. Kafka has no limit; here a producer that leaves out those named
is told the next ones, and a batch of empty records does not make a reply many times its size."""

LONG_MIN: Final = -LONG_MAX - 1

_SHOWN_MAX: Final = 3
_NO_KEY: Final = "it has no key, and the topic is compacted"
_NOT_OURS: Final = "only the broker sets LogAppendTime"


class RecordError(NamedTuple):
    batch_index: int
    """Place in the batch, from 0."""
    message: str


class RecordsRefusedError(ApiError):
    """A batch is refused because of its records; of malformed ones none is named."""

    def __init__(self, code: ErrorCode, message: str, record_errors: Sequence[RecordError]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


def find_refusal(
    body: Buffer, header: BatchHeader, config: LogConfig, now_ms: int
) -> RecordsRefusedError | None:
    """Return why a batch cannot be taken; None if every one of its records can.

    ``body`` is that of ``records_body``, and sound.
    """
    first, last = LONG_MIN, LONG_MAX
    if config.message_timestamp_type is TimestampType.CREATE_TIME:
        first = now_ms - config.message_timestamp_before_max_ms
        last = min(now_ms + config.message_timestamp_after_max_ms, LONG_MAX)
    is_set_by_producer = bool(header.attributes & LOG_APPEND_TIME_FLAG)
    found = find_refused(
        body,
        header.records_count,
        header.base_timestamp,
        keys=config.compact,
        timestamps=is_set_by_producer,
        first_timestamp=first,
        last_timestamp=last,
        named_max=RECORD_ERRORS_MAX,
    )
    if not found.named:
        return None
    bounds = _NOT_OURS if is_set_by_producer else f"timestamp {{}} is not within [{first}, {last}]"
    named = [
        RecordError(index, _NO_KEY if timestamp is None else bounds.format(timestamp))
        for index, timestamp in found.named
    ]
    code = ErrorCode.INVALID_TIMESTAMP if found.timestamps else ErrorCode.INVALID_RECORD
    count = found.null_keys + found.timestamps
    shown = "; ".join(f"record {each.batch_index}: {each.message}" for each in named[:_SHOWN_MAX])
    more = f"; and {count - _SHOWN_MAX} more" if count > _SHOWN_MAX else ""
    problem = f"{count} of {header.records_count} records are refused. {shown}{more}"
    return RecordsRefusedError(code, problem, named)
