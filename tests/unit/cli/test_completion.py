"""Shells complete the commands and options of ``odradek``: their protocol, and bash itself."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from odradek.cli import name_completion
from odradek.cli.main import main
from odradek.cli.name_completion import VARIABLE, names_within
from odradek.client import BlockingConsumer, OffsetAndMetadata, TopicPartition
from odradek.testing.broker import Broker

COMMAND = Path(sys.executable).with_name("odradek")
SECONDS_MAX = 55
"""Less than a client waits for a broker by itself."""


def ask(shell: str, *words: str) -> list[str]:
    """Return what the command tells a shell that wants the last word completed."""
    return complete(shell, *words).stdout.split("\n")[:-1]


def complete(shell: str, *words: str) -> "subprocess.CompletedProcess[str]":
    at = words[-1] if shell == "fish" else str(len(words))
    line = {"COMP_WORDS": " ".join(("odradek", *words)), "COMP_CWORD": at}
    return subprocess.run(
        [COMMAND],
        env={**os.environ, **line, "_ODRADEK_COMPLETE": f"{shell}_complete"},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=True,
    )


def test_bash_is_told_names() -> None:
    assert ask("bash", "topics", "--partit") == [
        "plain,--partitions",
        "plain,--partition-size-limit-per-response",
    ]


def test_zsh_is_told_names_with_their_help() -> None:
    assert ask("zsh", "consumer-g") == [
        "plain",
        "consumer-groups",
        "List, describe and delete consumer groups; reset their offsets.",
    ]


def test_fish_is_told_names_with_their_help() -> None:
    (told,) = ask("fish", "features", "upg")
    assert told.split("\t")[0] == "plain,upgrade"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    topics = ["orders", "orders-late", "payments"]
    with Broker(memory=True, topics=topics) as started:
        with BlockingConsumer(
            "orders", bootstrap_servers=started.bootstrap_servers, group_id="billing"
        ) as consumer:
            while not consumer.assignment():
                consumer.poll(1)
            consumer.commit({TopicPartition("orders", 0): OffsetAndMetadata(0)})
        yield started


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("topics --bootstrap-server {} --describe --topic or", ["orders", "orders-late"]),
        ("topics --bootstrap-server={} --topic pay", ["payments"]),
        ("console-consumer --bootstrap-server {} --topic xyz", []),
        ("console-consumer --bootstrap-server {} --group b", ["billing"]),
        ("consumer-groups --bootstrap-server {} --describe --group", ["billing"]),
        ("verifiable-consumer --bootstrap-server {} --group-id bi", ["billing"]),
        ("transactions --bootstrap-server {} find-hanging --topic p", ["payments"]),
        ("configs --bootstrap-server {} --entity-type topics --entity-name p", ["payments"]),
        ("configs --bootstrap-server {} --entity-type groups --entity-name b", ["billing"]),
        ("log-dirs --bootstrap-server {} --topic-list orders,pa", ["orders,payments"]),
        ("topics --bootstrap-server {} --topic __consumer", ["__consumer_offsets"]),
    ],
)
def test_names_of_topics_and_groups_are_completed(
    broker: Broker, line: str, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(name_completion, "SECONDS_MAX", SECONDS_MAX)
    words = line.format(broker.bootstrap_servers).split()
    incomplete = "" if words[-1].startswith("--") else words.pop()
    found = ShellComplete(main, {}, "odradek", VARIABLE).get_completions(words, incomplete)
    assert [each.value for each in found] == names


def test_a_shell_is_told_names_of_topics(broker: Broker) -> None:
    line = ("topics", "--bootstrap-server", broker.bootstrap_servers, "--topic", "pa")
    # On a busy machine the time may be up before the broker has answered.
    told = next(filter(any, (ask("bash", *line) for _ in range(20))))
    assert told == ["plain,payments"]


@pytest.mark.parametrize(
    "given",
    [
        "",
        "--bootstrap-server 127.0.0.1:1",
        "--bootstrap-server {listening}",
        "--bootstrap-server {listening} --command-property security.protocol=NONSENSE",
    ],
)
def test_a_cluster_that_does_not_answer_is_no_names_and_no_word(given: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        listening = f"127.0.0.1:{deaf.getsockname()[1]}"
        ran = complete("bash", "topics", *given.format(listening=listening).split(), "--topic", "x")
    assert (ran.stdout.strip(), ran.stderr, ran.returncode) == ("", "", 0)


def test_names_that_take_too_long_are_not_waited_for() -> None:
    asked, is_over = threading.Event(), threading.Event()

    def slow() -> list[str]:
        asked.set()
        is_over.wait(SECONDS_MAX)
        return ["late"]

    assert names_within(slow, 0.01) is None
    assert asked.wait(SECONDS_MAX)
    is_over.set()


def test_values_are_completed_and_what_is_hidden_is_not() -> None:
    assert ask("bash", "completion", "z") == ["plain,zsh"]
    assert ask("bash", "topics", "--zoo") == [""]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script_that_asks(shell: str) -> None:
    result = CliRunner().invoke(main, ["completion", shell])
    assert result.exit_code == 0
    assert f"_ODRADEK_COMPLETE={shell}_complete" in result.stdout


def test_bash_completes_with_its_script(tmp_path: Path) -> None:
    script = CliRunner().invoke(main, ["completion", "bash"]).stdout
    (tmp_path / "completion.bash").write_text(script)
    program = (
        "source ./completion.bash; COMP_WORDS=(odradek reassign-partitions --prese); COMP_CWORD=2;"
        ' _odradek_completion odradek; echo "${COMPREPLY[@]}"'
    )
    path = os.pathsep.join((str(COMMAND.parent), os.environ["PATH"]))
    ran = subprocess.run(
        ["bash", "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=True,
    )
    assert ran.stdout == "--preserve-throttles\n"
