"""How far long work is: a bar at the bottom of a terminal, and nothing where nobody watches.

    async with Progress("sent", records) as progress:
        progress.done += 1                  # as often as you like: it is drawn a few times a second
        progress.say("a line of output")    # goes above the bar

The bar is on stderr, so that output in a file or a pipe is what it is without one.
"""

import asyncio
import os
import sys
import time
from contextlib import suppress
from types import TracebackType
from typing import Final, Self, TextIO

import click

from odradek.cli.text_plot import bar

_DRAW_SECONDS: Final = 0.2
_WIDTH: Final = 30
_ERASE: Final = "\r\x1b[2K"


class Progress:
    def __init__(self, label: str, total: int, stream: TextIO | None = None) -> None:
        """Expect ``total`` of something; ``stream`` is stderr unless a test has its own."""
        self.label = label
        self.total = total
        self.done = 0
        self._stream = sys.stderr if stream is None else stream
        self._is_shown = _is_terminal(self._stream)
        self._start = time.monotonic()
        self._drawing: asyncio.Task[None] | None = None

    def say(self, line: str, *, err: bool = False) -> None:
        """Print a line where no bar is in its way."""
        self._erase()
        click.echo(line, err=err)

    def line(self, elapsed_seconds: float) -> str:
        """Return what is shown after such a time."""
        share = min(self.done / self.total, 1.0) if self.total else 1.0
        text = f"{self.label} │{bar(share, _WIDTH)}│ {self.done}/{self.total} {share:4.0%}"
        if not self.done or share == 1.0:
            return text
        return f"{text}, {_duration(elapsed_seconds / share - elapsed_seconds)} left"

    async def __aenter__(self) -> Self:
        if self._is_shown:
            self._drawing = asyncio.create_task(self._draw())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._drawing is not None:
            self._drawing.cancel()
            with suppress(asyncio.CancelledError):
                await self._drawing
        self._erase()

    async def _draw(self) -> None:
        while True:
            self._write(_ERASE + self.line(time.monotonic() - self._start))
            await asyncio.sleep(_DRAW_SECONDS)

    def _erase(self) -> None:
        if self._is_shown:
            self._write(_ERASE)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def _is_terminal(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}"
