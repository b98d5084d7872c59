"""Every message-version that the definitions name, with the class generated for it.

Tests and fuzzer walk this list and not the generated modules: a message that the generator forgot
must be missed, not silently left out.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import ModuleType

from odradek.protocol.message import Message, Struct
from tools import notation
from tools.emit_module import ClassNames
from tools.generate import DEFINITIONS


@dataclass(frozen=True, eq=False)
class Entry:
    """One message: its definition, and what was generated from it."""

    module: ModuleType
    definition: notation.Message
    class_names: dict[str, str]

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def versions(self) -> range:
        return self.definition.known_versions

    @property
    def message_class(self) -> type[Message]:
        found: type[Message] = getattr(self.module, self.name)
        return found

    def struct_class(self, struct: str) -> type[Struct]:
        found: type[Struct] = getattr(self.module, self.class_names[struct])
        return found

    def is_flexible(self, version: int) -> bool:
        return version in self.definition.flexible


@cache
def entries() -> dict[str, Entry]:
    """Return every message by name."""
    found: dict[str, Entry] = {}
    for path in sorted(DEFINITIONS.glob("*.kmsg")):
        definition = notation.parse_file(path)
        module = import_module(f"odradek.protocol.generated.{definition.module}")
        names = ClassNames(definition)
        for message in definition.messages:
            assert message.name not in found, f"{message.name} is defined twice"
            found[message.name] = Entry(module, message, names.of(message))
    return found


def message_versions() -> Iterator[tuple[Entry, int]]:
    for entry in entries().values():
        for version in entry.versions:
            yield entry, version
