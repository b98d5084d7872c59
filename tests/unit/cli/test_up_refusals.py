"""What `odradek up` refuses before anything runs: one clear line, and nothing is left."""

import json
import re
import socket
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner, Result

from odradek.cli.main import main
from odradek.local.folder import ClusterFolder, RunRecord
from odradek.local.layout import CONTROLLER_PORTS_FROM, Wishes, plan_layout
from odradek.local.process_identity import ProcessIdentity, identify


def up(folder: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["up", "--dir", str(folder), *options])


def refused(result: Result) -> str:
    assert result.exit_code == 1, result
    assert result.stdout == ""
    found = re.fullmatch(r"Error: (.+)\n", result.stderr)
    assert found is not None, result.stderr
    return found[1]


@pytest.fixture
def made(tmp_path: Path) -> ClusterFolder:
    folder = ClusterFolder(tmp_path / "made")
    with folder.locked():
        folder.create(plan_layout(Wishes(), Random(1)))
    return folder


def listing(folder: ClusterFolder) -> list[str]:
    return sorted(str(path) for path in folder.path.rglob("*"))


def test_a_busy_port_of_a_controller(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        base = port - CONTROLLER_PORTS_FROM - 1
        problem = refused(up(tmp_path / "new", "--base-port", str(base)))
    assert problem.startswith(f"port {port}, for node 2, is in use: ")
    assert not (tmp_path / "new").exists()


def test_a_half_written_folder(made: ClusterFolder) -> None:
    (made.path / "cluster.json").unlink()
    before = listing(made)
    assert "is half written: an `odradek up` was interrupted" in refused(up(made.path))
    assert listing(made) == before


def test_a_folder_whose_nodes_have_run_is_not_to_be_removed(made: ClusterFolder) -> None:
    made.layout_file.unlink()
    made.events_file.touch()
    problem = refused(up(made.path))
    assert "cluster.json is missing, and nodes have run here: put it back" in problem
    assert "rm -r" not in problem


@pytest.mark.parametrize("content", [b"", b'{"form', b"\xff\xfe\x00", b"[]"])
def test_a_damaged_layout(made: ClusterFolder, content: bytes) -> None:
    made.layout_file.write_bytes(content)
    assert "cluster.json is damaged" in refused(up(made.path))
    assert made.layout_file.read_bytes() == content


def test_a_folder_of_another_version(made: ClusterFolder) -> None:
    document = json.loads(made.layout_file.read_text())
    made.layout_file.write_text(json.dumps({**document, "format": 9, "odradek": "7.7"}))
    before = listing(made)
    assert "was written by Odradek 7.7 in format 9" in refused(up(made.path))
    assert listing(made) == before


def test_a_cluster_of_another_shape(made: ClusterFolder) -> None:
    assert "has a cluster already, with --nodes 3" in refused(up(made.path, "--nodes", "5"))


def test_nodes_of_an_earlier_run(made: ClusterFolder) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as left:
        process = identify(left.pid)
        assert process is not None
        gone = ProcessIdentity(process.pid, "another time")
        made.write_run(RunRecord(gone, "/nowhere", True, {1: gone, 2: process}))
        assert refused(up(made.path)).startswith("node 2 of an earlier run is still there")
        assert left.poll() is None
        left.kill()


def test_a_folder_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    assert "has other files in it (thesis.tex)" in refused(up(tmp_path))
    assert [each.name for each in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("options", ["--nodes 0", "--nodes -1", "--nodes 51", "--base-port 0"])
def test_numbers_that_no_cluster_has(tmp_path: Path, options: str) -> None:
    problem = refused(up(tmp_path / "new", *options.split()))
    assert problem.startswith(f"{options}: choose from 1 to ")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("words", ["kill 1", "status", "cut 1", "restart --rolling", "add"])
def test_a_cluster_that_is_down_takes_no_orders(made: ClusterFolder, words: str) -> None:
    result = CliRunner().invoke(main, ["local", *words.split(), "--dir", str(made.path)])
    assert refused(result).endswith("is not up: `odradek up` starts it")


def test_logs_of_a_folder_without_a_cluster(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["local", "logs", "--dir", str(tmp_path / "none")])
    assert refused(result).startswith("there is no cluster in ")
