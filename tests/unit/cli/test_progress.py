"""A bar for whoever watches a terminal, and nothing at all elsewhere."""

import asyncio
import io

import pytest

from odradek.cli.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def known_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")


async def work(stream: io.StringIO) -> None:
    async with Progress("sent", 4, stream) as progress:
        progress.done = 1
        while stream.isatty() and "1/4" not in stream.getvalue():
            await asyncio.sleep(0.01)
        progress.say("a line")


def test_a_terminal_has_a_bar_that_is_gone_in_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    stream = Terminal()
    asyncio.run(asyncio.wait_for(work(stream), 120))
    assert "sent │███████▌ " in stream.getvalue()
    assert stream.getvalue().endswith("\r\x1b[2K")
    assert capsys.readouterr().out == "a line\n"


@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
def test_a_file_and_a_dumb_terminal_have_none(
    kind: type[io.StringIO], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind is Terminal:
        monkeypatch.setenv("TERM", "dumb")
    stream = kind()

    async def silent() -> None:
        async with Progress("sent", 4, stream) as progress:
            progress.done = 1
            progress.say("a line")

    asyncio.run(silent())
    assert stream.getvalue() == ""
    assert capsys.readouterr().out == "a line\n"


@pytest.mark.parametrize(
    ("done", "seconds", "end"),
    [
        (0, 5, "│ 0/200   0%"),
        (50, 30, "│ 50/200  25%, 1:30 left"),
        (200, 30, "│ 200/200 100%"),
        (300, 30, "│ 300/200 100%"),
    ],
)
def test_the_time_left_follows_from_the_time_gone(done: int, seconds: float, end: str) -> None:
    progress = Progress("read", 200, io.StringIO())
    progress.done = done
    assert progress.line(seconds).endswith(end)
