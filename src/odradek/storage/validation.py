"""What a leader checks before it takes records, and what it may have to rewrite. Hot path.

Refusals are Kafka's: the same fault gets the same error code. In the order of checking::

    CORRUPT_MESSAGE (2)         the bytes are no batch, or the checksum is wrong
    INVALID_RECORD (87)         an old format; more than one batch; first offset not 0; not as many
                                records as offsets; from a client, a control batch or a producer id
                                without sequence; a record without key for a compacted log
    MESSAGE_TOO_LARGE (10)      the batch is over max.message.bytes
    RECORD_LIST_TOO_LARGE (18)  the batch does not fit into a segment
    INVALID_TIMESTAMP (32)      too far from now (message.timestamp.*.max.ms), or LOG_APPEND_TIME
                                set by a producer

    and those of ``opening``    about the records themselves

As in Kafka the records of every batch from a client are walked through, unpacked if need be: a
batch that no reader gets past would block its partition for all of them (ADR 5). What the broker
itself writes is believed. Where a record is at fault, ``record_errors`` finds which.
"""

from contextlib import suppress
from typing import Final, TypeAlias

from odradek.core.errors import ApiError, CorruptionError, ErrorCode
from odradek.records import (
    BatchHeader,
    CompressionType,
    TimestampType,
    magic_at,
    parse_header,
    records_body,
    set_max_timestamp,
    stamp,
    verify_crc,
)
from odradek.records.batch import (
    CODEC_MASK,
    CONTROL_FLAG,
    HEADER_BYTES,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    MAGIC,
    NO_PRODUCER_ID,
)
from odradek.records.builder import repacked_batch
from odradek.records.record import NO_TIMESTAMP, Buffer, RecordsSummary
from odradek.storage.config import LONG_MAX, LogConfig
from odradek.storage.opening import Budget, OpeningDeferredError, check_body, open_body
from odradek.storage.producer_state import AppendOrigin
from odradek.storage.record_errors import find_refusal

PRODUCER: Final = "producer"
"""``compression.type``: batches stay as their producers packed them."""
_CODECS: Final = {codec.name.lower(): codec for codec in CompressionType} | {
    "uncompressed": CompressionType.NONE
}
WritableBuffer = bytearray | memoryview


ValidBatch: TypeAlias = tuple[WritableBuffer, BatchHeader]
"""A batch that may be appended, with offsets and leader epoch still to be set."""


def validate(
    records: WritableBuffer,
    config: LogConfig,
    origin: AppendOrigin,
    now_ms: int,
    budget: Budget | None = None,
) -> ValidBatch:
    """Check ``records`` as a leader does and return the one batch to append.

    That is ``records`` itself, unless the topic wants another codec. Its largest timestamp is put
    right, as Kafka does, if it is that of no record.

    Raises:
        ApiError: With the code that tells the producer what is wrong.
        OpeningDeferredError: The ``budget`` does not allow for it.
    """
    try:
        header = parse_header(records)
        size = LOG_OVERHEAD + header.batch_length
        if len(records) != size:
            raise ApiError(ErrorCode.INVALID_RECORD, "more than one batch for one partition")
        if size > config.max_message_bytes or size > config.segment_bytes:
            raise _too_large(header, config)
        verify_crc(records, header)
    except CorruptionError as error:
        raise _corrupt(records, error) from error
    if origin is AppendOrigin.CLIENT:
        _check_client_rules(header)
        return _validate_records(records, header, config, now_ms, budget)
    if config.compression_type == PRODUCER or header.attributes & CONTROL_FLAG:
        return records, header
    codec = _CODECS[config.compression_type]
    if codec == header.attributes & CODEC_MASK:
        return records, header
    return _repacked(records_body(records, header), header, config, codec)


def _validate_records(
    records: WritableBuffer,
    header: BatchHeader,
    config: LogConfig,
    now_ms: int,
    budget: Budget | None,
) -> ValidBatch:
    codec = target = header.attributes & CODEC_MASK
    if config.compression_type != PRODUCER:
        target = _CODECS[config.compression_type]
        if target != codec and budget is not None:
            raise OpeningDeferredError  # packing takes ten times what unpacking does, and more
    if codec:
        body = open_body(records, header, config, budget)
    else:
        body = memoryview(records)[HEADER_BYTES:]
    summary = check_body(body, header)
    if _is_doubtful(summary, header, config, now_ms):
        refusal = find_refusal(body, header, config, now_ms)
        if refusal is not None:
            raise refusal
    max_timestamp = summary.max_timestamp
    if max_timestamp < NO_TIMESTAMP:
        max_timestamp = NO_TIMESTAMP
    if max_timestamp != header.max_timestamp:
        set_max_timestamp(records, header, TimestampType.CREATE_TIME, max_timestamp)
        header = parse_header(records)
    if target != codec:
        return _repacked(body, header, config, target)
    return records, header


def _corrupt(records: WritableBuffer, error: CorruptionError) -> ApiError:
    """Return what to say of a batch that is none."""
    # An old format is rare enough to be looked for only when the new one does not fit.
    with suppress(CorruptionError):
        if magic_at(records) < MAGIC:
            problem = "records of a format before v2; use a newer client"
            return ApiError(ErrorCode.INVALID_RECORD, problem)
    return ApiError(ErrorCode.CORRUPT_MESSAGE, str(error))


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


def _is_doubtful(
    summary: RecordsSummary, header: BatchHeader, config: LogConfig, now_ms: int
) -> bool:
    """Whether the records have to be looked at one by one."""
    if header.attributes & LOG_APPEND_TIME_FLAG or (config.compact and summary.null_keys):
        return True
    if config.message_timestamp_type is not TimestampType.CREATE_TIME:
        return False
    if summary.max_timestamp > now_ms + config.message_timestamp_after_max_ms:
        return True
    # Also where the oldest has none (-1), for then another may be the oldest.
    before_max_ms = config.message_timestamp_before_max_ms
    return before_max_ms < LONG_MAX and summary.min_timestamp < now_ms - before_max_ms


def _repacked(body: Buffer, header: BatchHeader, config: LogConfig, codec: int) -> ValidBatch:
    """Pack records anew, as they are: their offsets and their base are the same."""
    target = CompressionType(codec)
    rebuilt = repacked_batch(body, header, target, _level(target, config))
    rebuilt_header = parse_header(rebuilt)
    if rebuilt_header.size > min(config.max_message_bytes, config.segment_bytes):
        raise _too_large(rebuilt_header, config)
    return rebuilt, rebuilt_header


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
