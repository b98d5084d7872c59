"""Walks over what is in a log file, whatever its format: batches v2, messages v0 and v1.

A message of the old formats is shown as a batch of one offset: its own, which for a compressed
wrapper is that of the last message inside. That is all that finding, truncating and indexing need.
"""

import zlib
from collections.abc import Iterator
from struct import Struct
from typing import Final

from odradek.core.errors import CorruptionError
from odradek.core.ids import TopicPartition
from odradek.records import BatchHeader, is_partial, magic_at, peek_header, verify_crc
from odradek.records.batch import LOG_OVERHEAD, MAGIC, NO_PRODUCER_ID
from odradek.storage.disk import Buffer

_MESSAGE: Final = Struct(">qiIbb")  # offset, size, crc, magic, attributes
_TIMESTAMP: Final = Struct(">q")
_COVERED_POSITION: Final = 16  # what the checksum of a message covers starts with its magic
_SIZE_MIN: Final = {0: 14, 1: 22}


def iter_batches(buffer: Buffer, position: int = 0) -> Iterator[BatchHeader]:
    """Iterate over the headers from ``position`` on; a last batch that is cut short ends it.

    Raises:
        CorruptionError: A header makes no sense. Checksums are not verified: see ``check_batch``.
    """
    end = len(buffer)
    while position < end and not is_partial(buffer, position):
        header = peek_batch(buffer, position)
        yield header
        position += LOG_OVERHEAD + header.batch_length


def peek_batch(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Parse the header at ``position``; what follows it need not be in ``buffer``.

    Raises:
        CorruptionError: The header is cut short or makes no sense.
    """
    if magic_at(buffer, position) == MAGIC:
        return peek_header(buffer, position)
    return _message_header(buffer, position)


def check_batch(buffer: Buffer, header: BatchHeader) -> None:
    """Raise CorruptionError unless the batch or message has the checksum it says it has."""
    if header.magic == MAGIC:
        verify_crc(buffer, header)
        return
    covered = memoryview(buffer)[header.position + _COVERED_POSITION : header.end_position]
    if zlib.crc32(covered) != header.crc:
        raise CorruptionError(f"message at {header.position} fails its checksum")


def check_replica_batches(
    buffer: Buffer, partition: TopicPartition, *, next_offset: int, leader_epoch: int | None
) -> list[BatchHeader]:
    """Return the headers of what a follower got and may append from ``next_offset`` on.

    None from the first batch of an epoch after ``leader_epoch`` on.

    Raises:
        CorruptionError: A batch fails its checksum or does not follow on.
    """
    headers: list[BatchHeader] = []
    for header in iter_batches(buffer):
        if leader_epoch is not None and header.partition_leader_epoch > leader_epoch:
            break
        check_batch(buffer, header)
        if header.base_offset < next_offset:
            raise CorruptionError(
                f"{partition}: offset {header.base_offset} where {next_offset} is next"
            )
        next_offset = header.next_offset
        headers.append(header)
    return headers


def _message_header(buffer: Buffer, position: int) -> BatchHeader:
    if len(buffer) - position < _MESSAGE.size + _TIMESTAMP.size:
        raise CorruptionError(f"message at {position} is cut short")
    offset, size, crc, magic, attributes = _MESSAGE.unpack_from(buffer, position)
    if size < _SIZE_MIN.get(magic, 2**31):
        raise CorruptionError(f"message at {position} has magic {magic} and {size} bytes")
    timestamp = -1
    if magic == 1:
        (timestamp,) = _TIMESTAMP.unpack_from(buffer, position + _MESSAGE.size)
    return BatchHeader(
        base_offset=offset,
        batch_length=size,
        partition_leader_epoch=-1,
        magic=magic,
        crc=crc,
        attributes=attributes,
        last_offset_delta=0,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=-1,
        base_sequence=-1,
        records_count=1,
        position=position,
    )
