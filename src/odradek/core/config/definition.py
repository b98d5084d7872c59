"""One config: its name, type, default, allowed values, and what it does.

Definitions are written as tables of text, because three hundred calls would hide the facts in
punctuation. A row begins at the left margin, its documentation follows indented::

    num.partitions INT 1 1.. live
        Partitions of a topic that is created without a number.

After name and type comes the default: ``-`` is none, ``''`` the empty text, ``required`` one that
must be given. Then, in any order, at most one word for what is allowed (``1..``, ``0..1``,
``a|b``, ``~A|B`` for any case, ``not-empty``, ``gzip-level``, ``replicas``, ``offset-reset``) and
any of these:

``live``          it has an effect, seen by a test that ``tests/config_effects.py`` names; without
                  this word it is accepted and does nothing yet
``per-broker``    may be changed while the broker runs, one broker at a time
``cluster-wide``  may be changed while the broker runs, for one broker or for all
``internal``      not shown unless it is set
``dynamic-only``  cannot stand in a file; not shown unless it is set
``new``           Kafka 4.3 does not have it; not shown unless it is set, because no cluster
                  can be at a metadata.version of 4.4 yet
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from odradek.core.config.allowed import Allowed, check_elements, parse_allowed
from odradek.core.config.values import (
    ConfigError,
    ConfigType,
    ConfigValue,
    UpdateMode,
    format_value,
    parse_value,
)

_FLAGS: Final = frozenset({"live", "internal", "dynamic-only", "new"})
_MODES: Final = {mode.value: mode for mode in UpdateMode}


@dataclass(frozen=True, slots=True)
class ConfigDefinition:
    name: str
    type: ConfigType
    default: ConfigValue | None
    required: bool
    allowed: Allowed | None
    update_mode: UpdateMode
    implemented: bool
    internal: bool
    dynamic_only: bool
    is_new: bool
    documentation: str

    @property
    def sensitive(self) -> bool:
        """Whether the value is never shown."""
        return self.type is ConfigType.PASSWORD

    @property
    def default_text(self) -> str | None:
        return None if self.default is None else format_value(self.default)

    def parse(self, text: str) -> ConfigValue:
        """Return the value ``text`` stands for.

        Raises:
            ConfigError: It is of another type, or not allowed.
        """
        value = parse_value(self.name, self.type, text)
        if isinstance(value, tuple) and self.allowed is not _REPLICAS:
            check_elements(self.name, value)
        if self.allowed is not None:
            self.allowed.check(self.name, value)
        return value


_REPLICAS: Final = parse_allowed("replicas")
"""Kafka lets these lists have empty elements."""


def read_table(table: str) -> dict[str, ConfigDefinition]:
    """Return the definitions of a table by name."""
    return {row.name: row for row in _read_rows(table)}


def _read_rows(table: str) -> Iterator[ConfigDefinition]:
    row = ""
    documentation: list[str] = []
    for line in table.strip("\n").split("\n"):
        if line.startswith(" "):
            documentation.append(line.strip())
            continue
        if row:
            yield _read_row(row, " ".join(documentation))
        row, documentation = line, []
    yield _read_row(row, " ".join(documentation))


def _read_row(row: str, documentation: str) -> ConfigDefinition:
    name, type_name, default, *words = row.split()
    kind = ConfigType[type_name]
    flags = _FLAGS.intersection(words)
    modes = [_MODES[word] for word in words if word in _MODES]
    allowed = [word for word in words if word not in _FLAGS and word not in _MODES]
    assert documentation, name
    assert len(modes) <= 1 >= len(allowed), name
    return ConfigDefinition(
        name=name,
        type=kind,
        default=None
        if default in ("-", "required")
        else parse_value(name, kind, "" if default == "''" else default),
        required=default == "required",
        allowed=parse_allowed(allowed[0]) if allowed else None,
        update_mode=modes[0] if modes else UpdateMode.READ_ONLY,
        implemented="live" in flags,
        internal="internal" in flags,
        dynamic_only="dynamic-only" in flags,
        is_new="new" in flags,
        documentation=documentation,
    )


def parse_all(
    definitions: Mapping[str, ConfigDefinition], texts: Mapping[str, str]
) -> dict[str, ConfigValue | None]:
    """Return a value for every definition: what ``texts`` says, else the default.

    Raises:
        ConfigError: A value that cannot be used, or none where one is required.
    """
    values: dict[str, ConfigValue | None] = {}
    for name, definition in definitions.items():
        if name in texts:
            values[name] = definition.parse(texts[name])
        elif definition.required:
            message = f'Missing required configuration "{name}" which has no default value.'
            raise ConfigError(message, name=name)
        else:
            values[name] = definition.default
    return values
