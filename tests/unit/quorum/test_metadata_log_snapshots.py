"""When a metadata log writes snapshots, what it deletes for them, and how it starts from them."""

import errno

import pytest

from odradek.controller.feature_changes import bootstrap_records
from odradek.core.errors import CorruptionError
from odradek.core.ids import Uuid
from odradek.metadata import ClusterImage, VersionedRecord
from odradek.metadata.snapshots import (
    BOOTSTRAP_SNAPSHOT,
    QuorumRecords,
    SnapshotReader,
    snapshot_batches,
    snapshot_name,
)
from odradek.protocol.generated.control_records import VotersRecord, VotersRecordVoter
from odradek.protocol.generated.metadata_records import (
    BeginTransactionRecord,
    EndTransactionRecord,
    NoOpRecord,
)
from odradek.raft import OffsetAndEpoch
from odradek.records import iter_headers
from odradek.storage.log_directory import DirectoryRefusedError
from tests.unit.quorum.metadata_log_harness import (
    DIRECTORY_ID,
    FOLDER,
    HOUR_MS,
    START_MS,
    Metadata,
    topic_records,
)

DAY_MS = 24 * HOUR_MS


def voters_of(*voters: tuple[int, Uuid]) -> QuorumRecords:
    listed = [VotersRecordVoter(voter_id=i, voter_directory_id=d) for i, d in voters]
    return QuorumRecords(1, VotersRecord(voters=listed))


def put_snapshot(
    metadata: Metadata,
    snapshot_id: OffsetAndEpoch,
    image: ClusterImage | None = None,
    quorum: QuorumRecords | None = None,
) -> None:
    batches = snapshot_batches(
        (image or ClusterImage()).to_records(),
        epoch=snapshot_id.epoch,
        last_contained_log_timestamp_ms=START_MS,
        now_ms=START_MS,
        quorum=quorum or QuorumRecords(),
    )
    file = metadata.disk.open(FOLDER / snapshot_name(snapshot_id), create=True)
    file.write(0, list(batches))
    file.close()


# When.


def test_a_snapshot_is_written_when_enough_of_the_log_is_new() -> None:
    metadata = Metadata(max_record_bytes_between_snapshots=2_000, max_snapshot_interval_ms=0)
    metadata.open()
    while not metadata.threads.waiting:
        metadata.create_topic(f"t{len(metadata.image.topics)}")
    assert len(metadata.image.topics) > 3
    end_offset, epoch = metadata.log.log.log_end_offset, metadata.log.epoch
    metadata.create_topic("meanwhile")
    assert metadata.threads.work_off() == 1
    assert metadata.snapshots == [OffsetAndEpoch(end_offset, epoch)]
    content = SnapshotReader(metadata.disk.read(FOLDER / snapshot_name(metadata.snapshots[0])))
    restored = ClusterImage().apply(content.records())
    assert "meanwhile" not in restored.topics
    assert len(restored.topics) == len(metadata.image.topics) - 1


def test_a_snapshot_is_written_after_an_hour_if_there_is_anything_new() -> None:
    metadata = Metadata()
    log = metadata.open()
    assert log.upkeep.next_deadline_ms() == HOUR_MS
    metadata.clock.passed_ms = HOUR_MS - 1
    log.upkeep.tick()
    assert not metadata.threads.waiting
    metadata.clock.passed_ms = HOUR_MS
    log.upkeep.tick()
    assert metadata.threads.work_off() == 1
    assert len(metadata.snapshots) == 1
    assert log.upkeep.next_deadline_ms() is None
    metadata.clock.passed_ms = 3 * HOUR_MS
    log.upkeep.tick()
    assert not metadata.threads.waiting
    metadata.create_topic("late")  # the hour is long over: at once
    assert metadata.threads.work_off() == 1
    assert len(metadata.snapshots) == 2


def test_an_interval_of_zero_means_never_for_the_time_alone() -> None:
    metadata = Metadata(max_snapshot_interval_ms=0)
    log = metadata.open()
    metadata.clock.passed_ms = 100 * DAY_MS
    log.upkeep.tick()
    assert not metadata.threads.waiting
    assert log.upkeep.next_deadline_ms() is None


def test_a_transaction_holds_snapshots_back_until_it_ends() -> None:
    metadata = Metadata(max_record_bytes_between_snapshots=1_500)
    metadata.open()
    metadata.append([VersionedRecord(BeginTransactionRecord(name="t"), 0)])
    for number in range(10):
        metadata.create_topic(f"in-transaction-{number}")
    assert not metadata.threads.waiting
    metadata.append([VersionedRecord(EndTransactionRecord(), 0)])
    assert metadata.threads.work_off() == 1
    content = SnapshotReader(metadata.disk.read(FOLDER / snapshot_name(metadata.snapshots[0])))
    assert ClusterImage().apply(content.records()) == metadata.image
    assert len(metadata.image.topics) == 10


