"""A member that is behind the leader's log gets a snapshot, and goes on behind it."""

import errno
import logging
from collections.abc import Callable, Generator

import pytest

from odradek.core.errors import ErrorCode
from odradek.core.event import Event
from odradek.metadata import VersionedRecord
from odradek.metadata.snapshots import parse_snapshot_name
from odradek.protocol.generated.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RequestPartitionSnapshot,
    RequestTopicSnapshot,
    SnapshotId,
)
from odradek.protocol.generated.metadata_records import RemoveTopicRecord
from odradek.protocol.message import Message
from odradek.quorum.metadata_snapshots import DOWNLOAD_LEASE_MS
from odradek.quorum.metadata_upkeep import MetadataLogConfig
from odradek.raft import OffsetAndEpoch
from tests.unit.quorum.quorum_members import FOLDER, Member, QuorumCluster

OFTEN = MetadataLogConfig(
    segment_bytes=2_000,
    segment_index_bytes=960,
    max_record_bytes_between_snapshots=1_500,
    max_snapshot_interval_ms=0,
    max_retention_bytes=4_000,
)
"""Snapshots all the time, and little of the log behind them."""


def snapshots_of(member: Member) -> list[OffsetAndEpoch]:
    return sorted(filter(None, map(parse_snapshot_name, member.disk.names(FOLDER))))


def parts_of(member: Member) -> list[str]:
    return [name for name in member.disk.names(FOLDER) if name.endswith(".part")]


def fill(cluster: QuorumCluster, leader: Member, topics: int, prefix: str = "t") -> None:
    for number in range(topics):
        cluster.wait_loaded(leader.create_topic(f"{prefix}{number}"))
        leader.quorum.upkeep.tick()
    cluster.run_until(lambda: leader.quorum.log.log_start_offset > 0)


def left_behind(
    seed: int, *, observers: int = 0, by_log: bool = False
) -> tuple[QuorumCluster, Member, Member]:
    """Return a cluster whose last member was down while the leader's log moved on."""
    cluster = QuorumCluster(seed, observers=observers, by_log=by_log, log=OFTEN)
    leader = cluster.begin()
    cluster.wait_loaded(leader.create_topic("gone later"))
    behind = [each for each in cluster.up() if each is not leader][-1]
    behind.kill()
    topic_id = leader.quorum.image.topics["gone later"].topic_id
    cluster.wait_loaded(leader.append([VersionedRecord(RemoveTopicRecord(topic_id=topic_id), 0)]))
    fill(cluster, leader, 40)
    assert behind.quorum.log_end_offset < leader.quorum.log.log_start_offset
    return cluster, leader, behind


@pytest.mark.parametrize("by_log", [False, True], ids=["static", "by log"])
@pytest.mark.parametrize("observers", [0, 1], ids=["voter", "observer"])
def test_one_that_is_behind_the_log_installs_a_snapshot(observers: int, by_log: bool) -> None:
    cluster, leader, behind = left_behind(1, observers=observers, by_log=by_log)
    before = behind.quorum.image
    behind.start()
    behind.updates.clear()
    cluster.wait_loaded(leader.quorum.log_end_offset)
    assert behind.topics == {f"t{number}" for number in range(40)}
    assert behind.quorum.log.log_start_offset > 0
    assert parts_of(behind) == []
    assert behind.quorum.voter_ids == (1, 2, 3)
    assert behind.quorum.kraft_version == int(by_log)
    assert cluster.sent["FetchSnapshot"] >= 1
    # It was restarted, so its image was loaded from nothing: no topic is gone.
    assert "gone later" in before.topics
    cluster.wait_loaded(leader.create_topic("behind the snapshot"))
    assert "behind the snapshot" in behind.topics
    behind.quorum.log.check_invariants()


def test_the_update_of_a_snapshot_names_the_topics_that_are_gone() -> None:
    cluster = QuorumCluster(2, log=OFTEN)
    leader = cluster.begin()
    cluster.wait_loaded(leader.create_topic("gone"))
    behind = [each for each in cluster.up() if each is not leader][-1]
    gone_id = behind.quorum.image.topics["gone"].topic_id
    cluster.isolate(behind)
    others = [each for each in cluster.up() if each is not behind]
    end_offset = leader.append([VersionedRecord(RemoveTopicRecord(topic_id=gone_id), 0)])
    cluster.wait_loaded(end_offset, others)
    for number in range(40):
        cluster.wait_loaded(leader.create_topic(f"t{number}"), others)
        leader.quorum.upkeep.tick()
    cluster.run_until(lambda: leader.quorum.log.log_start_offset > behind.quorum.log_end_offset)
    behind.updates.clear()
    cluster.cut.clear()
    cluster.wait_for_leader()
    cluster.run_until(lambda: behind.topics >= {f"t{number}" for number in range(40)})
    snapshot_update = behind.updates[0]
    assert [each.topic_id for each in snapshot_update.delta.topics_deleted] == [gone_id]
    assert len(snapshot_update.delta.topics_created) >= 1
    assert "gone" not in behind.topics


