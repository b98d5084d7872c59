"""Where kcat comes from.

The one on the PATH is taken. Else, where `apt-get` is, the distribution's packages are downloaded
and unpacked into `.cache`, which needs no root; package lists go there too. Its version is the
distribution's, there being no lock file for apt.
"""

import os
import re
import shutil
from pathlib import Path

from tests.interop.programs.fetched import fetched, run, skip

# The C library must be the machine's own; the distribution's other libraries fit it.
NOT_UNPACKED = re.compile(r"libc6|libgcc-.*|gcc-.*")
LIBRARIES = "usr/lib/*-linux-gnu*/"
UNWANTED = ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")


def kcat_program() -> list[str]:
    """Command line of kcat; a machine with neither it nor apt skips the test."""
    if found := shutil.which("kcat") or shutil.which("kafkacat"):
        return [found]
    if shutil.which("apt-get") is None:
        skip("no `kcat` on the PATH, and no `apt-get` to download it")
    root = fetched("kcat", [Path(__file__)], _download)
    libraries = os.pathsep.join(str(path) for path in root.glob(LIBRARIES))
    return ["/usr/bin/env", f"LD_LIBRARY_PATH={libraries}", str(root / "usr/bin/kcat")]


def _download(root: Path) -> None:
    lists, packages = root / "lists", root / "packages"
    for folder in (lists / "partial", packages):
        folder.mkdir(parents=True)
    # Directories of this user's: apt's own are root's.
    own = [
        *("-o", f"Dir::State::Lists={lists}", "-o", f"Dir::Cache={packages}"),
        *("-o", "APT::Sandbox::User="),
    ]
    run(["apt-get", *own, "--quiet", "update"], root)
    options = ["--recurse", *(f"--no-{kind}" for kind in UNWANTED)]
    listed = run(["apt-cache", *own, "depends", *options, "kcat"], root).splitlines()
    names = {line for line in listed if re.match(r"\w", line) and not NOT_UNPACKED.fullmatch(line)}
    run(["apt-get", *own, "--quiet", "download", *sorted(names)], packages)
    for package in packages.glob("*.deb"):
        run(["dpkg", "--extract", str(package), str(root)], root)
    shutil.rmtree(lists)
    shutil.rmtree(packages)