def test_a_full_disk_costs_a_snapshot_and_not_the_log() -> None:
    metadata = Metadata(max_record_bytes_between_snapshots=1)
    log = metadata.open()
    metadata.disk.fail("write", errno.ENOSPC, path="*.part")
    metadata.threads.work_off()
    assert metadata.snapshots == []
    assert not [name for name in metadata.disk.names(FOLDER) if name.endswith(".part")]
    assert log.upkeep.error is not None
    metadata.create_topic("goes-on")
    metadata.threads.work_off()
    assert len(metadata.snapshots) == 1
    assert log.upkeep.error is None


# What goes.


def test_old_snapshots_and_segments_go_when_there_is_too_much() -> None:
    metadata = Metadata(
        max_record_bytes_between_snapshots=300, segment_bytes=400, max_retention_bytes=3_000
    )
    log = metadata.open()
    for number in range(30):
        metadata.create_topic(f"topic-{number}")
        metadata.threads.work_off()
    # The newest snapshot alone may be larger than that; with the log behind it it stays.
    assert log.log.log_start_offset == metadata.snapshots[0].offset > 0
    assert metadata.segments[0] <= metadata.snapshots[0].offset < metadata.segments[0] + 10
    assert len(metadata.snapshots) < 5
    assert [name for name in metadata.disk.names(FOLDER) if name.endswith(".deleted")]
    metadata.clock.passed_ms += 60_000
    log.upkeep.tick()
    assert metadata.threads.work_off() >= 1
    assert not [name for name in metadata.disk.names(FOLDER) if name.endswith(".deleted")]
    metadata.disk.kill()
    image = metadata.image
    metadata.open()
    assert metadata.image == image


def test_old_snapshots_go_by_the_time_of_what_they_hold() -> None:
    metadata = Metadata(max_snapshot_interval_ms=DAY_MS)
    log = metadata.open()
    for day in range(1, 12):
        metadata.clock.passed_ms = day * DAY_MS
        metadata.create_topic(f"day-{day}")
        metadata.threads.work_off()
    # Of a week ago, and the days since; today's is there whatever happens.
    assert len(metadata.snapshots) == 8
    metadata.clock.passed_ms = 100 * DAY_MS
    log.upkeep.tick()
    assert len(metadata.snapshots) == 1


def test_without_limits_everything_stays() -> None:
    metadata = Metadata(
        max_record_bytes_between_snapshots=1, max_retention_bytes=-1, max_retention_ms=-1
    )
    log = metadata.open()
    for number in range(5):
        metadata.create_topic(f"t{number}")
        metadata.threads.work_off()
    metadata.clock.passed_ms = 1000 * DAY_MS
    log.upkeep.tick()
    assert len(metadata.snapshots) == 6
    assert log.log.log_start_offset == 0


def test_the_log_may_be_empty_behind_its_snapshot() -> None:
    metadata = Metadata(max_record_bytes_between_snapshots=1, max_retention_bytes=1)
    log = metadata.open()
    for name in ("a", "b"):
        metadata.create_topic(name)
        metadata.threads.work_off()
    assert log.log.log_start_offset == log.log.log_end_offset == metadata.snapshots[-1].offset
    assert log.log.segments.bytes == 0
    epoch, image, end_offset = log.epoch, metadata.image, log.log.log_end_offset
    for restart in (1, 2):
        metadata.disk.kill()
        metadata.disk.remove(FOLDER / "quorum-state")  # even so no epoch comes twice
        again = metadata.open()
        assert again.epoch == epoch + restart
        assert metadata.image == image
        assert again.log.log_end_offset == end_offset + restart  # a LeaderChange each


def test_segments_roll_by_time() -> None:
    metadata = Metadata(segment_ms=1_000)
    metadata.open()
    metadata.create_topic("a")
    assert len(metadata.segments) == 1
    metadata.clock.passed_ms = 1_001
    metadata.create_topic("b")
    assert len(metadata.segments) == 2


# Starting.


def test_a_start_counts_what_is_behind_the_snapshot() -> None:
    metadata = Metadata(max_record_bytes_between_snapshots=2_500, max_snapshot_interval_ms=0)
    metadata.open()
    while sum(each.size for each in metadata.log.log.segments) < 2_000:
        metadata.create_topic(f"t{len(metadata.image.topics)}")
    metadata.disk.kill()
    metadata.open()
    while not metadata.threads.waiting:
        metadata.create_topic(f"t{len(metadata.image.topics)}")
    assert sum(each.size for each in metadata.log.log.segments) < 3_000


