"""Faults to plant into a simulated disk, and the exception that stands for its end."""

from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal, TypeAlias

Operation: TypeAlias = Literal[
    "create",
    "write",
    "truncate",
    "sync",
    "rename",
    "remove",
    "make_folder",
    "remove_folder",
    "sync_folder",
]
"""What changes the disk: each is counted and can be the last thing to happen."""

Look: TypeAlias = Literal["open", "read", "map"]
"""What changes nothing: it may fail, but a crash there is a crash before the next change."""

Kind: TypeAlias = Operation | Look


class SimulatedCrash(BaseException):
    """The machine stopped. Not an ``Exception``, so that no handler lets the program go on."""


@dataclass(slots=True)
class Fault:
    """Lets operations of a kind fail on the files whose path matches a pattern."""

    kind: Kind | Literal["*"]
    path: str
    error: int
    after: int  # matching operations that go well first
    times: int | None  # operations that fail then; None for all

    def strikes(self, kind: Kind, path: PurePath) -> bool:
        if self.kind not in ("*", kind) or not path.match(self.path):
            return False
        if self.after > 0:
            self.after -= 1
            return False
        if self.times is None:
            return True
        self.times -= 1
        return self.times >= 0
