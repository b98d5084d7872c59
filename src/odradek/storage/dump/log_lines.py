"""``.log`` files and metadata snapshots: a line for each batch, on demand one for each record."""

from collections.abc import Iterator
from typing import Final

from odradek.core.errors import CorruptionError
from odradek.records import BatchHeader
from odradek.records.batch import MAGIC, NO_SEQUENCE, TimestampType
from odradek.records.compression import CompressionType
from odradek.storage.dump.batches import FoundBatch, iter_batches
from odradek.storage.dump.control import control_text
from odradek.storage.dump.dumped_file import DumpedFile
from odradek.storage.dump.findings import Findings
from odradek.storage.dump.java_text import java_bool, optional_long, text_of_header_key
from odradek.storage.dump.legacy_messages import FoundMessage
from odradek.storage.dump.options import BYTES_MAX, DumpOptions
from odradek.storage.dump.read_only import ReadableFile

BOOTSTRAP_NAME: Final = "bootstrap.checkpoint"
_TIMESTAMP_TYPES: Final = {
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}


def log_title(name: DumpedFile) -> str:
    """Return what the name of the file says; CorruptionError if that is nothing."""
    if name.suffix == ".log":
        return f"Log starting offset: {name.base_offset()}"
    if name.name == BOOTSTRAP_NAME:
        return "KRaft bootstrap snapshot"
    offset, epoch = name.checkpoint_id()
    return f"Snapshot end offset: {offset}, epoch: {epoch}"


def log_lines(
    name: DumpedFile, file: ReadableFile, options: DumpOptions, findings: Findings
) -> Iterator[str]:
    """Dump a log file or a metadata snapshot; gaps between offsets are noted in ``findings``.

    Raises:
        CorruptionError: Batches or records that nothing can be said about.
    """
    end = min(file.size, options.bytes_max)
    valid, previous = 0, -1
    for batch in iter_batches(file, 0, end, name.text):
        yield _batch_text(batch)
        if options.is_deep:
            for message in batch.messages():
                offset = message.record.offset
                if offset != previous + 1:
                    findings.gap(name.absolute, previous, offset)
                previous = offset
                yield _record_text(batch.header, message, options)
        valid = batch.header.end_position
    if end > valid and options.bytes_max == BYTES_MAX:
        yield f"Found {end - valid} invalid bytes at the end of {name.name}"


def _batch_text(batch: FoundBatch) -> str:
    header = batch.header
    if batch.is_legacy:
        who = f"offset: {header.last_offset}"
    else:
        who = (
            f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} "
            f"count: {header.records_count} baseSequence: {header.base_sequence} "
            f"lastSequence: {_last_sequence(header)} producerId: {header.producer_id} "
            f"producerEpoch: {header.producer_epoch} "
            f"partitionLeaderEpoch: {header.partition_leader_epoch} "
            f"isTransactional: {java_bool(header.is_transactional)} "
            f"isControl: {java_bool(header.is_control)} "
            f"deleteHorizonMs: {optional_long(header.delete_horizon_ms)}"
        )
    return (
        f"{who} position: {header.position} {_timestamp_type(header)}: {header.max_timestamp} "
        f"size: {header.size} magic: {header.magic} compresscodec: {_codec_name(header)} "
        f"crc: {header.crc} isvalid: {java_bool(batch.is_valid())}"
    )


def _last_sequence(header: BatchHeader) -> int:
    """As ``BatchHeader.last_sequence``, but what is negative only by damage is shown as it is."""
    if header.base_sequence < NO_SEQUENCE:
        return header.base_sequence + header.last_offset_delta
    return header.last_sequence


def _record_text(header: BatchHeader, message: FoundMessage, options: DumpOptions) -> str:
    record = message.record
    is_control = header.magic >= MAGIC and header.is_control
    text, indent = "", "| "
    if not options.skip_record_metadata:
        text = f"| {_metadata_text(header, message)}"
        if is_control:
            text += control_text(record)
        indent = " "
    if options.print_data_log and not is_control:
        key, payload = options.decoder.texts(record)
        if key is not None:
            text += f"{indent}key: {key}"
            indent = " "
        if payload is not None:
            text += f"{indent}payload: {payload}"
    return text


def _metadata_text(header: BatchHeader, message: FoundMessage) -> str:
    record = message.record
    text = (
        f"offset: {record.offset} {_timestamp_type(header)}: {record.timestamp} "
        f"keySize: {_size(record.key)} valueSize: {_size(record.value)}"
    )
    if header.magic < MAGIC:
        return f"{text} isValid: {java_bool(message.is_valid)} crc: {message.crc}"
    keys = ",".join(text_of_header_key(key) for key, _ in record.headers)
    return f"{text} sequence: {message.sequence} headerKeys: [{keys}]"


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _timestamp_type(header: BatchHeader) -> str:
    return "NoTimestampType" if header.magic == 0 else _TIMESTAMP_TYPES[header.timestamp_type]


def _codec_name(header: BatchHeader) -> str:
    try:
        return CompressionType(header.codec).name.lower()
    except ValueError:
        raise CorruptionError(f"Unknown compression type id: {header.codec}") from None
