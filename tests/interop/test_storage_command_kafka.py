"""``odradek storage`` beside Kafka's own kafka-storage: the same lines, exit codes and files."""

import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from odradek.cli.main import main
from tests.interop.kafka_peer import dump_log, kafka_tool

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.usefixtures("kafka_libs")]

CLUSTER_ID = "b2RyYWRlay1zdG9yYWdlLQ"
DIRECTORY_ID = "JEXY6aqzQY-32P5TStzaFg"
VOTERS = f"1@127.0.0.1:19093:{DIRECTORY_ID},2@host:9:MvDxzVmcRsaTz33bUuRU6A"
RANDOM_OR_TIME = re.compile(r"directory\.id=[\w-]{22}|(?:CreateTime|crc|Timestamp\"?): ?\d+")


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    path = tmp_path / "server.properties"
    path.write_text(
        "process.roles=broker,controller\n"
        "node.id=1\n"
        "listeners=PLAINTEXT://127.0.0.1:19092,CONTROLLER://127.0.0.1:19093\n"
        "controller.listener.names=CONTROLLER\n"
        "controller.quorum.bootstrap.servers=127.0.0.1:19093\n"
        f"log.dirs={tmp_path / 'data'}\n"
    )
    return path


def same(*arguments: str | Path) -> str:
    """Run both, and return the lines that both print; what is random or a time is left out."""
    theirs = kafka_tool("storage", *arguments, check=False)
    ours = CliRunner().invoke(main, ["storage", *map(str, arguments)])
    assert ours.exit_code == theirs.returncode, ours.output
    assert bool(ours.stderr) == bool(theirs.stderr)
    assert plain(ours.stdout) == plain(theirs.stdout)
    return ours.stdout


def plain(text: str) -> str:
    return RANDOM_OR_TIME.sub("…", text)


@pytest.mark.parametrize(
    "arguments",
    [
        ("version-mapping",),
        ("version-mapping", "-r", "3.3"),
        ("version-mapping", "--release-version", "4.0.1"),
        ("version-mapping", "-r", "4.4"),
        ("version-mapping", "-r", "4.4-IV0"),
        ("version-mapping", "-r", "9.9"),
        ("feature-dependencies", "-f", "eligible.leader.replicas.version=1"),
        ("feature-dependencies", "--feature", "metadata.version=20", "-f", "nope=1"),
    ],
)
def test_tables_are_the_same(arguments: tuple[str, ...]) -> None:
    same(*arguments)


def test_info_is_the_same_before_and_after_formatting_by_either(
    tmp_path: Path, properties: Path
) -> None:
    data = tmp_path / "data"
    same("info", "-c", properties)
    data.mkdir()
    same("info", "-c", properties)
    CliRunner().invoke(main, ["storage", "format", "-t", CLUSTER_ID, "-c", str(properties), "-s"])
    assert CLUSTER_ID in same("info", "-c", properties)
    refused = ("format", "-t", CLUSTER_ID, "-c", properties, "-s")
    same(*refused)
    same(*refused, "--ignore-formatted")


@pytest.mark.parametrize("voters", [("-I", VOTERS), ("-N",)], ids=["voters", "none"])
def test_formatting_leaves_the_same_files(
    tmp_path: Path, properties: Path, voters: tuple[str, ...]
) -> None:
    data = tmp_path / "data"
    said: list[str] = []
    dumps: list[str] = []
    arguments = ("format", "-t", CLUSTER_ID, "-c", str(properties), "-r", "4.2", *voters)
    for is_ours in (True, False):
        if is_ours:
            result = CliRunner().invoke(main, ["storage", *arguments])
            assert result.exit_code == 0
            said.append(result.stdout)
        else:
            said.append(kafka_tool("storage", *arguments).stdout)
        files = sorted(path.relative_to(data) for path in data.rglob("*.checkpoint"))
        dumps.append(plain(dump_log(files, "--cluster-metadata-decoder", cwd=data)))
        assert (DIRECTORY_ID in (data / "meta.properties").read_text()) == ("-I" in voters)
        shutil.rmtree(data)
    assert said[0] == said[1]
    assert dumps[0] == dumps[1]
    assert ("KRaftVoters" in dumps[0]) == ("-I" in voters)
