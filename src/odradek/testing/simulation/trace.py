"""What happened in a world: the last lines, and a hash of all of them.

Two runs of one seed are the same run if their hashes are equal.
"""

from collections import deque
from hashlib import blake2b


class Trace:
    def __init__(self, lines_max: int) -> None:
        self._lines: deque[str] = deque(maxlen=lines_max)
        self._hash = blake2b(digest_size=16)
        self.count = 0

    @property
    def lines(self) -> list[str]:
        """The last ones, oldest first."""
        return list(self._lines)

    def note(self, now: float, where: str, what: str) -> None:
        line = f"{now:.9f} {where} {what}"
        self.count += 1
        self._hash.update(line.encode() + b"\n")
        self._lines.append(line)

    def digest(self) -> str:
        return self._hash.hexdigest()
