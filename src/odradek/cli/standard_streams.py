"""stdin and stdout of a tool, without holding up its event loop.

A pipe that nobody reads, or a terminal where nobody types, would otherwise keep the client from
sending its heartbeats. Each read and write has a thread of its own for as long as it lasts: one for
many lines. They go to the file descriptor itself, because a thread that is stuck inside one of
Python's streams makes the interpreter's exit hang.
"""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import BinaryIO, Final, TypeVar

from odradek.cli.tool_options import ToolError

T = TypeVar("T")

CHUNK_BYTES: Final = 256 * 1024
LINE_BYTES_MAX: Final = 16 * 1024 * 1024
_LAST_WRITE_SECONDS: Final = 0.5


async def line_batches() -> AsyncGenerator[list[bytes], None]:
    r"""Yield the lines of stdin, as many as are there at once; ``\n``, ``\r\n`` and ``\r`` end one.

    Raises:
        ToolError: A line is too long.
        OSError: stdin cannot be read.
    """
    read = _reader(sys.stdin.buffer)
    rest = b""
    while chunk := await _in_thread(read):
        lines = (rest + chunk).splitlines(keepends=True)
        # A \r at the end may be the first half of an \r\n.
        rest = b"" if lines[-1].endswith(b"\n") else lines.pop()
        if len(rest) > LINE_BYTES_MAX:
            raise ToolError(f"stdin has a line of more than {LINE_BYTES_MAX} bytes")
        if lines:
            yield [line.rstrip(b"\r\n") for line in lines]
    if rest:
        yield rest.splitlines()


class Output:
    """stdout, for bytes; ``is_broken`` once nobody reads it any more."""

    def __init__(self) -> None:
        self._stream = sys.stdout.buffer
        self._descriptor = _descriptor(self._stream)
        self.is_broken = False
        self._is_stuck = False

    @property
    def is_whole(self) -> bool:
        """Whether all that was given to ``write`` went out."""
        return not (self.is_broken or self._is_stuck)

    async def write(self, data: bytes) -> None:
        """Write all of it, or find that the reader has gone.

        Whoever is cancelled meanwhile has ``is_whole`` to know whether it was written.
        """
        if not data or not self.is_whole:
            return
        writing = asyncio.ensure_future(_in_thread(lambda: self._write(data)))
        try:
            await asyncio.shield(writing)
        except BrokenPipeError:
            self.is_broken = True
            self._forget()
        except asyncio.CancelledError:
            # It may be over by now, and only the news of that is on the way.
            done, _ = await asyncio.wait([writing], timeout=_LAST_WRITE_SECONDS)
            self._is_stuck = not done or writing.exception() is not None
            raise

    def _write(self, data: bytes) -> None:
        if self._descriptor is None:
            self._stream.write(data)
            return
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]

    def _forget(self) -> None:
        """Point stdout nowhere, or the interpreter complains once more at its exit."""
        if self._descriptor is not None:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._descriptor)
            os.close(nowhere)


def _descriptor(stream: BinaryIO) -> int | None:
    """Return the file behind a stream; None if it has none, as in tests."""
    try:
        return stream.fileno()
    except OSError:
        return None


def _reader(stream: BinaryIO) -> Callable[[], bytes]:
    descriptor = _descriptor(stream)
    if descriptor is None:
        return lambda: stream.read(CHUNK_BYTES)
    return lambda: os.read(descriptor, CHUNK_BYTES)


async def _in_thread(work: Callable[[], T]) -> T:
    """Wait for what may block; its thread does not keep the process from ending."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def tell(call: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits
            loop.call_soon_threadsafe(lambda: None if done.done() else call())

    def run() -> None:
        try:
            result = work()
        except OSError as error:
            problem = error
            tell(lambda: done.set_exception(problem))
        else:
            tell(lambda: done.set_result(result))

    threading.Thread(target=run, daemon=True).start()
    return await done
