"""Shells complete the commands and options of ``odradek``: their protocol, and bash itself."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from odradek.cli.main import main

COMMAND = Path(sys.executable).with_name("odradek")
SECONDS_MAX = 120


def ask(shell: str, *words: str) -> list[str]:
    """Return what the command tells a shell that wants the last word completed."""
    at = words[-1] if shell == "fish" else str(len(words))
    line = {"COMP_WORDS": " ".join(("odradek", *words)), "COMP_CWORD": at}
    ran = subprocess.run(
        [COMMAND],
        env={**os.environ, **line, "_ODRADEK_COMPLETE": f"{shell}_complete"},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=True,
    )
    return ran.stdout.split("\n")[:-1]


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
