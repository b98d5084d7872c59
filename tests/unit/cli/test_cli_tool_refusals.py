"""Flags that do not go together, or lack something: told before anything is asked of a server."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from odradek.cli.main import main
from odradek.testing.broker import Broker

NO_SERVER = ("--bootstrap-server", "127.0.0.1:1")


def run(tool: str, *arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [tool, *NO_SERVER, *map(str, arguments)])


REFUSED = [
    ("topics", "--list --create", "Command must include exactly one action: --list"),
    ("topics", "--topic x", "Command must include exactly one action"),
    ("topics", "--create", 'Missing required argument "[topic]"'),
    ("topics", "--alter --topic x", 'Missing required argument "[partitions]"'),
    ("topics", "--alter --topic x --config a=b", "use odradek configs"),
    ("topics", "--list --config a=b", '"[config]" can\'t be used with option "[list]"'),
    ("topics", "--list --if-exists", '"[if-exists]" can\'t be used'),
    ("topics", "--describe --if-not-exists", '"[if-not-exists]" can\'t be used'),
    ("topics", "--delete --topic x --exclude-internal", "can't be used"),
    (
        "topics",
        "--create --topic x --replica-assignment 1 --partitions 1",
        '"[replica-assignment]" can\'t be used with option "[partitions]"',
    ),
    (
        "topics",
        "--describe --unavailable-partitions --topics-with-overrides",
        'can\'t be used with option "[topics-with-overrides]"',
    ),
    ("topics", "--describe --if-exists", "--topic or --topic-id is required"),
    ("topics", "--create --topic x --partitions many", "Invalid value for '--partitions'"),
    ("configs", "--topic x", "exactly one action: --describe, --alter"),
    ("configs", "--describe", "At least one entity type must be specified"),
    ("configs", "--describe --entity-type cats", "Invalid entity type cats"),
    ("configs", "--describe --topic x --broker 1", "One entity type and one entity name"),
    ("configs", "--describe --topic x --entity-type topics", "should not be used in conjunction"),
    ("configs", "--describe --topic x --add-config a=b", "can't be used with option"),
    ("configs", "--describe --broker one", "must be a valid integer broker id"),
    ("configs", "--describe --entity-type topics --entity-default", "must not be specified"),
    ("configs", "--describe --entity-type broker-loggers", "An entity name must be specified"),
    ("configs", "--alter --topic x", "At least one of --add-config"),
    ("configs", "--alter --entity-type topics --add-config a=b", "An entity name must be"),
    ("configs", "--alter --topic x --add-config a", "Invalid entity config"),
    ("configs", "--alter --topic x --add-config a/b=c", "Invalid character found"),
    ("configs", "--alter --topic x --add-config a=b --delete-config a", "set and taken back"),
    ("configs", "--describe --client c", "comes later"),
    ("consumer-groups", "--list --delete", "Command must include exactly one action: --list"),
    ("consumer-groups", "--describe", "Option [describe] takes one of these options"),
    ("consumer-groups", "--delete", "Option [delete] takes one of these options"),
    ("consumer-groups", "--delete --group g --topic t", "does not support topic-specific"),
    ("consumer-groups", "--delete-offsets --group g", "takes the following options"),
    ("consumer-groups", "--list --group g", '"[group]" can\'t be used with option "[list]"'),
    ("consumer-groups", "--list --members", "Option(s) [members] are unavailable"),
    ("consumer-groups", "--describe --group g --type", "Option(s) [type] are unavailable"),
    ("consumer-groups", "--describe --group g --members --state", "takes at most one of these"),
    ("consumer-groups", "--describe --group g --state Empty", "does not take a value"),
    ("consumer-groups", "--describe --group g --all-groups", "can't be used with option"),
    ("consumer-groups", "--reset-offsets --to-latest", "takes one of these options"),
    (
        "consumer-groups",
        "--reset-offsets --group g --topic t --dry-run",
        "requires one of the following scenarios",
    ),
    (
        "consumer-groups",
        "--reset-offsets --group g --to-latest --dry-run",
        "One of the reset scopes should be defined",
    ),
    (
        "consumer-groups",
        "--reset-offsets --group g --topic t --to-latest --to-earliest --dry-run",
        "can't be used with option",
    ),
    (
        "consumer-groups",
        "--reset-offsets --group g --topic t --to-latest --dry-run --execute",
        "only accepts one of",
    ),
    ("groups", "--consumer", "exactly one action: --list"),
    ("groups", "--list --group-type cats", "--group-type must be a valid group type."),
    ("groups", "--list --consumer --share", "can't be used with option"),
    ("delete-records", "", "Missing option '--offset-json-file'"),
    ("log-dirs", "--topic-list x", 'Missing required argument "[describe]"'),
    ("log-dirs", "--describe --broker-list x", "is not ID,ID"),
    ("leader-election", "--topic t --partition 0", "Missing option '--election-type'"),
    ("leader-election", "--election-type any --topic t", "Invalid value for '--election-type'"),
    ("leader-election", "--election-type unclean", "One and only one of the following"),
    ("leader-election", "--election-type unclean --topic t", "Missing required option(s)"),
    (
        "leader-election",
        "--election-type unclean --all-topic-partitions --partition 1",
        "only allowed if topic is used",
    ),
    ("reassign-partitions", "--broker-list 1", "exactly one action: --generate"),
    ("reassign-partitions", "--generate --broker-list 1", 'argument "[topics-to-move-json-file]"'),
    ("reassign-partitions", "--execute", 'Missing required argument "[reassignment-json-file]"'),
    ("reassign-partitions", "--list --throttle 5", 'can\'t be used with action "[list]"'),
    ("reassign-partitions", "--verify --reassignment-json-file x --timeout 5", "can't be used"),
    ("reassign-partitions", "--generate --json --broker-list 1", 'argument "[topics-to-move'),
    ("features", "bogus", "No such command 'bogus'"),
    ("features", "describe --node-id -1", "Invalid value for '--node-id'"),
    ("transactions", "describe", "Missing option '--transactional-id'"),
    ("transactions", "abort --topic t", "Missing option '--partition'"),
    ("metadata-quorum", "remove-controller", "Missing option '--controller-id'"),
]


@pytest.mark.parametrize(("tool", "arguments", "said"), REFUSED)
def test_a_wrong_call_is_refused_on_stderr(tool: str, arguments: str, said: str) -> None:
    result = run(tool, *arguments.split())
    assert (result.exit_code, result.stdout) == (1, "")
    assert said in " ".join(result.stderr.splitlines()[:2])


LATER = [
    ("configs", "--alter --entity-type clients --entity-name c --add-config a=b"),
]


@pytest.mark.parametrize(("tool", "arguments"), LATER)
def test_what_comes_later_says_so_in_one_line(tool: str, arguments: str) -> None:
    result = run(tool, *arguments.split())
    assert (result.exit_code, result.stdout) == (1, "")
    assert len(result.stderr.splitlines()) == 1
    assert "comes later" in result.stderr


def test_a_reset_that_does_nothing_is_warned_of() -> None:
    result = run("consumer-groups", "--reset-offsets", "--group", "g", "--to-latest")
    assert result.stderr.startswith("WARN: No action will be performed")


@pytest.mark.parametrize("pattern", ["a(b", "(?=x)"])
def test_patterns_that_the_broker_would_not_take(pattern: str) -> None:
    asked = ["consumer-groups", "--validate-regex", pattern]
    result = CliRunner().invoke(main, asked)
    assert result.exit_code == 1
    assert result.stdout.startswith(f"The regular expression `{pattern}` is invalid: ")


@pytest.mark.parametrize(
    ("tool", "flags", "content", "said"),
    [
        ("delete-records", "--offset-json-file", "{", "not a valid JSON"),
        ("delete-records", "--offset-json-file", "[]", "Expected JSON object, received []"),
        ("delete-records", "--offset-json-file", '{"version": 2}', "Not supported version"),
        ("delete-records", "--offset-json-file", "{}", "Missing partitions field"),
        (
            "delete-records",
            "--offset-json-file",
            '{"partitions": [{}]}',
            "No such field exists: `topic`",
        ),
        ("delete-records", "--offset-json-file", '{"partitions": [7]}', "JSON object, received 7"),
        (
            "leader-election",
            "--election-type unclean --path-to-json-file",
            json.dumps({"partitions": 2 * [{"topic": "t", "partition": 0}]}),
            "Replica election data contains duplicate partitions: [t-0]",
        ),
        (
            "reassign-partitions",
            "--generate --broker-list 1 --topics-to-move-json-file",
            json.dumps({"topics": 2 * [{"topic": "t"}]}),
            "List of topics to reassign contains duplicate entries: [t]",
        ),
        (
            "reassign-partitions",
            "--generate --broker-list 1,1 --topics-to-move-json-file",
            '{"topics": []}',
            "Broker list contains duplicate entries: [1]",
        ),
    ],
)
def test_files_that_are_something_else(
    odradek_broker: Broker, tmp_path: Path, tool: str, flags: str, content: str, said: str
) -> None:
    file = tmp_path / "plan.json"
    file.write_text(content)
    servers = ["--bootstrap-server", odradek_broker.bootstrap_servers]
    asked = [tool, *servers, *flags.split(), str(file)]
    result = CliRunner().invoke(main, asked)
    assert result.exit_code == 1
    assert said in result.output
