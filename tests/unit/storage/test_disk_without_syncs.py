"""A disk that does not wait for stable storage: everything but that."""

import os
from pathlib import Path

import pytest

from odradek.storage.checkpoint_file import disk_for_thread
from odradek.storage.disk import OsDisk, write_atomically
from odradek.testing.broker import Broker


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the calls that wait for the disk."""
    calls: list[int] = []
    really = os.fsync

    def fsync(descriptor: int) -> None:
        calls.append(descriptor)
        really(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return calls


@pytest.mark.parametrize("syncs", [True, False])
def test_files_and_folders_are_synced_only_if_wanted(
    tmp_path: Path, synced: list[int], syncs: bool
) -> None:
    disk = OsDisk(syncs=syncs)
    file = disk.open(tmp_path / "f", create=True)
    file.write(0, [b"abc"])
    file.sync()
    disk.sync_file(tmp_path / "f")
    disk.sync_folder(tmp_path)
    write_atomically(disk, tmp_path / "g", b"def")
    assert (tmp_path / "g").read_bytes() == b"def"
    assert len(synced) == (5 if syncs else 0)


def test_a_file_that_is_gone_is_missed_all_the_same(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        OsDisk(syncs=False).sync_file(tmp_path / "f")


def test_other_threads_do_as_the_owner_does() -> None:
    other = disk_for_thread(OsDisk(syncs=False))
    assert isinstance(other, OsDisk)
    assert not other.syncs


def test_an_embedded_broker_without_a_folder_of_its_own_waits_for_no_disk(
    synced: list[int],
) -> None:
    with Broker(topics=["t"]):
        pass
    assert not synced


def test_an_embedded_broker_that_keeps_its_data_does(tmp_path: Path, synced: list[int]) -> None:
    with Broker(topics=["t"], data_dir=str(tmp_path)):
        pass
    assert synced
