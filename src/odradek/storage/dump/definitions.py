"""The definitions of messages, as far as a document needs them: versions, tags, nesting.

``tools/notation.py`` explains the notation and reads all of it, to generate code. What is read here
has passed that reader, so there are no errors to find.
"""

from functools import cache
from importlib.resources import files
from typing import Final, NamedTuple, TypeAlias

_VERSION_MAX: Final = 32767


class Field(NamedTuple):
    name: str
    first_version: int
    last_version: int
    is_tagged: bool
    fields: "tuple[Field, ...]"
    """Of the struct, or of the elements, that the field holds."""


class _Node(NamedTuple):
    words: list[str]
    below: "list[_Node]"


_Structs: TypeAlias = dict[str, list[_Node]]


@cache
def read_definitions(module: str) -> dict[str, tuple[Field, ...]]:
    """Return the fields of each message that one definition file has."""
    path = files("odradek.protocol") / "definitions" / f"{module}.kmsg"
    found = {}
    for node in _tree(path.read_text(encoding="utf-8")):
        match node.words:
            case ["message", name, *_]:
                structs = {
                    each.words[1]: each.below for each in node.below if each.words[0] == "struct"
                }
                found[name] = _fields(node.below, structs)
    return found


def _tree(text: str) -> list[_Node]:
    """Nest lines by their indentation."""
    root = _Node([], [])
    open_nodes = [(-1, root)]
    for line in text.splitlines():
        content = line.partition("#")[0]
        words = content.split()
        if not words:
            continue
        indent = len(content) - len(content.lstrip())
        while open_nodes[-1][0] >= indent:
            open_nodes.pop()
        node = _Node(words, [])
        open_nodes[-1][1].below.append(node)
        open_nodes.append((indent, node))
    return root.below


def _fields(nodes: list[_Node], structs: _Structs) -> tuple[Field, ...]:
    return tuple(_field(node, structs) for node in nodes if node.words[0] != "struct")


def _field(node: _Node, structs: _Structs) -> Field:
    name, kind, *rest = node.words
    first, last = _versions(rest[0]) if rest and rest[0][0].isdigit() else (0, _VERSION_MAX)
    below = node.below or structs.get(kind.partition("?")[0].strip("[]"), [])
    return Field(name, first, last, "tag" in rest, _fields(below, structs))


def _versions(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    if first.endswith("+"):
        return int(first[:-1]), _VERSION_MAX
    return int(first), int(last or first)
