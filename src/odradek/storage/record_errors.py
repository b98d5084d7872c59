"""Which records of a batch a leader refuses, and why: what a producer is told of each (KIP-467).

A batch is refused as a whole, but only for the records named here; without them it is welcome. As
in Kafka a record has one fault, the missing key before the timestamp, and one bad timestamp makes
the whole refusal INVALID_TIMESTAMP.

Records are walked through only here, that is when something is known to be wrong.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from odradek.core.errors import ApiError, ErrorCode
from odradek.records import BatchHeader, TimestampType, read_records
from odradek.records.record import NO_TIMESTAMP, Buffer
from odradek.storage.config import LogConfig

RECORD_ERRORS_MAX: Final = 10_000
"""How many records a refusal names. Kafka has no limit; here a producer that leaves out those named
is told the next ones, and a batch of empty records does not make a reply many times its size."""

_SHOWN_MAX: Final = 3
_NO_KEY: Final = "it has no key, and the topic is compacted"


class RecordError(NamedTuple):
    batch_index: int
    """Place in the batch, from 0."""
    message: str


class RecordsRefusedError(ApiError):
    """A batch is refused because of some of its records."""

    def __init__(self, code: ErrorCode, message: str, record_errors: Sequence[RecordError]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


def find_refusal(
    records: Buffer, header: BatchHeader, config: LogConfig, now_ms: int
) -> RecordsRefusedError | None:
    """Return why a batch cannot be taken; None if every one of its records can.

    Raises:
        CorruptionError: The records are not what they claim to be.
    """
    named: list[RecordError] = []
    count, code = 0, ErrorCode.INVALID_RECORD
    for error, each_code in _iter_errors(records, header, config, now_ms):
        count += 1
        if each_code is ErrorCode.INVALID_TIMESTAMP:
            code = each_code
        if len(named) < RECORD_ERRORS_MAX:
            named.append(error)
    if not named:
        return None
    shown = "; ".join(f"record {each.batch_index}: {each.message}" for each in named[:_SHOWN_MAX])
    more = f"; and {count - _SHOWN_MAX} more" if count > _SHOWN_MAX else ""
    problem = f"{count} of {header.records_count} records are refused. {shown}{more}"
    return RecordsRefusedError(code, problem, named)


def _iter_errors(
    records: Buffer, header: BatchHeader, config: LogConfig, now_ms: int
) -> Iterator[tuple[RecordError, ErrorCode]]:
    first = now_ms - config.message_timestamp_before_max_ms
    last = now_ms + config.message_timestamp_after_max_ms
    is_create_time = config.message_timestamp_type is TimestampType.CREATE_TIME
    is_set_by_producer = header.log_append_time is not None
    for index, record in enumerate(read_records(records, header)):
        timestamp = record.timestamp
        if config.compact and record.key is None:
            yield RecordError(index, _NO_KEY), ErrorCode.INVALID_RECORD
        elif is_set_by_producer:
            problem = "only the broker sets LogAppendTime"
            yield RecordError(index, problem), ErrorCode.INVALID_TIMESTAMP
        elif is_create_time and timestamp != NO_TIMESTAMP and not first <= timestamp <= last:
            problem = f"timestamp {timestamp} is not within [{first}, {last}]"
            yield RecordError(index, problem), ErrorCode.INVALID_TIMESTAMP
