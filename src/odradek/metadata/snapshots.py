"""Snapshots of the metadata log: their names, and what is in them (KIP-630).

A snapshot stands for all of the log before its end offset, so that the log itself can be cut::

    __cluster_metadata-0/<end offset, 20 digits>-<epoch of the last record, 10 digits>.checkpoint

It is a row of batches with offsets of its own from 0 on, all in the epoch of its name::

    control   SnapshotHeader; from kraft.version 1 on also KRaftVersion and KRaftVoters
    records   the image, as ``ClusterImage.to_records`` writes it
    control   SnapshotFooter

``bootstrap.checkpoint``, which formatting leaves in the log directory itself, has the same form and
holds the first records of a cluster. A snapshot named 0-0 was left by formatting too: it holds the
first voters and stands for no log at all.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple

from odradek.core.errors import CorruptionError
from odradek.metadata.record_versions import VersionedRecord
from odradek.protocol.generated.control_records import (
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from odradek.protocol.message import Message
from odradek.protocol.versioned import decode_metadata
from odradek.raft.messages import OffsetAndEpoch
from odradek.records import (
    BatchBuilder,
    BatchHeader,
    ControlRecordType,
    iter_headers,
    read_records,
    verify_crc,
)
from odradek.records.control import decode_control_key, encode_control_key
from odradek.records.record import Buffer

BOOTSTRAP_FILE: Final = "bootstrap.checkpoint"
SNAPSHOT_SUFFIX: Final = ".checkpoint"
PART_SUFFIX: Final = ".checkpoint.part"
DELETED_SUFFIX: Final = ".checkpoint.deleted"
BOOTSTRAP_SNAPSHOT: Final = OffsetAndEpoch(0, 0)
KRAFT_VERSION_WITH_VOTERS: Final = 1
"""From here on the voters are records, and not a config that all nodes must agree on (KIP-853)."""

BATCH_RECORDS_MAX: Final = 1024
BATCH_BYTES_TARGET: Final = 256 * 1024
_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_CONTROL_VERSION: Final = 0


def snapshot_name(snapshot_id: OffsetAndEpoch) -> str:
    return f"{snapshot_id.offset:020}-{snapshot_id.epoch:010}{SNAPSHOT_SUFFIX}"


def parse_snapshot_name(name: str) -> OffsetAndEpoch | None:
    """Return which snapshot a file is; None for ``.part``, ``.deleted`` and other files."""
    match = _NAME.fullmatch(name)
    return OffsetAndEpoch(int(match[1]), int(match[2])) if match else None


class QuorumRecords(NamedTuple):
    """What the control records of a log or a snapshot say of the quorum."""

    kraft_version: int = 0
    voters: VotersRecord | None = None

    def after(self, buffer: Buffer, header: BatchHeader) -> "QuorumRecords":
        """Return what holds after one more batch: this very object if it says nothing of it."""
        if not header.is_control:
            return self
        quorum = self
        for control_type, value in _control_records(buffer, header):
            if control_type is ControlRecordType.KRAFT_VERSION:
                version = KRaftVersionRecord.decode(value, _CONTROL_VERSION)
                quorum = quorum._replace(kraft_version=version.k_raft_version)
            elif control_type is ControlRecordType.KRAFT_VOTERS:
                quorum = quorum._replace(voters=VotersRecord.decode(value, _CONTROL_VERSION))
        return quorum

    def append_to(self, builder: BatchBuilder, now_ms: int) -> None:
        """Write these records; before ``KRAFT_VERSION_WITH_VOTERS`` there are none."""
        if self.kraft_version < KRAFT_VERSION_WITH_VOTERS:
            return
        version = KRaftVersionRecord(k_raft_version=self.kraft_version)
        append_control(builder, ControlRecordType.KRAFT_VERSION, version, now_ms)
        if self.voters is not None:
            append_control(builder, ControlRecordType.KRAFT_VOTERS, self.voters, now_ms)


def append_control(
    builder: BatchBuilder, control_type: ControlRecordType, message: Message, now_ms: int
) -> None:
    value = message.to_bytes(_CONTROL_VERSION)
    builder.append(now_ms, encode_control_key(control_type), value)


def snapshot_batches(
    records: Iterable[VersionedRecord],
    *,
    epoch: int,
    last_contained_log_timestamp_ms: int,
    now_ms: int,
    quorum: QuorumRecords,
) -> Iterator[bytearray]:
    """Return the batches of a snapshot, one at a time: an image may be large."""
    head = BatchBuilder(control=True, partition_leader_epoch=epoch)
    header = SnapshotHeaderRecord(last_contained_log_timestamp=last_contained_log_timestamp_ms)
    append_control(head, ControlRecordType.SNAPSHOT_HEADER, header, now_ms)
    quorum.append_to(head, now_ms)
    offset, left = head.next_offset, iter(records)
    yield head.build()
    while True:
        builder = BatchBuilder(base_offset=offset, partition_leader_epoch=epoch)
        for record in islice(left, BATCH_RECORDS_MAX):
            builder.append(now_ms, None, record.to_bytes())
            if builder.size >= BATCH_BYTES_TARGET:
                break
        if not builder.count:
            break
        offset = builder.next_offset
        yield builder.build()
    foot = BatchBuilder(control=True, base_offset=offset, partition_leader_epoch=epoch)
    append_control(foot, ControlRecordType.SNAPSHOT_FOOTER, SnapshotFooterRecord(), now_ms)
    yield foot.build()


class SnapshotReader:
    """The content of a snapshot file, found whole: header, footer, every checksum."""

    def __init__(self, data: Buffer) -> None:
        """Check all of it.

        Raises:
            CorruptionError: It is cut short, damaged, or no snapshot.
        """
        self._data = data
        self._batches = list(iter_headers(data))
        for header in self._batches:
            verify_crc(data, header)
        self.last_contained_log_timestamp_ms = read_snapshot_time(data)
        if ControlRecordType.SNAPSHOT_FOOTER not in self._types(self._batches[-1]):
            raise CorruptionError("a snapshot without a footer")
        quorum = QuorumRecords()
        for header in self._batches:
            quorum = quorum.after(data, header)
        self.quorum = quorum

    def records(self) -> Iterator[Message]:
        for header in self._batches:
            if not header.is_control:
                for record in read_records(self._data, header):
                    yield decode_metadata(record.value or b"")

    def _types(self, header: BatchHeader) -> list[ControlRecordType]:
        if not header.is_control:
            return []
        return [control_type for control_type, _ in _control_records(self._data, header)]


def read_snapshot_time(data: Buffer) -> int:
    """Return when the last record in a snapshot was appended to the log; reads its first batch.

    Raises:
        CorruptionError: It does not begin with the header of a snapshot.
    """
    first = next(iter_headers(data, partial_tail=True), None)
    if first is not None and first.is_control:
        for control_type, value in islice(_control_records(data, first), 1):
            if control_type is ControlRecordType.SNAPSHOT_HEADER:
                header = SnapshotHeaderRecord.decode(value, _CONTROL_VERSION)
                return header.last_contained_log_timestamp
    raise CorruptionError("a snapshot without a header")


def _control_records(
    buffer: Buffer, header: BatchHeader
) -> Iterator[tuple[ControlRecordType, bytes]]:
    for record in read_records(buffer, header):
        yield decode_control_key(record.key), record.value or b""
