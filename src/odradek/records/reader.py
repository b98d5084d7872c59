"""From a batch to its records: decompress if need be, then decode lazily.

The limit on what a batch may unpack to is an argument everywhere, because only the caller knows
what it can afford. The checksum is verified by whoever first sees the bytes, not here.
"""

from collections.abc import Iterator

from odradek.records import compression
from odradek.records.batch import (
    CODEC_MASK,
    HEADER_BYTES,
    LOG_OVERHEAD,
    BatchHeader,
    iter_headers,
    verify_crc,
)
from odradek.records.compression import DECOMPRESSED_BYTES_MAX, Room
from odradek.records.implementation import iter_records, summarize_records
from odradek.records.record import Buffer, Record, RecordsSummary


def records_body(
    buffer: Buffer,
    header: BatchHeader,
    *,
    output_bytes_max: int = DECOMPRESSED_BYTES_MAX,
    room: Room | None = None,
) -> Buffer:
    """Return the batch's records as bytes: a view into ``buffer`` if they are not compressed.

    With ``room`` they are good only until it is used again.

    Raises:
        CorruptionError: They do not decompress, or to more than ``output_bytes_max``.
    """
    position = header.position
    end = position + LOG_OVERHEAD + header.batch_length
    packed = memoryview(buffer)[position + HEADER_BYTES : end]
    if header.records_count == 0:
        return packed[:0]  # as Kafka does: what an emptied batch still carries is not looked at
    if not header.attributes & CODEC_MASK:
        return packed
    return compression.decompress(
        header.codec, packed, output_bytes_max=output_bytes_max, room=room
    )


def read_records(
    buffer: Buffer, header: BatchHeader, *, output_bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> Iterator[Record]:
    """Iterate over the records of one batch. ``buffer`` must stay as it is meanwhile.

    Raises:
        CorruptionError: At once if the batch does not decompress, while iterating if a record is
            malformed. Records that came before the fault are sound in themselves.
    """
    return iter_records(
        records_body(buffer, header, output_bytes_max=output_bytes_max),
        header.records_count,
        header.base_offset,
        header.base_timestamp,
        header.log_append_time,
    )


def summarize(
    buffer: Buffer, header: BatchHeader, *, output_bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> RecordsSummary:
    """Check every record of a batch without keeping any: what a leader does before it appends.

    The timestamps are those the producer set, also where LOG_APPEND_TIME overrides them.
    """
    body = records_body(buffer, header, output_bytes_max=output_bytes_max)
    return summarize_records(body, header.records_count, header.base_timestamp)


def read_all(
    buffer: Buffer,
    *,
    partial_tail: bool = False,
    control: bool = False,
    check_crc: bool = True,
    output_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> Iterator[Record]:
    """Iterate over the records of every batch in ``buffer``, control records only on request."""
    for header in iter_headers(buffer, partial_tail=partial_tail):
        if check_crc:
            verify_crc(buffer, header)
        if control or not header.is_control:
            yield from read_records(buffer, header, output_bytes_max=output_bytes_max)
