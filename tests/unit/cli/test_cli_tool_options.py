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
    "client-metrics",
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


@pytest.mark.parametrize("tool", [*ADMIN_TOOLS, *GROUPS])
def test_a_refusal_does_not_drown_in_the_list_of_options(tool: str) -> None:
    result = run(tool, "--bogus", "x")
    told = result.stderr.splitlines()
    assert len(told) <= 4
    assert f"Try 'main {tool} --help'" in told[-1]


@pytest.mark.seed_row("2.3")
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
    result = run("transactions", "list")
    assert result.exit_code == 1
    assert result.stderr.startswith("You must specify --bootstrap-server")


def test_nobody_there_is_a_warning_one_line_and_exit_code_one() -> None:
    quick = ("--command-property", "default.api.timeout.ms=2000")
    result = run("log-dirs", "--bootstrap-server", "127.0.0.1:1", "--describe", *quick)
    assert (result.exit_code, result.stdout) == (1, "")
    warning, reason = result.stderr.splitlines()
    assert warning.startswith("WARN: ")
    assert "127.0.0.1:1: connection refused" in warning
    assert reason.startswith("no answer from 127.0.0.1:1 after 2000 ms")
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


CONTROLLER = ("--bootstrap-controller", "h:1")
SERVER = ("--bootstrap-server", "h:1")


@pytest.mark.parametrize(
    ("called", "both", "neither"),
    [
        (
            ("cluster", "cluster-id"),
            "argument --bootstrap-controller/-C: not allowed with argument --bootstrap-server/-b",
            "one of the arguments --bootstrap-server/-b --bootstrap-controller/-C is required",
        ),
        (
            ("configs", "--describe", "--broker-defaults"),
            "Only one of --bootstrap-server or --bootstrap-controller can be specified",
            "Either --bootstrap-server or --bootstrap-controller must be specified.",
        ),
        (
            ("reassign-partitions", "--list"),
            "Please don't specify both --bootstrap-server and --bootstrap-controller",
            "Please specify either --bootstrap-server or --bootstrap-controller",
        ),
    ],
)
def test_brokers_or_controllers_and_not_both(
    called: tuple[str, ...], both: str, neither: str
) -> None:
    result = run(*called, *SERVER, *CONTROLLER)
    assert (result.exit_code, result.stderr.splitlines()[0]) == (1, both)
    result = run(*called)
    assert (result.exit_code, result.stderr.splitlines()[0]) == (1, neither)


@pytest.mark.parametrize("tool", ["features", "metadata-quorum"])
def test_brokers_or_controllers_before_a_command(tool: str) -> None:
    result = run(tool, *SERVER, *CONTROLLER, "describe")
    both = "argument --bootstrap-controller: not allowed with argument --bootstrap-server"
    assert (result.exit_code, result.stderr.splitlines()[0]) == (1, both)
    result = run(tool, "describe")
    assert result.exit_code == 1
    assert "either --bootstrap-controller or --bootstrap-server" in result.stderr.splitlines()[0]


def test_what_controllers_cannot_do_is_refused_before_they_are_asked(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    asked = ("--verify", "--reassignment-json-file", file)
    result = run("reassign-partitions", *CONTROLLER, *asked)
    said = 'Option "[bootstrap-controller]" can\'t be used with action "[verify]"'
    assert (result.exit_code, result.stderr.splitlines()[0]) == (1, said)
    result = run("cluster", "list-endpoints", *CONTROLLER, "--include-fenced-brokers")
    said = "The option --include-fenced-brokers is only supported with --bootstrap-server option"
    assert (result.exit_code, result.stderr.splitlines()[0]) == (1, said)


def test_the_flag_wins_over_both_addresses_of_a_file(servers: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.controllers=nowhere:1\nbootstrap.servers=nowhere:1\n")
    result = run("cluster", "cluster-id", "-b", servers, "-c", file)
    assert result.exit_code == 0, result.output