def test_a_restart_begins_at_the_installed_snapshot() -> None:
    cluster, leader, behind = left_behind(3)
    behind.start()
    cluster.wait_loaded(leader.quorum.log_end_offset)
    behind.kill(power=True)
    start_offset = snapshots_of(behind)[0].offset
    behind.start()
    assert start_offset == behind.quorum.log.log_start_offset > 0
    assert behind.quorum.loaded_offset >= start_offset  # before it has found its leader
    cluster.wait_loaded(leader.create_topic("again"))
    assert "again" in behind.topics


def damaged(answer: Message) -> Message:
    assert isinstance(answer, FetchSnapshotResponse)
    (topic,) = answer.topics
    data = bytearray(topic.partitions[0].unaligned_records)
    data[len(data) // 2] ^= 1
    topic.partitions[0].unaligned_records = bytes(data)
    return answer


def test_a_damaged_snapshot_is_thrown_away_and_fetched_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster, leader, behind = left_behind(4)
    spoilt = 0
    post = cluster.post

    def spoil(
        source: Member,
        target: Member,
        message: Message,
        answered: Callable[[Message], None],
        fail: Callable[[], None],
    ) -> None:
        def spoil_answer(answer: Message) -> None:
            nonlocal spoilt
            if isinstance(answer, FetchSnapshotResponse) and not spoilt:
                spoilt += 1
                answer = damaged(answer)
            answered(answer)

        post(source, target, message, spoil_answer, fail)

    cluster.post = spoil  # type: ignore[method-assign]
    with caplog.at_level(logging.WARNING, "odradek.quorum"):
        behind.start()
        cluster.wait_loaded(leader.quorum.log_end_offset)
    assert spoilt == 1
    events = [each.msg.name for each in caplog.records if isinstance(each.msg, Event)]
    assert events.count("snapshot of the leader refused") == 1
    assert len(behind.topics) == 40
    assert behind.failure is None


def test_a_download_that_finds_no_space_is_tried_again() -> None:
    cluster, leader, behind = left_behind(5)
    behind.start()
    behind.disk.fail("write", errno.ENOSPC, path="*.checkpoint.part", times=2)
    cluster.wait_loaded(leader.quorum.log_end_offset)
    assert len(behind.topics) == 40
    assert cluster.sent["FetchSnapshot"] >= 3


def test_a_snapshot_that_is_downloaded_is_kept_for_a_while() -> None:
    cluster, leader, _ = left_behind(6)
    log = leader.quorum
    snapshots = log._store.snapshots
    oldest = snapshots.earliest
    assert oldest is not None
    snapshots.read_piece(oldest, 0, 100, log._clock.now_ms())
    fill(cluster, leader, 30, "more")
    assert snapshots.earliest == oldest
    cluster.world.run_for(DOWNLOAD_LEASE_MS / 1000 + 1)
    log.upkeep.tick()
    assert snapshots.earliest != oldest


def test_the_snapshot_that_formatting_left_is_not_replicated() -> None:
    cluster = QuorumCluster(7, observers=1, by_log=True)
    leader = cluster.begin()
    cluster.wait_loaded(leader.create_topic("orders"))
    assert "FetchSnapshot" not in cluster.sent
    observer = cluster.members[101]
    assert observer.quorum.voters is not None
    assert [each.voter_id for each in observer.quorum.voters.voters] == [1, 2, 3]


def test_the_bootstrap_snapshot_cannot_be_fetched() -> None:
    leader = QuorumCluster(8, by_log=True).begin()
    assert snapshots_of(leader) == [OffsetAndEpoch(0, 0)]
    part = RequestPartitionSnapshot(
        current_leader_epoch=leader.quorum.epoch, snapshot_id=SnapshotId(end_offset=0, epoch=0)
    )
    topic = RequestTopicSnapshot(name="__cluster_metadata", partitions=[part])
    answers: list[Message] = []
    request = FetchSnapshotRequest(cluster_id=None, max_bytes=100, topics=[topic])
    leader.quorum.handle(request, 1, answers.append)
    (answer,) = answers
    assert isinstance(answer, FetchSnapshotResponse)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.SNAPSHOT_NOT_FOUND


def end_of(member: Member) -> int:
    return member.quorum.log_end_offset


def test_a_snapshot_is_installed_while_older_records_are_being_loaded() -> None:
    """The slices of a large batch take turns with the rest of the node; its log goes meanwhile."""
    cluster = QuorumCluster(9, log=OFTEN)
    leader = cluster.begin()
    behind = [each for each in cluster.up() if each is not leader][-1]
    others = [each for each in cluster.up() if each is not behind]
    slices: list[Generator[None, None, None]] = []
    behind.quorum.load_with(slices.append)
    for number in range(20):  # more than one segment
        cluster.wait_loaded(leader.create_topic(f"slow{number}"), others)
    cluster.run_until(lambda: bool(slices) and behind.quorum.high_watermark == end_of(leader))
    next(slices[0])  # in the middle of the first batch
    cluster.isolate(behind)
    for number in range(40):
        cluster.wait_loaded(leader.create_topic(f"t{number}"), others)
        leader.quorum.upkeep.tick()
    cluster.cut.clear()
    cluster.run_until(lambda: behind.quorum.log.log_start_offset > 0)
    cluster.run_until(lambda: behind.quorum.high_watermark == end_of(leader))
    assert len(slices) == 1
    for _ in slices[0]:
        pass
    assert behind.failure is None
    assert behind.quorum.loaded_offset == end_of(leader)
    assert behind.topics == leader.topics
