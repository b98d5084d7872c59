"""Batches for tests of storage."""

from collections.abc import Sequence

from odradek.records import BatchBuilder, CompressionType, build_end_transaction_marker
from odradek.records.control import ControlRecordType, EndTransactionMarker

BASE_TIME_MS = 1_700_000_000_000


def make_batch(
    values: Sequence[bytes | None],
    *,
    keys: Sequence[bytes | None] | None = None,
    timestamp: int = BASE_TIME_MS,
    codec: CompressionType = CompressionType.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    builder = BatchBuilder(
        codec=codec,
        base_offset=base_offset,
        partition_leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
    )
    for index, value in enumerate(values):
        builder.append(timestamp + index, None if keys is None else keys[index], value)
    return builder.build()


def make_marker(
    producer_id: int,
    producer_epoch: int,
    *,
    commit: bool,
    coordinator_epoch: int = 0,
    timestamp: int = BASE_TIME_MS,
) -> bytearray:
    kind = ControlRecordType.COMMIT if commit else ControlRecordType.ABORT
    return build_end_transaction_marker(
        EndTransactionMarker(kind, coordinator_epoch),
        timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )
