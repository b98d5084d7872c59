"""Configs and formatting of nodes with one role or both: refused and written as Kafka's own tool.

Kafka's tool runs in one JVM, from one line to the next: there are many cases, and a JVM takes long
to start.
"""

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner

from odradek.cli.main import main
from tests.interop.kafka_peer import MAIN_CLASSES
from tests.interop.programs.program import Program

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.usefixtures("kafka_libs")]

HERE = Path(__file__).parent
CLUSTER_ID = "b2RyYWRlay1zdG9yYWdlLQ"
DIRECTORY_IDS = ("JEXY6aqzQY-32P5TStzaFg", "MvDxzVmcRsaTz33bUuRU6A", "07R5amHmR32VDA6jHkGbTA")
VOTERS = ",".join(f"{n}@c{n}:9093:{id_}" for n, id_ in enumerate(DIRECTORY_IDS, start=1))
RANDOM_OR_TIME = re.compile(
    r"directory\.id=[\w-]{22}|(?:CreateTime|crc|lastContainedLogTimestamp\"?): ?\d+"
)
DIRECTORY_ID = re.compile(r"(?<=\"voterDirectoryId\":\")[\w-]{22}")

STATIC = {"controller.quorum.voters": "1@c1:9093,2@c2:9093,3@[::1]:9093"}
DYNAMIC = {"controller.quorum.bootstrap.servers": "c1:9093,c2:9093"}
BROKER = {
    "process.roles": "broker",
    "node.id": "4",
    "listeners": "PLAINTEXT://b4:9092",
    "controller.listener.names": "CONTROLLER",
}
CONTROLLER = {
    "process.roles": "controller",
    "node.id": "1",
    "listeners": "CONTROLLER://c1:9093",
    "controller.listener.names": "CONTROLLER",
}
COMBINED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://c1:9092,CONTROLLER://c1:9093",
    "controller.listener.names": "CONTROLLER",
}
ROLES = {"broker": BROKER, "controller": CONTROLLER, "combined": COMBINED}
QUORUMS = {"static": STATIC, "dynamic": DYNAMIC}


