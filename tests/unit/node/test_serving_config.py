"""What ``odradek serve`` runs with: its own profile, weaker than anything that was given."""

from pathlib import Path

import pytest

from odradek.node.serving import load_config

DELAY = "group.initial.rebalance.delay.ms"
FILE = "process.roles=broker,controller\nnode.id=1\nlog.dirs=/nowhere\n"


def delay(file: Path | None = None, *overrides: str) -> int:
    return load_config(file, overrides).config.integer(DELAY)


def test_a_node_without_a_config_does_not_wait_for_members() -> None:
    assert delay() == 0


def test_a_delay_that_was_given_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert delay(None, f"{DELAY}=700") == 700
    monkeypatch.setenv("ODRADEK_GROUP_INITIAL_REBALANCE_DELAY_MS", "800")
    assert delay() == 800


def test_a_node_with_a_file_has_kafkas_default(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(FILE)
    assert delay(file) == 3_000
    file.write_text(f"{FILE}{DELAY}=900\n")
    assert delay(file) == 900
