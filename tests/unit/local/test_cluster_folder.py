"""The folder of a local cluster, and what is refused in its place."""

from pathlib import Path
from random import Random

import pytest

from odradek.local.errors import LocalClusterError
from odradek.local.folder import ClusterFolder, RunRecord
from odradek.local.layout import Layout, Wishes, plan_layout
from odradek.local.process_identity import ProcessIdentity


@pytest.fixture
def layout() -> Layout:
    return plan_layout(Wishes(nodes=2), Random(1))


@pytest.fixture
def folder(tmp_path: Path) -> ClusterFolder:
    return ClusterFolder(tmp_path / "c")


def test_what_was_created_is_loaded(folder: ClusterFolder, layout: Layout) -> None:
    assert folder.load() is None
    with folder.locked():
        folder.create(layout)
    assert folder.load() == layout
    assert (folder.path / ".gitignore").read_text() == "*\n"
    assert "node.id=2" in folder.properties_file(2).read_text()


def test_only_one_runs_a_cluster(folder: ClusterFolder) -> None:
    with folder.locked(), pytest.raises(LocalClusterError, match=r"is running in .*c already"):
        folder.locked().__enter__()
    with folder.locked():
        pass


def test_an_interrupted_up_is_half_written(folder: ClusterFolder, layout: Layout) -> None:
    with folder.locked():
        folder.create(layout)
    (folder.path / "cluster.json").unlink()
    folder.check_ours()
    with pytest.raises(LocalClusterError, match=r"c is half written: .*rm -r"):
        folder.load()


def test_other_files_are_not_touched(folder: ClusterFolder) -> None:
    folder.path.mkdir()
    (folder.path / "thesis.tex").touch()
    with pytest.raises(LocalClusterError, match=r"has other files in it \(thesis.tex\)"):
        folder.check_ours()


def test_a_file_in_the_place_of_the_folder_is_one_line(folder: ClusterFolder) -> None:
    folder.path.touch()
    with pytest.raises(LocalClusterError, match="Not a directory"):
        folder.load()


def test_a_node_without_its_data_is_not_formatted_anew(
    folder: ClusterFolder, layout: Layout
) -> None:
    """It would vote a second time in an election that it had forgotten."""
    with folder.locked():
        folder.create(layout)
    (folder.data_folder(2) / "meta.properties").unlink()
    with pytest.raises(LocalClusterError, match="so node 2 cannot start"):
        folder.load()


def test_what_runs_is_remembered(folder: ClusterFolder) -> None:
    folder.path.mkdir()
    assert folder.read_run() is None
    record = RunRecord(ProcessIdentity(7, "x"), "/run/socket", True, {1: ProcessIdentity(8, "y z")})
    folder.write_run(record)
    assert folder.read_run() == record
    folder.remove_run()
    assert folder.read_run() is None
