"""What recovery gives up is told: which file, where, which records, and why."""

from dataclasses import replace
from pathlib import PurePath
from random import Random
from typing import Any

import pytest

from odradek.storage.recovery import LogSettings, RecoveryReport, create_log, open_log
from odradek.storage.recovery_loss import Loss
from odradek.testing.disk import SimulatedDisk
from tests.unit.storage.test_log_store_support import SMALL, T0, A, batch, new_disk, values

FOLDER = A / "t-0"
ONE_SEGMENT = replace(SMALL, segment_bytes=10_000)
FILE = "00000000000000000000.log"
LENGTH_POSITION, MAGIC_POSITION, RECORDS_POSITION = 8, 16, 65


def written(batches: int = 10, config: Any = ONE_SEGMENT) -> tuple[SimulatedDisk, list[int]]:
    """Write batches of two records each; return where each begins in its file."""
    disk, positions = new_disk(), []
    log = create_log(T0, disk, FOLDER, LogSettings(config), now_ms=0, random=Random(0))
    for number in range(batches):
        log.append_as_leader(batch(b"%d" % number, b"more"), leader_epoch=0, now_ms=0)
        active = log.segments.active
        positions.append(active.size - len(batch(b"%d" % number, b"more")))
    disk.kill()
    return disk, positions


def recover(
    disk: SimulatedDisk, config: Any = ONE_SEGMENT, **options: Any
) -> tuple[list[bytes], RecoveryReport]:
    settings = LogSettings(config)
    log, report = open_log(
        T0, disk, FOLDER, settings, now_ms=0, random=Random(0), clean=False, **options
    )
    return values(log), report


def flip(disk: SimulatedDisk, position: int, name: str = FILE) -> None:
    disk.flip_bit(FOLDER / name, position)


@pytest.mark.parametrize("where", [LENGTH_POSITION, MAGIC_POSITION, RECORDS_POSITION])
def test_a_flipped_bit_in_the_middle_tells_all_that_follows(where: int) -> None:
    disk, positions = written()
    size = disk.size(FOLDER / FILE)
    flip(disk, positions[3] + where)
    kept, report = recover(disk)
    assert kept == [value for i in range(3) for value in (b"%d" % i, b"more")]
    loss = report.loss
    assert loss is not None
    assert loss[:5] == (FOLDER / FILE, positions[3], 6, 20, size - positions[3])
    assert loss.records == 14
    assert loss.reason


def test_a_torn_write_tells_the_batch_that_it_began() -> None:
    disk, positions = written()
    file = disk.open(FOLDER / FILE)
    file.truncate(file.size - 3)
    _, report = recover(disk)
    length = file.size - positions[9]
    assert report.loss == Loss(
        FOLDER / FILE, positions[9], 18, 20, length, "the file ends within a batch"
    )


def test_segments_behind_a_bad_one_count_too() -> None:
    disk, _ = written(config=SMALL)
    names = [name for name in disk.names(FOLDER) if name.endswith(".log")]
    assert len(names) > 3
    sizes = [disk.size(FOLDER / name) for name in names]
    flip(disk, RECORDS_POSITION, names[1])
    _, report = recover(disk, SMALL)
    base_offset = int(PurePath(names[1]).stem)
    assert report.loss is not None
    assert report.loss[:5] == (FOLDER / names[1], 0, base_offset, 20, sum(sizes[1:]))


def test_a_missing_segment_tells_what_was_behind_it() -> None:
    disk, _ = written(config=SMALL)
    names = [name for name in disk.names(FOLDER) if name.endswith(".log")]
    disk.remove(FOLDER / names[1])
    _, report = recover(disk, SMALL)
    assert report.loss is not None
    assert report.loss[:4] == (FOLDER / names[2], 0, int(PurePath(names[1]).stem), 20)
    assert "begins at" in report.loss.reason


def test_space_that_was_preallocated_is_no_loss() -> None:
    config = replace(ONE_SEGMENT, preallocate=True)
    disk, _ = written(config=config)
    kept, report = recover(disk, config)
    assert len(kept) == 20
    assert report.loss is None


def test_whoever_must_not_lose_anything_prevents_it() -> None:
    disk, positions = written()
    flip(disk, positions[3] + RECORDS_POSITION)
    size = disk.size(FOLDER / FILE)
    seen: list[int] = []

    def refuse(loss: Loss, batches: Any) -> None:
        seen.extend(header.base_offset for _, header in batches)
        raise RuntimeError(f"{loss.records} would be gone")

    with pytest.raises(RuntimeError, match="14 would be gone"):
        recover(disk, on_loss=refuse)
    assert seen == [8, 10, 12, 14, 16, 18]
    assert disk.size(FOLDER / FILE) == size


def test_what_a_kill_left_of_small_files_is_removed() -> None:
    disk, _ = written()
    for name in ("partition.metadata.tmp", "leader-epoch-checkpoint.tmp", f"{FILE}.truncated"):
        disk.open(FOLDER / name, create=True).close()
    recover(disk)
    assert [name for name in disk.names(FOLDER) if name.endswith((".tmp", ".truncated"))] == []
