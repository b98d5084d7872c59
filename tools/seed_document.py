"""docs/seed-rows.md: what the notes describe, and the tests that show it."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.seed_rows import NOTES, SEED_ROWS, SeedRow
from tools.seed_marks import SeedMark, read_marks

_HEAD: Final = """\
# What the notes describe, and what shows it

Made by `make docs` from the tests; do not edit. Odradek was written from five study notes on Kafka.
Each row is one thing that they describe, in our words, with the tests that show that it works. A
test names its rows (`@pytest.mark.seed_row("3.2")`), the rows are in `tests/seed_rows.py`, and
`tests/tidy/test_seed_rows.py` fails if a row has no test. Where a note and Kafka differ, Odradek
does what Kafka does.
"""


def render_seed_rows(root: Path) -> str:
    marks = read_marks(root / "tests")
    return "\n".join([_HEAD, *(line for note in NOTES for line in _section(root, note, marks))])


def _section(root: Path, note: str, marks: Sequence[SeedMark]) -> Iterator[str]:
    yield f"## {NOTES[note]}\n"
    yield "| row | part | what is described | tests that show it |"
    yield "|---|---|---|---|"
    for row in SEED_ROWS:
        if row.number.startswith(f"{note}."):
            yield _line(root, row, [mark for mark in marks if mark.row == row.number])
    yield ""


def _line(root: Path, row: SeedRow, marks: Sequence[SeedMark]) -> str:
    tests = "; ".join(_link(root, mark) for mark in marks)
    return f"| {row.number} | {row.part} | {row.description} | {tests} |"


def _link(root: Path, mark: SeedMark) -> str:
    """Name a test by its claim. No line: it would change with every line above it."""
    claim = mark.test.rpartition("::")[2].removeprefix("test_").replace("_", " ")
    return f"[{claim}](../{mark.path.relative_to(root).as_posix()})"
