"""``.txnindex`` files and producer snapshots (``.snapshot``)."""

from collections.abc import Iterator
from typing import Final

from crc32c import crc32c

from odradek.core.errors import CorruptionError
from odradek.protocol.generated.producer_snapshot import AbortedTxn
from odradek.protocol.versioned import decode_versioned
from odradek.storage.dump.dumped_file import DumpedFile
from odradek.storage.dump.java_text import optional_long
from odradek.storage.dump.read_only import ReadableFile, read_exactly
from odradek.storage.producer_snapshot import VERSION, SnapshotEntry, decode_snapshot

_TRANSACTION_BYTES: Final = 34
_SEQUENCE_COUNT: Final = 2**31
_CRC_POSITION: Final = 2
_ENTRIES_POSITION: Final = 6


def transaction_index_lines(name: DumpedFile, file: ReadableFile) -> Iterator[str]:
    """Dump the aborted transactions of a segment; bytes that are no whole entry are left out.

    Raises:
        CorruptionError: An entry has a version that nobody knows.
    """
    name.base_offset()
    for position in range(0, file.size - _TRANSACTION_BYTES + 1, _TRANSACTION_BYTES):
        entry = decode_versioned(AbortedTxn, read_exactly(file, position, _TRANSACTION_BYTES))
        yield (
            f"version: 0 producerId: {entry.producer_id} firstOffset: {entry.first_offset} "
            f"lastOffset: {entry.last_offset} lastStableOffset: {entry.last_stable_offset}"
        )


def producer_snapshot_lines(file: ReadableFile) -> Iterator[str]:
    """Dump a snapshot of producer state.

    Raises:
        CorruptionError: It is damaged; a broker would drop it and use the one before.
    """
    for entry in _read_snapshot(bytes(file.read(0, file.size))):
        open_at = entry.current_txn_first_offset
        text = (
            f"producerId: {entry.producer_id} producerEpoch: {entry.producer_epoch} "
            f"coordinatorEpoch: {entry.coordinator_epoch} "
            f"currentTxnFirstOffset: {optional_long(open_at if open_at >= 0 else None)} "
            f"lastTimestamp: {entry.timestamp}"
        )
        if entry.last_offset >= 0:
            first_sequence = (entry.last_sequence - entry.offset_delta) % _SEQUENCE_COUNT
            text += (
                f" firstSequence: {first_sequence} lastSequence: {entry.last_sequence} "
                f"lastOffset: {entry.last_offset} offsetDelta: {entry.offset_delta} "
                f"timestamp: {entry.timestamp}"
            )
        yield text


def _read_snapshot(data: bytes) -> list[SnapshotEntry]:
    """As ``decode_snapshot``, with the complaints in Kafka's words."""
    try:
        return decode_snapshot(data)
    except CorruptionError as error:
        problem = str(error)
    version = int.from_bytes(data[:_CRC_POSITION], "big", signed=True)
    if len(data) >= _CRC_POSITION and version != VERSION:
        problem = f"Snapshot contained an unknown file version {version}"
    elif "checksum" in problem:
        crc = int.from_bytes(data[_CRC_POSITION:_ENTRIES_POSITION], "big")
        raise CorruptionError(
            f"Snapshot is corrupt (CRC is no longer valid). Stored crc: {crc}. "
            f"Computed crc: {crc32c(data[_ENTRIES_POSITION:])}"
        )
    raise CorruptionError(f"Snapshot failed schema validation: {problem}")
