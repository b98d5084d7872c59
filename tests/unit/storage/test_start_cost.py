"""What a start after a clean stop does for each log: with ten thousand of them it adds up."""

from pathlib import Path, PurePath
from random import Random

import pytest

from odradek.core.ids import TopicPartition
from odradek.storage.config import LogConfig
from odradek.storage.disk import OsDisk, OsFile
from odradek.storage.log import Log
from odradek.storage.recovery import LogSettings, create_log, open_log
from tests.storage_batches import BASE_TIME_MS, make_batch

PARTITION = TopicPartition("t", 0)
SETTINGS = LogSettings(LogConfig())


def made(folder: Path, records: int) -> None:
    log = create_log(PARTITION, OsDisk(), folder, SETTINGS, now_ms=0, random=Random(1))
    for number in range(records):
        log.append_as_leader(make_batch([b"%d" % number]), leader_epoch=3, now_ms=BASE_TIME_MS)
    log.close()


def opened(folder: Path, disk: OsDisk) -> Log:
    log, _ = open_log(PARTITION, disk, folder, SETTINGS, now_ms=0, random=Random(1), clean=True)
    return log


@pytest.mark.parametrize("records", [0, 1])
def test_a_clean_start_looks_at_a_folder_four_times_at_most_and_maps_no_empty_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, records: int
) -> None:
    made(tmp_path / "t-0", records)
    listed: list[PurePath] = []
    files: list[str] = []
    names, open_file = OsDisk.names, OsDisk.open

    def count_names(disk: OsDisk, folder: PurePath) -> list[str]:
        listed.append(folder)
        return names(disk, folder)

    def count_open(disk: OsDisk, path: PurePath, *, create: bool = False) -> OsFile:
        files.append(path.suffix)
        return open_file(disk, path, create=create)

    monkeypatch.setattr(OsDisk, "names", count_names)
    monkeypatch.setattr(OsDisk, "open", count_open)
    log = opened(tmp_path / "t-0", OsDisk())
    assert log.log_end_offset == records
    assert len(listed) <= 4
    assert ".index" not in files
    log.close()
    assert ".index" not in files


def test_an_index_that_was_not_opened_at_the_start_takes_entries(tmp_path: Path) -> None:
    made(tmp_path / "t-0", 1)
    log = opened(tmp_path / "t-0", OsDisk())
    for number in range(100):
        log.append_as_leader(
            make_batch([bytes([number]) * 1_000]), leader_epoch=3, now_ms=BASE_TIME_MS
        )
    assert log.segments.active.offset_index.entries > 10
    log.close()
    again = opened(tmp_path / "t-0", OsDisk())
    assert again.log_end_offset == 101
    assert again.segments.active.offset_index.entries > 10
    again.close()
