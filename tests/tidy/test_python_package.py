"""Odradek is a Python package: nothing in it needs another language to run."""

from importlib.metadata import distribution
from pathlib import Path

import pytest

import odradek
from odradek.cli.main import main

SOURCE = Path(odradek.__file__).parent
PYTHON = {".py", ".pyi", ".pyx", ".typed"}
"""Cython's .pyx is the optional twin of a module in Python."""
MADE = {".pyc", ".so", ".c"}
DEFINITIONS = {".kmsg"}


@pytest.mark.seed_row("U.1")
def test_its_sources_are_python() -> None:
    files = [path for path in SOURCE.rglob("*") if path.is_file() and path.suffix not in MADE]
    assert len(files) > 300
    assert [path for path in files if path.suffix not in PYTHON | DEFINITIONS] == []
    (twin,) = [path for path in files if path.suffix == ".pyx"]
    assert twin.with_name("codec.py").exists()


@pytest.mark.seed_row("U.1")
def test_it_is_installed_as_a_package_with_one_command() -> None:
    package = distribution("odradek")
    assert package.metadata["Name"] == "odradek"
    assert package.metadata["Requires-Python"] == ">=3.11"
    commands = package.entry_points.select(group="console_scripts")
    assert {each.name: each.load() for each in commands} == {"odradek": main}
