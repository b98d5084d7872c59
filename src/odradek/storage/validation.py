"""What a leader checks before it takes records, and what it may have to rewrite. Hot path.

Refusals are Kafka's: the same fault gets the same error code. In the order of checking::

    CORRUPT_MESSAGE (2)         the bytes are no batch, or the checksum is wrong
    INVALID_RECORD (87)         more than one batch; first offset not 0; not as many records as
                                offsets; from a client, a control batch or a producer id without
                                sequence; a record without key for a compacted log
    MESSAGE_TOO_LARGE (10)      the batch is over max.message.bytes
    RECORD_LIST_TOO_LARGE (18)  the batch does not fit into a segment
    INVALID_TIMESTAMP (32)      too far from now (message.timestamp.*.max.ms), or LOG_APPEND_TIME
                                set by a producer

Kafka walks through the records of every batch. Here that is done only where a rule needs it: keys
of compacted logs, a bound on how old a record may be, a codec the topic asks for. For all else the
header is enough, it is under the checksum, and the records stay unopened (ADR 5). ``max_timestamp``
is therefore believed. Where a record is at fault, ``record_errors`` finds which.
"""

from typing import Final, NamedTuple

from odradek.core.errors import ApiError, CorruptionError, ErrorCode
from odradek.records import (
    BatchBuilder,
    BatchHeader,
    CompressionType,
    TimestampType,
    magic_at,
    parse_header,
    read_records,
    set_max_timestamp,
    stamp,
    summarize,
    verify_crc,
)
from odradek.records.batch import (
    CODEC_MASK,
    CONTROL_FLAG,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    MAGIC,
    NO_PRODUCER_ID,
)
from odradek.records.legacy import convert_to_v2
from odradek.storage.config import LONG_MAX, LogConfig
from odradek.storage.producer_state import AppendOrigin
from odradek.storage.record_errors import find_refusal
from odradek.storage.scan import peek_batch

_CODECS: Final = {codec.name.lower(): codec for codec in CompressionType} | {
    "uncompressed": CompressionType.NONE
}
WritableBuffer = bytearray | memoryview


class ValidBatch(NamedTuple):
    """A batch that may be appended, with offsets and leader epoch still to be set."""

    batch: WritableBuffer
    header: BatchHeader


def validate(
    records: WritableBuffer, config: LogConfig, origin: AppendOrigin, now_ms: int
) -> ValidBatch:
    """Check ``records`` as a leader does and return the one batch to append.

    That is ``records`` itself, unless the topic wants another codec or the records have an old
    format.

    Raises:
        ApiError: With the code that tells the producer what is wrong.
    """
    try:
        header = _parse(records)
        if header.magic != MAGIC:
            records = _converted(records)
            header = parse_header(records)
        attributes, size = header.attributes, LOG_OVERHEAD + header.batch_length
        if len(records) != size:
            raise ApiError(ErrorCode.INVALID_RECORD, "more than one batch for one partition")
        if size > config.max_message_bytes or size > config.segment_bytes:
            raise _too_large(header, config)
        verify_crc(records, header)
        if origin is AppendOrigin.CLIENT:
            _check_client_rules(header)
        if attributes & CONTROL_FLAG:
            return ValidBatch(records, header)
        _check_records(records, header, config, now_ms)
        if config.compression_type != "producer":
            target = _CODECS[config.compression_type]
            if target != attributes & CODEC_MASK:
                return _recompressed(records, header, config, target)
    except CorruptionError as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    return ValidBatch(records, header)


def _parse(records: WritableBuffer) -> BatchHeader:
    try:
        return parse_header(records)
    except CorruptionError:
        # An old format is rare enough to be looked for only when the new one does not fit.
        if magic_at(records) < MAGIC:
            return peek_batch(records)
        raise


def _too_large(header: BatchHeader, config: LogConfig) -> ApiError:
    if header.size > config.max_message_bytes:
        problem = f"{header.size} bytes, max.message.bytes is {config.max_message_bytes}"
        return ApiError(ErrorCode.MESSAGE_TOO_LARGE, problem)
    problem = f"{header.size} bytes, segment.bytes is {config.segment_bytes}"
    return ApiError(ErrorCode.RECORD_LIST_TOO_LARGE, problem)


