"""The ``odradek`` command as a user runs it."""

from click.testing import CliRunner

from odradek.cli.main import main


def test_protocol_lists_every_api() -> None:
    result = CliRunner().invoke(main, ["protocol"])
    assert result.exit_code == 0
    assert len(result.output.splitlines()) == 91
    assert "1 Fetch 4-18" in result.output


def test_version_names_the_package() -> None:
    result = CliRunner().invoke(main, ["--version"])
    assert result.exit_code == 0
    assert "0.1.0" in result.output
