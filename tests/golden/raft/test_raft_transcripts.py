"""Whole conversations of a quorum, as files that people can read; each must come out the same.

After a change that is meant, ``python -m tests.golden.raft.test_raft_transcripts`` writes them anew
and ``git diff`` shows what it comes to. The commands are explained in ``stage``.
"""

from pathlib import Path

import pytest

from tests.golden.raft.stage import Stage

FOLDER = Path(__file__).with_name("transcripts")
TRANSCRIPTS = sorted(FOLDER.glob("*.txt"))
OUTPUT = "    "


def played(text: str) -> str:
    """Return a transcript with the output that its commands have now."""
    stage, lines = Stage(), []
    for line in text.splitlines():
        if line.startswith(OUTPUT):
            continue
        lines.append(line)
        if line and not line.startswith("#"):
            lines += [OUTPUT + each for each in stage.perform(line)]
    return "\n".join(lines) + "\n"


def test_there_are_transcripts() -> None:
    assert len(TRANSCRIPTS) >= 8


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_a_quorum_says_and_does_what_is_written(path: Path) -> None:
    text = path.read_text()
    assert played(text) == text


if __name__ == "__main__":
    for each in TRANSCRIPTS:
        each.write_text(played(each.read_text()))
