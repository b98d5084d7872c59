"""The name of a file to dump: which kind it is, where its neighbours are, how it is printed.

Names are strings and not paths, because the tool prints them as they were given: ``./a`` stays
``./a``. Java folds double slashes and drops a trailing one, so we do.
"""

import re
from pathlib import PurePath
from typing import NamedTuple

from odradek.core.errors import CorruptionError

_OFFSET_MAX = 2**63 - 1
_CHECKPOINT_NAME = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")


class DumpedFile(NamedTuple):
    text: str
    absolute: str

    @classmethod
    def named(cls, argument: str, working_folder: PurePath) -> "DumpedFile":
        text = re.sub("//+", "/", argument)
        if len(text) > 1:
            text = text.removesuffix("/")
        return cls(text, text if text.startswith("/") else f"{working_folder}/{text}")

    @property
    def path(self) -> PurePath:
        return PurePath(self.absolute)

    @property
    def name(self) -> str:
        return self.text.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """From the last dot on; empty if there is none."""
        _, dot, suffix = self.name.rpartition(".")
        return dot + suffix if dot else ""

    def sibling_path(self, suffix: str) -> PurePath:
        """Return the path of another file of the same segment."""
        return PurePath(self.absolute.rpartition("/")[0]) / (self.name.partition(".")[0] + suffix)

    def base_offset(self) -> int:
        """Return the offset that the name begins with.

        Raises:
            CorruptionError: It begins with none.
        """
        digits = self.name.partition(".")[0]
        if not (digits.isascii() and digits.isdigit()) or int(digits) > _OFFSET_MAX:
            raise CorruptionError(f"the name must begin with an offset, not with {digits!r}")
        return int(digits)

    def checkpoint_id(self) -> tuple[int, int]:
        """Return the end offset and the epoch that the name of a metadata snapshot says.

        Raises:
            CorruptionError: It is no such name.
        """
        match = _CHECKPOINT_NAME.fullmatch(self.name)
        if match is None:
            raise CorruptionError("the name of a metadata snapshot is OFFSET-EPOCH.checkpoint")
        return int(match[1]), int(match[2])
