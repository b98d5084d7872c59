"""What happens to a cluster, as lines for people: faults with the time of day, then what comes of
them with the seconds since.

::

    12:00:03.210 node 2 died (SIGKILL)
          +3.1 s fenced
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Final

from odradek.core.clock import Clock

_WIDTH: Final = 12
Say = Callable[[str], None]


class EventLog:
    """Says each line, and appends it to a file that others follow."""

    def __init__(self, file: Path, clock: Clock, say: Say) -> None:
        self._file = file.open("a")
        self._clock = clock
        self._listeners = [say]

    def fault(self, text: str) -> None:
        """Tell what was done to the cluster, or happened to it."""
        moment = datetime.fromtimestamp(self._clock.now_ms() / 1000).astimezone()
        self._tell(f"{moment:%H:%M:%S}.{moment.microsecond // 1000:03} {text}")

    def effect(self, after_ms: int, text: str) -> None:
        """Tell what comes of the fault that was so long ago."""
        since = f"+{after_ms / 1000:.1f} s"
        self._tell(f"{since:>{_WIDTH}} {text}")

    def note(self, text: str) -> None:
        """Tell what follows from the lines before."""
        self._tell(f"{'':>{_WIDTH}} {text}")

    @contextmanager
    def passed_on(self, say: Say) -> Iterator[None]:
        """Pass on the lines to somebody else as well."""
        self._listeners.append(say)
        try:
            yield
        finally:
            self._listeners.remove(say)

    def close(self) -> None:
        self._file.close()

    def _tell(self, line: str) -> None:
        for say in self._listeners:
            say(line)
        self._file.write(line + "\n")
        self._file.flush()
