"""Copies of the data of a local cluster, and back."""

import os
from pathlib import Path
from random import Random

import pytest

from odradek.local.errors import LocalClusterError
from odradek.local.folder import ClusterFolder
from odradek.local.layout import Wishes, plan_layout
from odradek.local.snapshots import (
    check_new,
    copy_back,
    copy_sparse,
    find_snapshot,
    snapshot_names,
    swap_in,
    write_snapshot,
)

HOLE = 8 * 1024 * 1024


@pytest.fixture
def folder(tmp_path: Path) -> ClusterFolder:
    folder = ClusterFolder(tmp_path / "c")
    with folder.locked():
        folder.create(plan_layout(Wishes(nodes=2), Random(1)))
    return folder


def test_holes_stay_holes(tmp_path: Path) -> None:
    source, target = tmp_path / "a", tmp_path / "b"
    with source.open("wb") as file:
        file.write(b"begin")
        file.seek(HOLE)
        file.write(b"middle")
        file.truncate(2 * HOLE)
    copied = copy_sparse(source, target)
    assert target.read_bytes() == source.read_bytes()
    assert target.stat().st_size == 2 * HOLE
    assert target.stat().st_blocks * 512 < HOLE
    assert copied < HOLE


@pytest.mark.parametrize("size", [0, 1, 3 * 1024 * 1024 + 17])
def test_other_files_are_copied_whole(tmp_path: Path, size: int) -> None:
    source, target = tmp_path / "a", tmp_path / "b"
    source.write_bytes(os.urandom(size))
    assert copy_sparse(source, target) == size
    assert target.read_bytes() == source.read_bytes()


def test_nodes_and_data_come_back_and_logs_stay(folder: ClusterFolder) -> None:
    layout = folder.existing()
    (folder.data_folder(1) / "t-0").mkdir()
    (folder.data_folder(1) / "t-0" / "0.log").write_bytes(b"then")
    write_snapshot(folder, layout, "then")
    assert snapshot_names(folder) == ["then"]
    (folder.data_folder(1) / "t-0" / "0.log").write_bytes(b"later")
    (folder.data_folder(2) / "u-0").mkdir()
    folder.log_file(1).write_text("a log")
    added = layout.with_broker(None)
    folder.create_node(added, added.nodes[-1])
    folder.write_layout(added)
    swap_in(folder, copy_back(folder, "then"))
    assert folder.existing() == layout
    assert (folder.data_folder(1) / "t-0" / "0.log").read_bytes() == b"then"
    assert not (folder.data_folder(2) / "u-0").exists()
    assert not folder.node_folder(3).exists()
    assert folder.log_file(1).read_text() == "a log"
    folder.check_ours()


def test_a_node_that_was_removed_since_comes_back(folder: ClusterFolder) -> None:
    layout = folder.existing()
    write_snapshot(folder, layout, "both")
    folder.write_layout(layout.without(2))
    for path in sorted(folder.node_folder(2).rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.node_folder(2).rmdir()
    swap_in(folder, copy_back(folder, "both"))
    assert folder.existing() == layout


def test_a_copy_that_fails_leaves_no_snapshot(folder: ClusterFolder) -> None:
    (folder.data_folder(2) / "gone").symlink_to("nowhere")
    with pytest.raises(FileNotFoundError):
        write_snapshot(folder, folder.existing(), "half")
    assert list((folder.path / "snapshots").iterdir()) == []
    (folder.data_folder(2) / "gone").unlink()
    write_snapshot(folder, folder.existing(), "half")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", ".hidden", "x" * 65, "a b", "ä"])
def test_a_name_is_no_path(folder: ClusterFolder, name: str) -> None:
    with pytest.raises(LocalClusterError, match="a snapshot has a name of"):
        check_new(folder, name)
    with pytest.raises(LocalClusterError, match=r"there is no snapshot .*; there are none"):
        find_snapshot(folder, name)
