"""A small file system of its own for a test: a tmpfs, where this user may mount one."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PIECE = bytes(16 * 1024)


@contextmanager
def small_disk(folder: Path, size_mib: int) -> Iterator[Path]:
    """Mount it on ``folder``; skip the test, with the reason, where that is not permitted."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(path: Path) -> int:
    """Take all that is left of a disk, as another program would; return how many bytes."""
    count = 0
    with path.open("ab", buffering=0) as file:
        try:
            while True:
                count += file.write(PIECE)
        except OSError:
            return count
