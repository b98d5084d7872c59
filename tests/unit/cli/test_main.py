"""The ``odradek`` command as a user runs it."""

from importlib.metadata import version

import pytest
from click.testing import CliRunner

import odradek
from odradek.cli.main import main
from odradek.core.config.definitions import BROKER_CONFIGS


def test_protocol_lists_every_api() -> None:
    result = CliRunner().invoke(main, ["protocol"])
    assert result.exit_code == 0
    assert len(result.output.splitlines()) == 91
    assert "1 Fetch 4-18" in result.output


def test_version_names_the_package() -> None:
    result = CliRunner().invoke(main, ["--version"])
    assert result.exit_code == 0
    assert "0.1.0" in result.output


def test_the_package_has_its_version_too() -> None:
    assert odradek.__version__ == version("odradek") == "0.1.0"
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        odradek.nonsense  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.seed_row("1.2")
def test_production_is_advised_against_topics_on_demand() -> None:
    """In the help of the server, and where the config is described."""
    shown = " ".join(CliRunner().invoke(main, ["serve", "--help"]).output.split())
    assert "In production set auto.create.topics.enable=false" in shown
    definition = BROKER_CONFIGS["auto.create.topics.enable"]
    assert definition.default_text == "true", "as in Kafka"
    assert "production turns this off" in definition.documentation


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("tpoics", "topics"),
        ("console-consumr", "console-consumer"),
        ("kafka-topics.sh", "topics"),
        ("kafka-server-start", "serve"),
        ("features upgade", "upgrade"),
    ],
)
def test_a_command_that_is_misspelt_is_answered_with_the_nearest(typed: str, meant: str) -> None:
    result = CliRunner().invoke(main, typed.split())
    assert result.exit_code != 0
    word = typed.split()[-1]
    assert f"No such command '{word}'. Did you mean '{meant}'?" in result.stderr


def test_a_command_that_is_like_none_is_answered_with_where_they_are_listed() -> None:
    result = CliRunner().invoke(main, ["xyzzy"])
    assert "No such command 'xyzzy'." in result.stderr
    assert "Did you mean" not in result.stderr
    assert "Try 'main --help'" in result.stderr
