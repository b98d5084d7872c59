"""The ends of files that grow, and what is added to them."""

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

TAIL_BYTES_MAX: Final = 1 << 20
POLL_SECONDS: Final = 0.1


def last_lines(prefixes: Mapping[Path, str], count: int) -> Iterator[str]:
    """Return the last lines of each file, with its prefix; a file that is missing has none."""
    for file, prefix in prefixes.items():
        if not file.exists():
            continue
        with file.open("rb") as stream:
            stream.seek(max(file.stat().st_size - TAIL_BYTES_MAX, 0))
            lines = stream.read().decode(errors="replace").splitlines()
        for line in lines[len(lines) - count if count < len(lines) else 0 :]:
            yield f"{prefix}{line}"


def follow_files(prefixes: Mapping[Path, str], say: Callable[[str], None]) -> None:
    """Say the lines that are added to files from now on, until Ctrl-C."""
    positions = {file: file.stat().st_size if file.exists() else 0 for file in prefixes}
    try:
        while True:
            for file, prefix in prefixes.items():
                for line in _added(file, positions):
                    say(f"{prefix}{line}")
            time.sleep(POLL_SECONDS)
    except KeyboardInterrupt:
        return


def _added(file: Path, positions: dict[Path, int]) -> list[str]:
    """Return the lines that are whole, and move on behind them."""
    if not file.exists():
        return []
    with file.open("rb") as stream:
        stream.seek(positions[file])
        added = stream.read(TAIL_BYTES_MAX)
    whole, newline, _ = added.rpartition(b"\n")
    positions[file] += len(whole) + len(newline)
    return whole.decode(errors="replace").splitlines()
