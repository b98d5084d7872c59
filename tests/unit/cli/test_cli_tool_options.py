"""What all tools have in common: help, refusals, settings of the client."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from odradek.cli.main import main
from odradek.testing.broker import Broker

ADMIN_TOOLS = (
    "broker-api-versions",
    "configs",
    "consumer-groups",
    "delete-records",
    "get-offsets",
    "groups",
    "leader-election",
    "log-dirs",
    "reassign-partitions",
    "topics",
)
GROUPS = ("cluster", "features", "metadata-quorum", "transactions")


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, list(map(str, arguments)))


@pytest.fixture
def servers(odradek_broker: Broker) -> str:
    return odradek_broker.bootstrap_servers


@pytest.mark.parametrize("tool", [*ADMIN_TOOLS, *GROUPS])
def test_help_is_exit_code_zero_on_stdout(tool: str) -> None:
    result = run(tool, "--help")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"Usage: main {tool} ")


@pytest.mark.parametrize("tool", [*ADMIN_TOOLS, *GROUPS])
def test_nothing_at_all_is_help_on_stderr_and_exit_code_one(tool: str) -> None:
    result = run(tool)
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"Usage: main {tool} " in result.stderr


@pytest.mark.parametrize("tool", ADMIN_TOOLS)
def test_version_is_the_packages(tool: str) -> None:
    result = run(tool, "--version")
    assert (result.exit_code, result.stdout) == (0, "0.1.0\n")


@pytest.mark.parametrize("tool", [*ADMIN_TOOLS, *GROUPS])
def test_an_unknown_flag_is_exit_code_one(tool: str) -> None:
    result = run(tool, "--bogus", "x")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines()[0].startswith("No such option")


@pytest.mark.parametrize("tool", ADMIN_TOOLS)
def test_zookeeper_is_answered_with_what_to_use(tool: str) -> None:
    result = run(tool, "--zookeeper", "localhost:2181")
    assert result.exit_code == 1
    assert "use --bootstrap-server" in result.stderr.splitlines()[0]


def test_the_list_of_tools_loads_none_of_them() -> None:
    program = (
        "import sys; from click.testing import CliRunner; from odradek.cli.main import main;"
        "assert CliRunner().invoke(main, ['--help']).exit_code == 0;"
        "print(*(m for m in sys.modules if m.startswith(('odradek.cli', 'odradek.client'))))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=180
    )
    assert ran.stdout.split() == ["odradek.cli", "odradek.cli.main"]


def test_a_server_is_needed(servers: str) -> None:
    result = run("topics", "--list")
    assert result.exit_code == 1
    assert result.stderr.startswith('Missing required argument "[bootstrap-server]"')
    result = run("features", "describe")
    assert result.exit_code == 1
    assert result.stderr.startswith("You must specify --bootstrap-server")


def test_nobody_there_is_one_line_and_exit_code_one() -> None:
    quick = ("--command-property", "default.api.timeout.ms=200")
    result = run("log-dirs", "--bootstrap-server", "127.0.0.1:1", "--describe", *quick)
    assert (result.exit_code, result.stdout) == (1, "")
    assert len(result.stderr.splitlines()) == 1
    assert "127.0.0.1:1" in result.stderr


def test_an_address_that_is_none(servers: str) -> None:
    result = run("topics", "--bootstrap-server", "nowhere", "--list")
    assert result.exit_code == 1
    assert "'nowhere' is not host:port" in result.stdout


def test_broker_list_is_the_server_of_older_days(servers: str) -> None:
    result = run("get-offsets", "--broker-list", servers, "--topic", "nowhere")
    assert result.stderr.splitlines() == [
        "Option --broker-list is deprecated. Use --bootstrap-server instead.",
        "Error occurred: Could not match any topic-partitions with the specified filters",
    ]


def test_settings_come_from_a_file_and_single_ones_win(servers: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL\nssl.engine.factory.class=x\n")
    asked = ("topics", "--bootstrap-server", servers, "--list", "--command-config", file)
    result = run(*asked, "--command-property", "security.protocol=PLAINTEXT")
    assert result.exit_code == 0
    assert result.stderr == "WARN: these settings are not known: ssl.engine.factory.class\n"
    file.write_text("request.timeout.ms=soon")
    assert "request.timeout.ms" in run(*asked).stdout


OLD = [
    # As the study notes behind this project have them, and older scripts.
    ("get-offsets --broker-list {} -topic nowhere -time=-2", "Could not match any topic"),
    ("console-producer --broker-list {} --topic t --timeout 1", "--broker-list is deprecated"),
    ("topics --list --zookeeper zoo:2181", "use --bootstrap-server HOST:PORT"),
    (
        "reassign-partitions --zookeeper z --reassignment-json-file x --execute",
        "--bootstrap-server",
    ),
    ("console-consumer --zookeeper z --topic __consumer_offsets", "use --bootstrap-server"),
    ("console-consumer --bootstrap-server {} --whitelist t.*", "use --include"),
    (
        "console-consumer --bootstrap-server {} --topic t --timeout-ms 1 --new-consumer",
        "--new-consumer can be left out",
    ),
    (
        "producer-perf-test --broker-list {} --topic t --num-records 1 --throughput 1",
        "--record-size",
    ),
    ("configs --zookeeper z --alter", "use --bootstrap-server"),
    ("serve -daemon", "end the line with &"),
]


@pytest.mark.parametrize(("line", "said"), OLD)
def test_flags_of_older_days_are_taken_or_answered(servers: str, line: str, said: str) -> None:
    result = run(*line.format(servers).split())
    assert said in result.stderr
    assert "No such option" not in result.stderr


def test_formatters_are_known_by_the_names_of_their_old_classes(servers: str) -> None:
    name = "kafka.coordinator.GroupMetadataManager$OffsetsMessageFormatter"
    asked = ("--topic", "__consumer_offsets", "--max-messages", "0", "--formatter", name)
    result = run("console-consumer", "--bootstrap-server", servers, *asked)
    assert result.exit_code == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--command-config", "/nowhere/at/all"), "cannot read /nowhere/at/all"),
        (("--command-property", "=x"), "--command-property: '=x' is not name=value"),
        (("--bootstrap-controller", "h:1"), "No such option"),
    ],
)
def test_wrong_settings_are_refused(given: tuple[str, str], said: str) -> None:
    result = run("topics", "--bootstrap-server", "h:1", "--list", *given)
    assert result.exit_code == 1
    assert said in result.stderr.splitlines()[0]


def test_the_former_name_of_a_flag_is_taken_with_a_word(servers: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.touch()
    asked = ("cluster", "cluster-id", "--bootstrap-server", servers, "--config", file)
    result = run(*asked)
    assert result.exit_code == 0
    first, second = result.stdout.splitlines()
    assert first.startswith("Option --config has been deprecated")
    assert second.startswith("Cluster ID: ")
    both = run(*asked, "--command-config", file)
    assert both.exit_code == 1
    assert "cannot be specified together" in both.stderr


@pytest.mark.parametrize("tool", ["configs", "reassign-partitions", "features", "metadata-quorum"])
def test_the_controllers_are_reached_through_brokers(tool: str) -> None:
    result = run(tool, "--bootstrap-controller", "h:1", "--describe" if tool == "configs" else "x")
    assert result.exit_code == 1
