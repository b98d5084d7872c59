"""A Python source text under construction: indented lines, and the struct calls they use."""

import re
from collections.abc import Iterator
from contextlib import contextmanager


class Source:
    """Collects lines; ``indent`` nests them."""

    def __init__(self, depth: int = 0) -> None:
        self.lines: list[str] = []
        self._depth = depth

    def line(self, text: str = "") -> None:
        self.lines.append("    " * self._depth + text if text else "")

    @contextmanager
    def indent(self, opening: str) -> Iterator[None]:
        self.line(opening)
        self._depth += 1
        yield
        self._depth -= 1

    def text(self) -> str:
        return "\n".join(self.lines)


def struct_name(verb: str, formats: str) -> str:
    """Return the module-level name of a bound struct method, for example ``_unpack_hi``."""
    return f"_{verb}_{formats.replace('?', 'o')}"


def struct_definitions(body: str) -> list[str]:
    """Return the definitions of all bound struct methods that ``body`` mentions."""
    names = sorted(set(re.findall(r"\b_(unpack|pack)_(\w+)\b", body)))
    methods = {"unpack": "unpack_from", "pack": "pack"}
    return [
        f'_{verb}_{formats} = struct.Struct(">{formats.replace("o", "?")}").{methods[verb]}'
        for verb, formats in names
    ]
