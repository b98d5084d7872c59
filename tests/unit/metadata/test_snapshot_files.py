"""The bytes of snapshots: names, header and footer, and what is no snapshot."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.core.errors import CorruptionError
from odradek.core.ids import Uuid
from odradek.metadata.record_versions import VersionedRecord
from odradek.metadata.snapshots import (
    BATCH_RECORDS_MAX,
    QuorumRecords,
    SnapshotReader,
    parse_snapshot_name,
    read_snapshot_time,
    snapshot_batches,
    snapshot_name,
)
from odradek.protocol.generated.control_records import VotersRecord, VotersRecordVoter
from odradek.protocol.generated.metadata_records import ConfigRecord, FeatureLevelRecord
from odradek.raft.messages import OffsetAndEpoch
from odradek.records import iter_headers

TIME_MS = 1_700_000_000_000
VOTER = VotersRecordVoter(voter_id=1, voter_directory_id=Uuid(b"0123456789abcdef"))
QUORUM = QuorumRecords(1, VotersRecord(voters=[VOTER]))


def features(count: int) -> list[VersionedRecord]:
    return [
        VersionedRecord(FeatureLevelRecord(name=f"feature-{i}", feature_level=1), 0)
        for i in range(count)
    ]


def make(records: list[VersionedRecord], quorum: QuorumRecords = QUORUM) -> bytes:
    batches = snapshot_batches(
        records,
        epoch=7,
        last_contained_log_timestamp_ms=TIME_MS - 1,
        now_ms=TIME_MS,
        quorum=quorum,
    )
    return b"".join(batches)


SMALL = make(features(2))


@pytest.mark.parametrize("count", [0, 1, BATCH_RECORDS_MAX, BATCH_RECORDS_MAX + 1])
def test_what_is_written_is_read(count: int) -> None:
    records = features(count)
    data = make(records)
    content = SnapshotReader(data)
    assert list(content.records()) == [record.message for record in records]
    assert content.quorum == QUORUM
    assert content.last_contained_log_timestamp_ms == read_snapshot_time(data) == TIME_MS - 1


def test_batches_follow_on_in_one_epoch_and_are_of_a_moderate_size() -> None:
    large = ConfigRecord(resource_type=2, resource_name="t", name="n", value="x" * 30_000)
    data = make(features(1500) + [VersionedRecord(large, 0)] * 20)
    headers = list(iter_headers(data))
    assert [header.is_control for header in headers] == [True, *[False] * 4, True]
    assert {header.partition_leader_epoch for header in headers} == {7}
    next_offset = 0
    for header in headers:
        assert header.base_offset == next_offset
        next_offset = header.next_offset
        assert header.batch_length < 300_000


def test_before_kraft_version_1_there_are_no_voters_in_it() -> None:
    data = make(features(1), QuorumRecords())
    assert next(iter_headers(data)).records_count == 1
    assert SnapshotReader(data).quorum == QuorumRecords()


def test_a_name_is_an_end_offset_and_an_epoch() -> None:
    name = "00000000000000000123-0000000004.checkpoint"
    assert snapshot_name(OffsetAndEpoch(123, 4)) == name
    assert parse_snapshot_name(name) == OffsetAndEpoch(123, 4)
    for other in (f"{name}.part", f"{name}.deleted", "bootstrap.checkpoint", f"x{name}", name[1:]):
        assert parse_snapshot_name(other) is None


def test_only_what_is_whole_is_a_snapshot() -> None:
    for size in range(len(SMALL)):
        with pytest.raises(CorruptionError):
            SnapshotReader(SMALL[:size])
    headers = list(iter_headers(SMALL))
    without_header = SMALL[headers[0].end_position :]
    with pytest.raises(CorruptionError, match="header"):
        SnapshotReader(without_header)


@given(position=st.integers(0, len(SMALL) - 1), bit=st.integers(0, 7))
def test_a_flipped_bit_is_found_or_changes_nothing(position: int, bit: int) -> None:
    data = bytearray(SMALL)
    data[position] ^= 1 << bit
    try:
        found = list(SnapshotReader(data).records())
    except CorruptionError:
        return
    # Base offset and epoch lie before what the checksum covers.
    assert found == [record.message for record in features(2)]
