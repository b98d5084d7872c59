"""The sessions in the README work as printed, one after the other."""

import doctest
import re
from pathlib import Path

README = Path(__file__).parents[3] / "README.md"


def test_sessions_work_as_printed() -> None:
    sessions = re.findall(r"```pycon\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(sessions) >= 3
    text = "\n".join(sessions)
    test = doctest.DocTestParser().get_doctest(text, {}, "README", str(README), 0)
    failures: list[str] = []
    doctest.DocTestRunner().run(test, out=failures.append)
    assert not failures, "".join(failures)