class Run(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture(scope="module")
def kafka(tool_program: Program) -> Program:
    return tool_program


def ours(*arguments: str | Path) -> Run:
    result = CliRunner().invoke(main, ["storage", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return Run(result.exit_code, result.stdout, result.stderr)


def theirs(kafka: Program, *arguments: str | Path, tool: str = "storage") -> Run:
    answer = kafka.ask("run", main=MAIN_CLASSES[tool], arguments=list(map(str, arguments)))
    return Run(answer["status"], answer["out"], answer["err"])


def write(folder: Path, *configs: Mapping[str, str]) -> Path:
    merged = {"log.dirs": str(folder / "data")}
    for each in configs:
        merged |= each
    path = folder / "server.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in merged.items()))
    return path


def plain(text: str) -> str:
    known = DIRECTORY_ID.sub(lambda id_: id_[0] if id_[0] in DIRECTORY_IDS else "…", text)
    return RANDOM_OR_TIME.sub("…", known)


CASES: dict[str, tuple[bool, Mapping[str, str]]] = {
    # Whether both take it, and what it is.
    **{
        f"{role}, {quorum}": (True, {**ROLES[role], **QUORUMS[quorum]})
        for role in ROLES
        for quorum in QUORUMS
    },
    "both ways to name controllers": (True, {**BROKER, **STATIC, **DYNAMIC}),
    "a broker without controllers": (False, BROKER),
    "a controller without controllers": (False, CONTROLLER),
    "a broker among the voters": (False, {**BROKER, **STATIC, "node.id": "2"}),
    "a controller not among the voters": (False, {**CONTROLLER, **STATIC, "node.id": "9"}),
    "a combined node not among the voters": (False, {**COMBINED, **STATIC, "node.id": "9"}),
    "a controller among no voters": (True, {**CONTROLLER, **DYNAMIC, "node.id": "9"}),
    "a role twice": (False, {**COMBINED, **STATIC, "process.roles": "broker,broker"}),
    "a role that is none": (False, {**COMBINED, **STATIC, "process.roles": "broker,queen"}),
    "a broker with the controllers' listener": (
        False,
        {**BROKER, **STATIC, "listeners": "PLAINTEXT://b4:9092,CONTROLLER://b4:9093"},
    ),
    "a broker with one of the controllers' listeners": (
        False,
        {
            **BROKER,
            **STATIC,
            "listeners": "PLAINTEXT://b4:9092,CONTROLLER://b4:9093",
            "controller.listener.names": "CONTROLLER,OTHER",
        },
    ),
    "a broker with two names of controllers' listeners": (
        True,
        {**BROKER, **STATIC, "controller.listener.names": "CONTROLLER,OTHER"},
    ),
    "a broker that knows no controllers' listener": (
        False,
        {**BROKER, **STATIC, "controller.listener.names": ""},
    ),
    "a broker that would join": (
        False,
        {**BROKER, **DYNAMIC, "controller.quorum.auto.join.enable": "true"},
    ),
    "a controller that would join": (
        True,
        {**CONTROLLER, **DYNAMIC, "controller.quorum.auto.join.enable": "true"},
    ),
    "a controller with a listener for clients": (
        False,
        {**CONTROLLER, **STATIC, "listeners": "PLAINTEXT://c1:9092,CONTROLLER://c1:9093"},
    ),
    "a controller without its listener": (
        False,
        {**CONTROLLER, **STATIC, "listeners": "PLAINTEXT://c1:9093"},
    ),
    "a controller that names a listener too many": (
        False,
        {**CONTROLLER, **STATIC, "controller.listener.names": "CONTROLLER,OTHER"},
    ),
    "a controller with two listeners": (
        True,
        {
            **CONTROLLER,
            **STATIC,
            "listeners": "CONTROLLER://c1:9093,OTHER://c1:9094",
            "controller.listener.names": "CONTROLLER,OTHER",
        },
    ),
    "a controller that advertises itself": (
        True,
        {**CONTROLLER, **STATIC, "advertised.listeners": "CONTROLLER://elsewhere:1"},
    ),
    "a controller that advertises 0.0.0.0": (
        False,
        {**CONTROLLER, **DYNAMIC, "advertised.listeners": "CONTROLLER://0.0.0.0:1"},
    ),
    "a controller that listens on 0.0.0.0": (
        True,
        {**CONTROLLER, **DYNAMIC, "listeners": "CONTROLLER://0.0.0.0:9093"},
    ),
    "a controller whose brokers have a listener of their own": (
        True,
        {**CONTROLLER, **STATIC, "inter.broker.listener.name": "PLAINTEXT"},
    ),
    "a controller whose brokers use its listener": (
        False,
        {**CONTROLLER, **STATIC, "inter.broker.listener.name": "CONTROLLER"},
    ),
    "a controller whose brokers use an unknown listener": (
        False,
        {**CONTROLLER, **STATIC, "inter.broker.listener.name": "NONE"},
    ),
    "brokers with a listener of their own": (
        True,
        {
            **BROKER,
            **STATIC,
            "listeners": "PLAINTEXT://b4:9092,INTERNAL://b4:9094",
            "inter.broker.listener.name": "INTERNAL",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,"
            "CONTROLLER:PLAINTEXT",
        },
    ),
    "brokers that do not advertise their own listener": (
        False,
        {
            **BROKER,
            **STATIC,
            "listeners": "PLAINTEXT://b4:9092,INTERNAL://b4:9094",
            "advertised.listeners": "PLAINTEXT://b4:9092",
            "inter.broker.listener.name": "INTERNAL",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,"
            "CONTROLLER:PLAINTEXT",
        },
    ),
    "a map without the controllers' listener": (
        False,
        {**BROKER, **STATIC, "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"},
    ),
    "a combined node with only the controller's listener": (
        False,
        {**COMBINED, **STATIC, "listeners": "CONTROLLER://c1:9093"},
    ),
    "a combined node without the controller's listener": (
        False,
        {**COMBINED, **STATIC, "listeners": "PLAINTEXT://c1:9092"},
    ),
    "a combined node that names no controllers' listener": (
        False,
        {**COMBINED, **STATIC, "controller.listener.names": ""},
    ),
    "a voter without an id": (False, {**BROKER, "controller.quorum.voters": "c1:9093"}),
    "a voter without a port": (False, {**BROKER, "controller.quorum.voters": "1@c1"}),
    "a voter whose id is no number": (False, {**BROKER, "controller.quorum.voters": "x@c1:1"}),
    "a voter with a strange host": (False, {**BROKER, "controller.quorum.voters": "1@c/1:1"}),
    "a voter at port 70000": (False, {**BROKER, "controller.quorum.voters": "1@c1:70000"}),
    "a server without a port": (False, {**BROKER, "controller.quorum.bootstrap.servers": "c1"}),
    "a server with a strange host": (
        False,
        {**BROKER, "controller.quorum.bootstrap.servers": "c 1:9"},
    ),
    "a server with an IPv6 address": (
        True,
        {**BROKER, "controller.quorum.bootstrap.servers": "[fe80::1]:9093"},
    ),
    "node.id and broker.id that differ": (False, {**BROKER, **STATIC, "broker.id": "5"}),
    "a negative node.id": (False, {**BROKER, **STATIC, "node.id": "-1"}),
}


@pytest.mark.parametrize("case", CASES)
def test_kafka_takes_and_refuses_the_same_configs(
    kafka: Program, tmp_path: Path, case: str
) -> None:
    is_taken, configs = CASES[case]
    properties = write(tmp_path, configs)
    for run in (theirs(kafka, "info", "-c", properties), ours("info", "-c", properties)):
        assert ("Found problem" in run.out) == is_taken, run  # its folder does not exist
        assert bool(run.err) != is_taken, run
    if not is_taken:
        assert len(ours("info", "-c", properties).err.splitlines()) == 1


FORMATS: dict[str, tuple[bool, Mapping[str, str], tuple[str, ...]]] = {
    # Whether both format, with which configs, and how the voters are named.
    "broker, static": (True, {**BROKER, **STATIC}, ()),
    "broker, dynamic": (True, {**BROKER, **DYNAMIC}, ()),
    "broker, dynamic, none": (True, {**BROKER, **DYNAMIC}, ("-N",)),
    "broker, dynamic, voters": (True, {**BROKER, **DYNAMIC}, ("-I", VOTERS)),
    "broker, dynamic, standalone": (False, {**BROKER, **DYNAMIC}, ("-s",)),
    "controller, static": (True, {**CONTROLLER, **STATIC}, ()),
    "controller, static, none": (True, {**CONTROLLER, **STATIC}, ("-N",)),
    "controller, static, standalone": (False, {**CONTROLLER, **STATIC}, ("-s",)),
    "controller, static, voters": (False, {**CONTROLLER, **STATIC}, ("-I", VOTERS)),
    "controller, static, kraft.version": (
        False,
        {**CONTROLLER, **STATIC},
        ("-f", "kraft.version=1"),
    ),
    "controller, dynamic": (False, {**CONTROLLER, **DYNAMIC}, ()),
    "controller, dynamic, none": (True, {**CONTROLLER, **DYNAMIC}, ("-N",)),
    "controller, dynamic, standalone": (True, {**CONTROLLER, **DYNAMIC}, ("-s",)),
    "controller, dynamic, voters": (True, {**CONTROLLER, **DYNAMIC}, ("-I", VOTERS)),
    "controller, dynamic, voters without it": (
        True,
        {**CONTROLLER, **DYNAMIC, "node.id": "8"},
        ("-I", VOTERS),
    ),
    "controller, dynamic, kraft.version 0": (
        False,
        {**CONTROLLER, **DYNAMIC},
        ("-N", "-f", "kraft.version=0"),
    ),
    "controller on all interfaces, dynamic, standalone": (
        True,
        {**CONTROLLER, **DYNAMIC, "listeners": "CONTROLLER://:9093"},
        ("-s",),
    ),
    "controller elsewhere, dynamic, standalone": (
        True,
        {**CONTROLLER, **DYNAMIC, "advertised.listeners": "CONTROLLER://elsewhere:9"},
        ("-s",),
    ),
    "combined, static": (True, {**COMBINED, **STATIC}, ()),
    "combined, dynamic, standalone": (True, {**COMBINED, **DYNAMIC}, ("-s",)),
    "combined, dynamic, voters": (True, {**COMBINED, **DYNAMIC}, ("-I", VOTERS)),
    "combined, dynamic": (False, {**COMBINED, **DYNAMIC}, ()),
    "combined, metadata apart": (
        True,
        {**COMBINED, **DYNAMIC, "metadata.log.dir": "META", "log.dirs": "DATA,MORE"},
        ("-I", VOTERS),
    ),
    "a voter twice": (False, {**CONTROLLER, **DYNAMIC}, ("-I", f"{VOTERS},{VOTERS}")),
    "a voter without a directory": (False, {**CONTROLLER, **DYNAMIC}, ("-I", "1@c1:9093")),
    "two ways at once": (False, {**CONTROLLER, **DYNAMIC}, ("-s", "-N")),
}


@pytest.mark.parametrize("case", FORMATS)
def test_each_kind_of_node_is_formatted_as_by_kafka(
    kafka: Program, tmp_path: Path, case: str
) -> None:
    is_done, configs, voters = FORMATS[case]
    data = tmp_path / "data"
    folders = {"META": data / "meta", "DATA": data / "d", "MORE": data / "m"}
    replaced = {name: _with_folders(value, folders) for name, value in configs.items()}
    properties = write(tmp_path, replaced)
    arguments: list[str | Path] = ["format", "-t", CLUSTER_ID, "-c", properties, *voters]
    runs, trees = [], []
    for is_ours in (True, False):
        runs.append(ours(*arguments) if is_ours else theirs(kafka, *arguments))
        trees.append(_dump(kafka, data))
        shutil.rmtree(data, ignore_errors=True)
    mine, kafkas = runs
    assert mine.status == kafkas.status == (0 if is_done else 1), runs
    # Kafka goes through the directories in the order of a hash map.
    assert sorted(mine.out.splitlines()) == sorted(kafkas.out.splitlines())
    assert bool(mine.err) == bool(kafkas.err) != is_done
    assert trees[0] == trees[1]
    assert bool(trees[0]) == is_done


def _with_folders(value: str, folders: Mapping[str, Path]) -> str:
    return ",".join(str(folders.get(part, part)) for part in value.split(","))


def _dump(kafka: Program, data: Path) -> dict[str, str]:
    """Return the files under ``data``: text as it is, the others as Kafka reads them."""
    found = {}
    for path in sorted(path for path in data.rglob("*") if path.is_file()):
        name = str(path.relative_to(data))
        if path.suffix == ".checkpoint":
            flags = ("--files", str(path), "--cluster-metadata-decoder")
            found[name] = plain(theirs(kafka, *flags, tool="dump-log").out)
        else:
            lines = path.read_text().splitlines()
            found[name] = plain("\n".join(sorted(line for line in lines if line[:1] != "#")))
    return found
