"""The batches of a log file as their headers describe them, whether that is true or not.

A dump must show damaged batches, so nothing here asks a header to make sense beyond what is needed
to find the next one. ``storage.scan`` is the walk for those who want to trust what they find.
"""

from collections.abc import Iterator

from odradek.core.errors import CorruptionError
from odradek.records import BatchHeader, read_records
from odradek.records.batch import (
    HEADER,
    HEADER_BYTES,
    LENGTH_MIN,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    compute_crc,
)
from odradek.storage.dump.legacy_messages import FoundMessage, read_messages
from odradek.storage.dump.read_only import ReadableFile, read_exactly
from odradek.storage.scan import check_batch, peek_batch

_SEQUENCE_COUNT = 2**31


class FoundBatch:
    """A batch of a log file; its bytes are read once, when they are first needed."""

    __slots__ = ("_data", "_file", "header")

    def __init__(self, file: ReadableFile, header: BatchHeader) -> None:
        self.header = header
        self._file = file
        self._data: bytes | None = None

    @property
    def is_legacy(self) -> bool:
        return self.header.magic < MAGIC

    def is_valid(self) -> bool:
        """Whether the batch has the checksum that it says it has."""
        header = self._header_in_data
        if not self.is_legacy:
            return header.size >= HEADER_BYTES and compute_crc(self._bytes(), header) == header.crc
        try:
            check_batch(self._bytes(), header)
        except CorruptionError:
            return False
        return True

    def messages(self) -> Iterator[FoundMessage]:
        """Iterate over the records, checksum or not.

        Raises:
            CorruptionError: They cannot be decompressed or are malformed.
        """
        header, data = self._header_in_data, self._bytes()
        if self.is_legacy:
            yield from read_messages(data)
            return
        base_offset, base_sequence = header.base_offset, header.base_sequence
        for record in read_records(data, header):
            sequence = -1
            if base_sequence >= 0:
                sequence = (base_sequence + record.offset - base_offset) % _SEQUENCE_COUNT
            yield FoundMessage(record, sequence=sequence)

    @property
    def _header_in_data(self) -> BatchHeader:
        return self.header._replace(position=0)

    def _bytes(self) -> bytes:
        if self._data is None:
            self._data = read_exactly(self._file, self.header.position, self.header.size)
        return self._data


def iter_batches(file: ReadableFile, position: int, end: int, name: str) -> Iterator[FoundBatch]:
    """Iterate from ``position`` on, until what is left before ``end`` is no whole batch.

    Raises:
        CorruptionError: A batch says that it is shorter than any can be, or has no sound header.
    """
    while position < end - MAGIC_POSITION - 1:
        head = read_exactly(file, position, MAGIC_POSITION + 1)
        length = int.from_bytes(head[8:LOG_OVERHEAD], "big", signed=True)
        if length < LENGTH_MIN:
            raise CorruptionError(
                f"Found record size {length} smaller than minimum record overhead "
                f"({LENGTH_MIN}) in file {name}."
            )
        if position > end - LOG_OVERHEAD - length:
            return
        yield FoundBatch(file, _header(file, position))
        position += LOG_OVERHEAD + length


def _header(file: ReadableFile, position: int) -> BatchHeader:
    head = bytes(file.read(position, HEADER_BYTES))
    magic = int.from_bytes(head[MAGIC_POSITION : MAGIC_POSITION + 1], "big", signed=True)
    if magic < MAGIC:
        return peek_batch(head)._replace(position=position)
    if len(head) < HEADER_BYTES:
        raise CorruptionError(f"batch header at {position} is cut short")
    return BatchHeader._make((*HEADER.unpack(head), position))