def _check_client_rules(header: BatchHeader) -> None:
    count = header.records_count
    if header.base_offset != 0:
        problem = f"the first offset of a produced batch is 0, not {header.base_offset}"
    elif count != header.last_offset_delta + 1 or count <= 0:
        problem = f"{count} records for {header.last_offset_delta + 1} offsets"
    elif header.attributes & CONTROL_FLAG:
        problem = "clients may not write control records"
    elif header.producer_id > NO_PRODUCER_ID and header.base_sequence < 0:
        problem = f"producer {header.producer_id} sends sequence {header.base_sequence}"
    else:
        return
    raise ApiError(ErrorCode.INVALID_RECORD, problem)


def _check_records(
    records: WritableBuffer, header: BatchHeader, config: LogConfig, now_ms: int
) -> None:
    if not _is_doubtful(records, header, config, now_ms):
        return
    refusal = find_refusal(records, header, config, now_ms)
    if refusal is not None:
        raise refusal
    if header.max_timestamp > now_ms + config.message_timestamp_after_max_ms:
        problem = f"max_timestamp {header.max_timestamp} is that of no record"
        raise ApiError(ErrorCode.INVALID_TIMESTAMP, problem)


def _is_doubtful(
    records: WritableBuffer, header: BatchHeader, config: LogConfig, now_ms: int
) -> bool:
    """Whether the records have to be looked at one by one."""
    if header.attributes & LOG_APPEND_TIME_FLAG:
        return True
    bounded_past = False
    if config.message_timestamp_type is TimestampType.CREATE_TIME:
        if header.max_timestamp - now_ms > config.message_timestamp_after_max_ms:
            return True
        bounded_past = config.message_timestamp_before_max_ms < LONG_MAX
    if not (config.compact or bounded_past):
        return False
    summary = summarize(records, header)
    if config.compact and summary.null_keys:
        return True
    # Also where the oldest has none (-1), for then another may be the oldest.
    return bounded_past and summary.min_timestamp < now_ms - config.message_timestamp_before_max_ms


def _recompressed(
    records: WritableBuffer, header: BatchHeader, config: LogConfig, codec: CompressionType
) -> ValidBatch:
    builder = BatchBuilder(
        codec=codec,
        level=_level(codec, config),
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
    )
    builder.append_records(read_records(records, header))
    rebuilt = builder.build()
    rebuilt_header = parse_header(rebuilt)
    if rebuilt_header.size > min(config.max_message_bytes, config.segment_bytes):
        raise _too_large(rebuilt_header, config)
    return ValidBatch(rebuilt, rebuilt_header)


def _level(codec: CompressionType, config: LogConfig) -> int | None:
    match codec:
        case CompressionType.GZIP:
            return config.compression_gzip_level
        case CompressionType.LZ4:
            return config.compression_lz4_level
        case CompressionType.ZSTD:
            return config.compression_zstd_level
        case _:
            return None


def _converted(records: WritableBuffer) -> bytearray:
    """Bring messages of an old format, which begin at any offset, to one batch from offset 0."""
    batches = convert_to_v2(records, base_offset=0)
    if len(batches) != 1:
        raise ApiError(ErrorCode.INVALID_RECORD, f"converted to {len(batches)} batches, not one")
    return batches[0]


def place(
    batch: WritableBuffer,
    header: BatchHeader,
    config: LogConfig,
    *,
    base_offset: int,
    leader_epoch: int,
    now_ms: int,
) -> int:
    """Give a valid batch its offsets, epoch and, where the topic says so, time; return that time.

    Without LogAppendTime the checksum is not touched, and the largest timestamp is returned.
    """
    stamp(batch, base_offset=base_offset, partition_leader_epoch=leader_epoch)
    if config.message_timestamp_type is TimestampType.CREATE_TIME:
        return header.max_timestamp
    set_max_timestamp(batch, header, TimestampType.LOG_APPEND_TIME, now_ms)
    return now_ms
