"""Logs that are made together: durable at the end of the block, and whatever a crash leaves."""

import errno
from pathlib import Path, PurePath
from threading import Barrier

import pytest

from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import TopicPartition
from odradek.storage.disk import OsDisk
from odradek.storage.log_store import LogStore
from odradek.testing.disk import SimulatedCrash, SimulatedDisk
from tests.unit.storage.test_log_store_support import (
    OTHER_ID,
    TOPIC_ID,
    A,
    append,
    new_disk,
    open_store,
    run,
    values,
)

PARTITIONS = [TopicPartition("t", number) for number in range(3)]
WAIT_SECONDS = 60


def create_together(store: LogStore) -> None:
    with store.creating():
        for partition in PARTITIONS:
            store.create(partition, TOPIC_ID, now_ms=0)


@pytest.mark.parametrize("seed", range(10))
def test_they_are_durable_when_the_block_is_left(seed: int) -> None:
    disk = new_disk(seed)
    create_together(open_store(disk))
    disk.crash()
    store = open_store(disk)
    assert [store.topic_id(partition) for partition in PARTITIONS] == [TOPIC_ID] * 3
    names = {name for at in PARTITIONS for name in disk.names(store.get(at).folder)}  # type: ignore[union-attr]
    assert "partition.metadata" in names
    assert not [name for name in names if name.endswith(".tmp")]


def test_a_crash_anywhere_leaves_folders_that_can_be_used() -> None:
    disk = new_disk()
    create_together(open_store(disk))
    for stop_at in range(1, disk.operations + 1):
        crash_at(new_disk(stop_at), stop_at)


@pytest.mark.slow
def test_a_crash_at_the_end_leaves_no_id_half_written() -> None:
    disk = new_disk()
    store = open_store(disk)
    with store.creating():
        for partition in PARTITIONS:
            store.create(partition, TOPIC_ID, now_ms=0)
        begun = disk.operations
    for stop_at in range(begun + 1, disk.operations + 1):
        for seed in range(20):  # chance decides what of a name and its content is there
            crash_at(new_disk(seed * 1000 + stop_at), stop_at)


def crash_at(disk: SimulatedDisk, stop_at: int) -> None:
    disk.stop_at = stop_at
    with pytest.raises(SimulatedCrash):
        create_together(open_store(disk))
    disk.crash()
    store = open_store(disk, seed=1)
    assert [directory.failed for directory in store.directories] == [{}, {}]
    found = {at: store.topic_id(at) for at in PARTITIONS if store.get(at) is not None}
    assert set(found.values()) <= {TOPIC_ID, None}
    create_together(store)  # as the next start does with what the metadata log knows
    append(store, PARTITIONS[0], b"after")
    work = store.plan_flush(PARTITIONS[0])
    assert work is not None
    run([work], 0)
    disk.crash()
    store = open_store(disk, seed=2)
    assert [store.topic_id(partition) for partition in PARTITIONS] == [TOPIC_ID] * 3
    assert values(store.get(PARTITIONS[0])) == [b"after"]


@pytest.mark.parametrize("kind", ["sync", "rename"])
def test_a_directory_that_fails_at_the_end_is_offline_with_its_logs(kind: str) -> None:
    disk = new_disk()
    store = open_store(disk, [A])
    with store.creating():
        store.create(PARTITIONS[0], TOPIC_ID, now_ms=0)
        disk.fail(kind, errno.EIO, path="*")  # type: ignore[arg-type]
    assert not store.directories[0].is_online
    with pytest.raises(ApiError) as refused:
        store.get(PARTITIONS[0])
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_log_that_exists_is_found_within_the_block() -> None:
    store = open_store(new_disk())
    made = store.create(PARTITIONS[0], TOPIC_ID, now_ms=0)
    with store.creating():
        assert store.create(PARTITIONS[0], TOPIC_ID, now_ms=0) is made
        with pytest.raises(ApiError) as refused:
            store.create(PARTITIONS[0], OTHER_ID, now_ms=0)
    assert refused.value.code is ErrorCode.INCONSISTENT_TOPIC_ID


def test_after_the_block_a_log_is_synced_as_it_is_made_again() -> None:
    disk = new_disk()
    store = open_store(disk)
    create_together(store)
    store.create(TopicPartition("u", 0), TOPIC_ID, now_ms=0)
    disk.crash()
    assert open_store(disk).topic_id(TopicPartition("u", 0)) == TOPIC_ID


class MeetingDisk(OsDisk):
    """Lets nobody sync a file before another one wants to."""

    def __init__(self) -> None:
        super().__init__()
        self._meeting = Barrier(2, timeout=WAIT_SECONDS)

    def sync_file(self, path: PurePath) -> None:
        self._meeting.wait()
        super().sync_file(path)


def test_threads_wait_for_a_real_disk_side_by_side(tmp_path: Path) -> None:
    store = open_store(MeetingDisk(), [tmp_path / "a"])
    with store.creating():
        for number in range(2):
            store.create(TopicPartition("t", number), TOPIC_ID, now_ms=0)
    assert store.directories[0].is_online
    content = (tmp_path / "a" / "t-1" / "partition.metadata").read_text()
    assert content == f"version: 0\ntopic_id: {TOPIC_ID}"
    store.close(1)
