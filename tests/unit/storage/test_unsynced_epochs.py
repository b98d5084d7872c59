"""The epochs of a log after a loss of power, though their file is not synced for each of them."""

from pathlib import PurePosixPath
from random import Random

import pytest

from odradek.core.ids import TopicPartition
from odradek.storage.config import LogConfig
from odradek.storage.leader_epochs import LEADER_EPOCH_CHECKPOINT
from odradek.storage.log import Log
from odradek.storage.recovery import LogSettings, create_log, open_log
from odradek.testing.disk import SimulatedDisk
from tests.storage_batches import BASE_TIME_MS, make_batch

PARTITION = TopicPartition("t", 0)
FOLDER = PurePosixPath("/data/t-0")
FILE = FOLDER / LEADER_EPOCH_CHECKPOINT
SETTINGS = LogSettings(LogConfig(segment_bytes=300, segment_index_bytes=4096))
SEEDS = range(60)


def made(disk: SimulatedDisk) -> Log:
    disk.make_folder(FOLDER)
    for folder in (FOLDER.parent, FOLDER.parent.parent):
        disk.sync_folder(folder)
    return create_log(PARTITION, disk, FOLDER, SETTINGS, now_ms=BASE_TIME_MS, random=Random(1))


def append(log: Log, epoch: int) -> None:
    log.begin_epoch(epoch)
    log.append_as_leader(make_batch([b"x" * 50]), leader_epoch=epoch, now_ms=BASE_TIME_MS)


def reopened(disk: SimulatedDisk, recovery_point: int) -> Log:
    log, _ = open_log(
        PARTITION,
        disk,
        FOLDER,
        SETTINGS,
        now_ms=BASE_TIME_MS,
        random=Random(1),
        clean=False,
        recovery_point=recovery_point,
    )
    return log


def in_batches(log: Log) -> list[tuple[int, int]]:
    """Return where each epoch begins, as the batches themselves say."""
    found: dict[int, int] = {}
    for segment in log.segments:
        for header in segment.batches():
            found.setdefault(header.partition_leader_epoch, header.base_offset)
    return list(found.items())


@pytest.mark.parametrize("seed", SEEDS)
def test_after_a_loss_of_power_the_epochs_are_those_of_the_batches(seed: int) -> None:
    random = Random(seed)
    disk = SimulatedDisk(random)
    log = made(disk)
    log.flush()
    for epoch in range(1, 30):
        append(log, epoch)
        if random.random() < 0.5:
            append(log, epoch)
        if random.random() < 0.2:
            log.flush()
        if random.random() < 0.1:
            disk.crash()
            log = reopened(disk, log.recovery_point)
            assert log.leader_epochs.entries == in_batches(log)
    disk.crash()
    log = reopened(disk, log.recovery_point)
    assert log.leader_epochs.entries == in_batches(log)


def test_an_epoch_needs_no_sync_until_the_log_is_flushed() -> None:
    disk = SimulatedDisk(Random(1))
    log = made(disk)
    log.flush()
    disk.trace.clear()
    append(log, 1)
    append(log, 2)
    assert [line for line in disk.trace if "sync" in line] == []
    log.flush()
    assert [line for line in disk.trace if f"sync {FILE}" in line]
    disk.trace.clear()
    append(log, 2)
    log.flush()
    assert not [line for line in disk.trace if f"sync {FILE}" in line]


@pytest.mark.parametrize("damaged", [b"", b"0\n3\n1 0\n", b"0\n1\n1 0", bytes(12)])
def test_a_damaged_file_is_made_anew_from_all_batches(damaged: bytes) -> None:
    disk = SimulatedDisk(Random(1))
    log = made(disk)
    for epoch in (1, 2, 3, 3, 5, 8):
        append(log, epoch)
    log.flush()
    recovery_point = log.recovery_point
    append(log, 9)
    disk.kill()
    disk.remove(FILE)
    file = disk.open(FILE, create=True)
    file.write(0, [damaged])
    file.close()
    log = reopened(disk, recovery_point)
    assert log.leader_epochs.entries == in_batches(log)
    assert len(log.leader_epochs.entries) == 6