def test_half_a_snapshot_is_removed() -> None:
    metadata = Metadata()
    metadata.open()
    metadata.create_topic("a")
    for name in ("0-0-1.checkpoint.part", f"{snapshot_name(BOOTSTRAP_SNAPSHOT)}.deleted"):
        metadata.disk.open(FOLDER / name, create=True).close()
    metadata.disk.kill()
    metadata.open()
    left = [name for name in metadata.disk.names(FOLDER) if "checkpoint." in name]
    assert left == []
    assert set(metadata.image.topics) == {"a"}


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty"])
def test_a_damaged_snapshot_is_passed_over_while_the_log_reaches_back(damage: str) -> None:
    metadata = Metadata(max_record_bytes_between_snapshots=1)
    metadata.open()
    for name in ("a", "b"):
        metadata.create_topic(name)
        metadata.threads.work_off()
    image, newest = metadata.image, metadata.snapshots[-1]
    path = FOLDER / snapshot_name(newest)
    metadata.disk.kill()
    if damage == "flipped":
        metadata.disk.flip_bit(path, 200)
    else:
        # Cut at a batch border too: what is missing then is the footer.
        *_, last = iter_headers(metadata.disk.read(path))
        metadata.disk.open(path).truncate(last.position if damage == "cut" else 0)
    metadata.open()
    assert metadata.image == image
    assert newest not in metadata.snapshots


def test_a_log_that_begins_behind_its_snapshots_is_refused() -> None:
    metadata = Metadata(max_record_bytes_between_snapshots=1, max_retention_bytes=1)
    metadata.open()
    for name in ("a", "b"):
        metadata.create_topic(name)
        metadata.threads.work_off()
    metadata.disk.kill()
    (newest,) = metadata.snapshots
    path = FOLDER / snapshot_name(newest)
    metadata.disk.flip_bit(path, 100)
    with pytest.raises(CorruptionError, match=f"starts at {newest.offset}, so a snapshot"):
        metadata.open()
    assert metadata.disk.exists(path)  # nothing is removed that somebody might mend
    metadata.disk.remove(path)
    with pytest.raises(CorruptionError, match="there is none"):
        metadata.open()


def test_a_snapshot_ahead_of_the_log_replaces_it() -> None:
    metadata = Metadata()
    metadata.open()
    metadata.create_topic("old")
    image = metadata.image.apply(record.message for record in topic_records("fetched"))
    epoch = metadata.log.epoch + 5
    metadata.disk.kill()
    put_snapshot(metadata, OffsetAndEpoch(1_000, epoch), image)
    log = metadata.open()
    assert metadata.image == image
    assert log.log.log_start_offset == 1_000
    assert log.epoch == epoch + 1
    metadata.create_topic("new")
    metadata.disk.kill()
    metadata.open()
    assert set(metadata.image.topics) == {"old", "fetched", "new"}


def test_a_log_that_parted_from_its_snapshot_is_given_up() -> None:
    """A follower that crashed after it had fetched a snapshot, with records nobody committed."""
    metadata = Metadata()
    metadata.open()
    for number in range(5):
        metadata.create_topic(f"lost-{number}")
    epoch = metadata.log.epoch + 1
    fetched = ClusterImage().apply(record.message for record in bootstrap_records())
    metadata.disk.kill()
    put_snapshot(metadata, OffsetAndEpoch(3, epoch), fetched)
    log = metadata.open()
    assert metadata.image == fetched
    assert log.log.log_start_offset == 3


def test_a_snapshot_of_another_log_is_refused() -> None:
    metadata = Metadata()
    metadata.open()
    metadata.disk.kill()
    metadata.open()
    metadata.disk.kill()
    put_snapshot(metadata, OffsetAndEpoch(1_000, 1))
    with pytest.raises(CorruptionError, match="not of this log"):
        metadata.open()


# Voters.


def test_voters_of_the_first_snapshot_come_into_the_log_once_and_into_snapshots() -> None:
    metadata = Metadata(max_record_bytes_between_snapshots=1)
    quorum = voters_of((1, DIRECTORY_ID))
    put_snapshot(metadata, BOOTSTRAP_SNAPSHOT, quorum=quorum)
    metadata.open()
    metadata.threads.work_off()
    content = SnapshotReader(metadata.disk.read(FOLDER / snapshot_name(metadata.snapshots[-1])))
    assert content.quorum == quorum
    metadata.disk.kill()
    metadata.open()
    data = metadata.disk.read(FOLDER / f"{0:020}.log")
    changes = [each for each in iter_headers(data, partial_tail=True) if each.is_control]
    assert [each.records_count for each in changes] == [3, 1]


@pytest.mark.parametrize(
    "voters",
    [[(2, DIRECTORY_ID)], [(1, Uuid(b"another one's id"))], [(1, DIRECTORY_ID), (2, DIRECTORY_ID)]],
    ids=["another node", "another disk", "two"],
)
def test_a_quorum_that_is_not_this_node_alone_is_refused(voters: list[tuple[int, Uuid]]) -> None:
    metadata = Metadata()
    put_snapshot(metadata, BOOTSTRAP_SNAPSHOT, quorum=voters_of(*voters))
    with pytest.raises(DirectoryRefusedError, match="quorum"):
        metadata.open()


def test_the_image_of_a_snapshot_is_announced_once() -> None:
    metadata = Metadata(max_record_bytes_between_snapshots=1)
    metadata.open()
    for number in range(10):
        metadata.create_topic(f"t{number}")
        metadata.threads.work_off()
    metadata.disk.kill()
    metadata.updates = 0
    metadata.open()
    assert metadata.updates == 1
    metadata.append([VersionedRecord(NoOpRecord(), 0)])
    assert metadata.updates == 1
