"""``odradek storage`` as a user runs it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from odradek.cli.main import main
from odradek.core.ids import Uuid
from odradek.testing.broker import Broker

CLUSTER_ID = "b2RyYWRlay1zdG9yYWdlLQ"
LISTENERS = "PLAINTEXT://127.0.0.1:19092,CONTROLLER://127.0.0.1:19093"


def storage(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["storage", *map(str, arguments)])


def write_properties(folder: Path, **changes: str) -> Path:
    values = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": LISTENERS,
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(folder / "data"),
        **{name.replace("_", "."): value for name, value in changes.items()},
    }
    path = folder / "server.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in values.items() if value))
    return path


def test_random_uuid_prints_one() -> None:
    result = storage("random-uuid")
    assert result.exit_code == 0
    assert Uuid.from_text(result.stdout.strip())


def test_a_formatted_directory_is_served_with_the_features_it_was_given(tmp_path: Path) -> None:
    properties = write_properties(tmp_path)
    chosen = ("-r", "4.1", "-f", "group.version=0")
    result = storage("format", "-t", CLUSTER_ID, "-c", properties, "--standalone", *chosen)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1].endswith("with metadata.version 4.1-IV1.")
    with Broker(data_dir=str(tmp_path / "data")) as broker:
        assert broker.node.cluster_id == CLUSTER_ID
        assert broker.node.broker.image.features == {
            "metadata.version": 27,
            "eligible.leader.replicas.version": 1,
            "transaction.version": 2,
        }


def test_a_formatted_cluster_is_raised_to_a_release(tmp_path: Path) -> None:
    """With kraft.version among the features: it is in the log already, and stays as it is."""
    properties = write_properties(tmp_path)
    formatted = ("-t", CLUSTER_ID, "-c", properties, "--standalone", "-r", "4.2")
    assert storage("format", *formatted).exit_code == 0
    with Broker(data_dir=str(tmp_path / "data")) as broker:
        tool = ["features", "--bootstrap-server", broker.bootstrap_servers]
        raised = CliRunner().invoke(main, [*tool, "upgrade", "--release-version", "4.3"])
        assert (raised.exit_code, raised.stderr) == (0, "")
        assert "kraft.version was upgraded to 1." in raised.stdout.splitlines()
        described = CliRunner().invoke(main, [*tool, "describe", "--json"])
        levels = {each["feature"]: each["finalized"] for each in json.loads(described.stdout)}
        assert (levels["kraft.version"], levels["metadata.version"]) == ("1", "4.3-IV0")
        for level, said in (("0", "downgrade the version of this feature"), ("2", "only supports")):
            asked = [*tool, "downgrade", "--feature", f"kraft.version={level}"]
            refused = CliRunner().invoke(main, asked)
            assert refused.exit_code == 1
            assert said in refused.stdout


def test_info_tells_what_is_there_and_what_is_wrong(tmp_path: Path) -> None:
    properties = write_properties(tmp_path)
    data = tmp_path / "data"
    missing = storage("info", "-c", properties)
    assert missing.exit_code == 1
    assert missing.stdout == f"Found problem:\n  {data} does not exist\n\n"
    storage("format", "-t", CLUSTER_ID, "-c", properties, "--standalone")
    found = storage("info", "-c", properties)
    assert found.exit_code == 0
    assert found.stdout.startswith(f"Found log directory:\n  {data}\n\nFound metadata: {{cluster")
    both = write_properties(tmp_path, log_dirs=f"{data},{tmp_path / 'more'}")
    (tmp_path / "more").mkdir()
    partly = storage("info", "-c", both)
    assert partly.exit_code == 1
    assert f"Found problem:\n  {tmp_path / 'more'} is not formatted.\n" in partly.stdout


def test_formatting_twice_is_refused(tmp_path: Path) -> None:
    properties = write_properties(tmp_path)
    again = ("format", "-t", CLUSTER_ID, "-c", properties, "--standalone")
    assert storage(*again).exit_code == 0
    refused = storage(*again)
    assert refused.exit_code == 1
    assert refused.stdout == ""
    assert "is already formatted" in refused.stderr
    assert storage(*again, "-g").exit_code == 0


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ((), "say who the voters are"),
        (("-s", "-N"), "give one of"),
        (("-s", "-S", "SCRAM-SHA-256=[name=a,password=b]"), "--add-scram comes later"),
        (("-s", "-f", "group.version"), "is not feature=level"),
        (("-s", "-r", "9.9"), "Unknown metadata.version"),
        (("-I", "1@host"), "is not a voter"),
        (("--nonsense",), "No such option"),
    ],
)
def test_wrong_options_exit_with_one(
    tmp_path: Path, options: tuple[str, ...], problem: str
) -> None:
    result = storage("format", "-t", CLUSTER_ID, "-c", write_properties(tmp_path), *options)
    assert result.exit_code == 1
    assert problem in result.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("changes", "option", "problem"),
    [
        ({"controller_quorum_voters": "1@127.0.0.1:19093"}, "-s", "is set, so"),
        ({"controller_listener_names": "", "listeners": ""}, "-s", "names no listener"),
    ],
)
def test_options_that_contradict_the_config(
    tmp_path: Path, changes: dict[str, str], option: str, problem: str
) -> None:
    properties = write_properties(tmp_path, **changes)
    result = storage("format", "-t", CLUSTER_ID, "-c", properties, option)
    assert result.exit_code == 1
    assert problem in result.stderr


def test_static_voters_need_no_option(tmp_path: Path) -> None:
    properties = write_properties(tmp_path, controller_quorum_voters="1@127.0.0.1:19093")
    result = storage("format", "-t", CLUSTER_ID, "-c", properties)
    assert result.exit_code == 0
    assert "Formatting metadata directory " in result.stdout
    assert not (tmp_path / "data" / "__cluster_metadata-0").exists()


@pytest.mark.parametrize("arguments", [(), ("bogus",), ("format",), ("feature-dependencies",)])
def test_calling_it_wrongly_is_exit_code_one(arguments: tuple[str, ...]) -> None:
    result = storage(*arguments)
    assert result.exit_code == 1
    assert "error: " in result.stderr


def test_help_is_exit_code_zero() -> None:
    for arguments in (("-h",), ("--help",), ("format", "-h")):
        assert storage(*arguments).exit_code == 0
