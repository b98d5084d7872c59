"""What the documents show works as printed."""

import asyncio
import doctest
import re
import textwrap
from pathlib import Path
from typing import Any

from odradek.testing.broker import Broker

ROOT = Path(__file__).parents[3]


def test_the_sessions_of_the_library_work_as_printed() -> None:
    path = ROOT / "docs" / "library.md"
    sessions = re.findall(r"```pycon\n(.*?)```", path.read_text(), re.DOTALL)
    assert len(sessions) == 3
    test = doctest.DocTestParser().get_doctest("\n".join(sessions), {}, path.name, str(path), 0)
    failures: list[str] = []
    doctest.DocTestRunner().run(test, out=failures.append)
    assert not failures, "".join(failures)


def test_the_client_of_the_readme_gets_back_what_it_sent() -> None:
    text = (ROOT / "README.md").read_text()
    (example,) = re.findall(r"## A client\n\n```python\n(.*?)```", text, re.DOTALL)
    printed: list[Any] = []
    names: dict[str, Any] = {"print": printed.append}
    with Broker() as broker:
        code = textwrap.indent(example.replace("127.0.0.1:9092", broker.bootstrap_servers), "    ")
        exec(f"async def example():\n{code}", names)
        asyncio.run(asyncio.wait_for(names["example"](), 180))
    sent, received = printed
    assert (sent.topic, sent.offset, received) == ("orders", 0, b"an order")
