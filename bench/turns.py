"""How long the turns of asyncio's event loop take: the CPU time of its thread, by callback.

For code that runs in the benchmark's own process. CPU time, so that a busy machine makes no
difference. A collection of Python's garbage is in the callback in which it happens, as it is in a
node.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    def __init__(self) -> None:
        self.longest_ms = 0.0
        self.longest_of = ""

    def reset(self) -> None:
        self.longest_ms, self.longest_of = 0.0, ""

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure every callback of asyncio's loop meanwhile; uvloop's cannot be measured so."""
        run = asyncio.Handle._run

        def measure(handle: asyncio.Handle) -> None:
            began = time.thread_time_ns()
            run(handle)
            took_ms = (time.thread_time_ns() - began) / 1e6
            if took_ms > self.longest_ms:
                self.longest_ms, self.longest_of = took_ms, repr(handle)

        asyncio.Handle._run = measure  # type: ignore[method-assign,assignment]
        try:
            yield
        finally:
            asyncio.Handle._run = run  # type: ignore[method-assign]
