"""docs/testing.md says what works: its examples are run."""

import re
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

GUIDE = Path(__file__).parents[3] / "docs" / "testing.md"


def blocks(language: str) -> list[str]:
    """Return the examples, with limits that a busy machine keeps."""
    text = re.sub(r"(flush\(|timeout=)10\)", r"\g<1>120)", GUIDE.read_text())
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


PROGRAMS = [block for block in blocks("python") if "def test_" not in block]
TESTS = [block for block in blocks("python") if "def test_" in block]


def test_there_is_something_to_run() -> None:
    assert len(PROGRAMS) == 5
    assert len(TESTS) == 4
    assert len(blocks("ini")) == 1


@pytest.mark.parametrize("program", PROGRAMS, ids=range(len(PROGRAMS)))
def test_programs_run(program: str) -> None:
    exec(compile(program, str(GUIDE), "exec"), {"__name__": "guide"})


def test_tests_pass(pytester: pytest.Pytester) -> None:
    pytester.makeini(blocks("ini")[0])
    pytester.makepyfile("\n\n".join(TESTS))
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=len(TESTS))
