"""What a client needs and this repository does not hold, made once per machine into `.cache`.

Each folder is made from source files kept here, lock files among them; a digest of these lies
beside it, so an edit makes it anew and a second run needs no network. It appears by rename, under a
file lock: any number of pytest-xdist workers may ask at once, and a killed download leaves nothing
half done. A download that fails raises: only a missing runtime is a reason to skip.
"""

import fcntl
import hashlib
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import pytest

from tests.interop.kafka_peer.jars import cache_folder

FETCH_SECONDS_MAX = 600


def skip(reason: str) -> NoReturn:
    pytest.skip(reason)


def runtime(name: str) -> str:
    """Path of a command; a machine without it skips the test."""
    found = shutil.which(name)
    if found is None:
        skip(f"no `{name}` on the PATH")
    return found


def fetched(name: str, sources: Iterable[Path], make: Callable[[Path], None]) -> Path:
    """The folder `.cache/<name>/made`, filled by `make` if it is not there or sources changed."""
    home = cache_folder() / name
    home.mkdir(parents=True, exist_ok=True)
    made, digest = home / "made", _digest(sources)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = made / ".digest"
        if not stamp.exists() or stamp.read_text() != digest:
            partial = home / "partial"
            shutil.rmtree(partial, ignore_errors=True)
            shutil.rmtree(made, ignore_errors=True)
            partial.mkdir()
            make(partial)
            (partial / ".digest").write_text(digest)
            partial.rename(made)
    return made


def run(command: Sequence[str], cwd: Path, environment: Mapping[str, str] | None = None) -> str:
    """Run a step of `make`; gives what it printed."""
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=cwd,
        env=environment,
        timeout=FETCH_SECONDS_MAX,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout[-4000:]}")
    return done.stdout


def _digest(sources: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for source in sorted(sources):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()
