"""A node that is part of a cluster starts only in directories that were formatted for it."""

import asyncio
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from odradek.cli.main import main
from odradek.node.node import Node
from odradek.node.serving import load_config, run

CLUSTER_ID = "b2RyYWRlay1pZGVudGl0eQ"
OTHER_ID = "YW5vdGhlci1pZGVudGl0eQ"
ROLES = {
    "broker": "process.roles=broker\nlisteners=PLAINTEXT://127.0.0.1:0\n"
    "controller.quorum.voters=2@127.0.0.1:1\n",
    "controller": "process.roles=controller\nlisteners=CONTROLLER://127.0.0.1:0\n"
    "controller.quorum.voters=1@127.0.0.1:1\n",
    "combined": "process.roles=broker,controller\ncontroller.quorum.voters=1@127.0.0.1:1\n"
    "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0\n",
}
ALONE = "process.roles=broker,controller\nlisteners=PLAINTEXT://127.0.0.1:0\n"


def write(folder: Path, text: str, node_id: int = 1) -> Path:
    path = folder / "server.properties"
    controllers = "controller.listener.names=CONTROLLER\n" if "CONTROLLER" in text else ""
    if "process.roles=broker\n" in text:
        controllers = "controller.listener.names=CONTROLLER\n"
    path.write_text(f"node.id={node_id}\nlog.dirs={folder / 'data'}\n{controllers}{text}")
    return path


def odradek(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments])


def refusal(properties: Path) -> str:
    """Serve, and return the one line that says why not."""
    result = odradek("serve", properties)
    assert result.exit_code == 1
    assert result.stdout == ""
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    return line


@pytest.mark.parametrize("role", ROLES)
def test_an_unformatted_directory_is_refused_in_a_cluster(tmp_path: Path, role: str) -> None:
    line = refusal(write(tmp_path, ROLES[role]))
    assert f"{tmp_path / 'data'} is not formatted, and this node is part of a cluster" in line
    assert "odradek storage format" in line
    assert not (tmp_path / "data" / "meta.properties").exists()


@pytest.mark.parametrize("role", ROLES)
def test_the_directory_of_another_node_is_refused(tmp_path: Path, role: str) -> None:
    properties = write(tmp_path, ROLES[role])
    assert odradek("storage", "format", "-t", CLUSTER_ID, "-c", properties).exit_code == 0
    meta = tmp_path / "data" / "meta.properties"
    meta.write_text(meta.read_text().replace("node.id=1", "node.id=7"))
    assert f"{meta} says node.id=7, this node has node.id=1" in refusal(properties)


def test_a_metadata_directory_of_its_own_is_formatted_first(tmp_path: Path) -> None:
    properties = write(tmp_path, f"{ALONE}metadata.log.dir={tmp_path / 'meta'}\n")
    assert f"{tmp_path / 'meta'} is not formatted, and has the metadata log" in refusal(properties)
    assert odradek("storage", "format", "-t", CLUSTER_ID, "-c", properties, "-N").exit_code == 0
    meta = tmp_path / "meta" / "meta.properties"
    meta.write_text(meta.read_text().replace("node.id=1", "node.id=7"))
    assert f"{meta} says node.id=7, this node has node.id=1" in refusal(properties)


def test_directories_of_two_clusters_are_refused(tmp_path: Path) -> None:
    properties = write(tmp_path, f"{ALONE}log.dirs={tmp_path / 'data'},{tmp_path / 'more'}\n")
    assert odradek("storage", "format", "-t", CLUSTER_ID, "-c", properties, "-N").exit_code == 0
    meta = tmp_path / "more" / "meta.properties"
    meta.write_text(meta.read_text().replace(CLUSTER_ID, OTHER_ID))
    expected = f"{meta} says cluster.id={OTHER_ID}, this node has cluster.id={CLUSTER_ID}"
    assert expected in refusal(properties)


def test_a_node_alone_formats_its_directories_itself(tmp_path: Path) -> None:
    loaded = load_config(write(tmp_path, ALONE), ())
    ready: list[int] = []

    def on_ready(_host: str, port: int) -> None:
        ready.append(port)
        signal.raise_signal(signal.SIGTERM)

    run(Node(loaded.config), loaded, on_ready)
    assert len(ready) == 1
    assert "cluster.id=" in (tmp_path / "data" / "meta.properties").read_text()


def test_a_signal_ends_a_node_that_waits_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load_config(write(tmp_path, ALONE), ())
    ended: list[str] = []

    async def wait_for_ever(_: Node) -> None:
        try:
            asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGTERM)
            await asyncio.Event().wait()
        finally:
            ended.append("cleaned up")

    monkeypatch.setattr(Node, "start", wait_for_ever)
    run(Node(loaded.config), loaded, lambda _host, _port: None)
    assert ended == ["cleaned up"]
