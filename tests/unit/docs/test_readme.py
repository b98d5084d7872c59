"""The sessions in the README work as printed."""

import doctest
import re
from pathlib import Path

import pytest

README = Path(__file__).parents[3] / "README.md"
SESSIONS = re.findall(r"```pycon\n(.*?)```", README.read_text(), re.DOTALL)


def test_the_readme_has_sessions() -> None:
    assert SESSIONS


@pytest.mark.parametrize("session", SESSIONS)
def test_session_works_as_printed(session: str) -> None:
    test = doctest.DocTestParser().get_doctest(session, {}, "README", str(README), 0)
    failures: list[str] = []
    doctest.DocTestRunner().run(test, out=failures.append)
    assert not failures, "".join(failures)
