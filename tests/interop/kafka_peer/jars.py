"""Kafka's jars, copied once by Maven from what a pom.xml names.

The result is `<cache>/kafka-<version>/libs`, where <cache> is `.cache` in the repository root or
what ODRADEK_PEER_CACHE names. A copy of the pom lies beside the jars: an edited pom makes them
anew. The folder appears by rename, under a file lock, so any number of pytest-xdist workers may
ask at once and a killed download leaves nothing half done.
"""

import fcntl
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

POM = Path(__file__).with_name("pom.xml")
REPOSITORY = Path(__file__).parents[3]
DOWNLOAD_SECONDS_MAX = 600
_POM_NAMESPACE = "{http://maven.apache.org/POM/4.0.0}"


class PeerUnavailableError(Exception):
    """A real Kafka cannot be had on this machine; the message says what is missing."""


def kafka_version(pom: Path = POM) -> str:
    version = ElementTree.parse(pom).findtext(f".//{_POM_NAMESPACE}kafka.version")
    assert version, f"{pom} names no kafka.version"
    return version


KAFKA_VERSION = kafka_version()


def java() -> str:
    found = shutil.which("java")
    if found is None:
        raise PeerUnavailableError("no `java` on the PATH: Kafka 4.x needs Java 17 or later")
    return found


def class_path(libs: Path) -> str:
    return f"{libs}{os.sep}*"


@cache
def resolve_jars(pom: Path = POM) -> Path:
    """The folder that holds Kafka's jars; the first call on a machine downloads them."""
    java()
    home = cache_folder() / f"kafka-{kafka_version(pom)}"
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_current(home / "libs", pom):
            _download(home / "libs", pom)
    return home / "libs"


def cache_folder() -> Path:
    return Path(os.environ.get("ODRADEK_PEER_CACHE") or REPOSITORY / ".cache")


def _is_current(libs: Path, pom: Path) -> bool:
    copy = libs / "pom.xml"
    return copy.exists() and copy.read_bytes() == pom.read_bytes()


def _download(libs: Path, pom: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise PeerUnavailableError("no `mvn` on the PATH: Maven fetches Kafka's jars")
    partial = libs.with_name("libs.partial")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.rmtree(libs, ignore_errors=True)
    run = subprocess.run(
        [
            *(maven, "--batch-mode", "--quiet", "--file", str(pom)),
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
            f"-DoutputDirectory={partial}",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DOWNLOAD_SECONDS_MAX,
        check=False,
    )
    if run.returncode != 0:
        # Not PeerUnavailableError: with Maven there, a failed download is a failure, not a skip.
        raise RuntimeError(f"Maven could not fetch Kafka's jars:\n{run.stdout[-4000:]}")
    shutil.copyfile(pom, partial / "pom.xml")
    partial.rename(libs)
