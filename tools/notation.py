"""Our notation for Kafka's messages, read into a small tree.

One file per API under ``src/odradek/protocol/definitions``::

    # Produce: append record batches to partitions.
    api 0 Produce

    request versions 3-13 legacy 0-2 flexible 9+
      transactional_id    string?  3+
      acks                int16
      topic_data          [TopicProduceData]
        name              string   0-12
        topic_id          uuid     13+
        ...

A *file* starts with ``api KEY NAME`` and has one ``request`` and one ``response``; or it has any
number of ``message NAME [id N]`` blocks (headers, internal records). ``struct NAME`` inside a
block names a shape that several fields share.

A *field* is ``name type [versions] [= default] [tag N] [ignorable] [plain]``.

- Types: bool int8 int16 uint16 int32 uint32 int64 float64 string bytes records uuid, ``[T]`` for an
  array, a capitalised name for a struct whose fields are indented below (or a ``struct``).
- ``T?`` may be null wherever the field exists, ``T?7+`` only in those versions.
- Versions are ``3+``, ``0-12`` or ``5``; left out: every version of the message.
- ``= null``, ``= -1``, ``= true``, ``= ""``: the default; left out: zero, empty, false,
  or a struct of defaults.
- ``tag N``: a tagged field of flexible versions.
- ``ignorable``: dropped silently from versions that lack it. Any other field must hold its default
  there, else encoding refuses: losing it would change what the sender asked for.
- ``plain``: never compact, even in flexible versions (the header's client id).

``versions`` are those Kafka 4.4 speaks; ``legacy`` ones were dropped by Kafka 4.0 and are known to
the codec only, so that old clients can be answered.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

PRIMITIVES = frozenset(
    "bool int8 int16 uint16 int32 uint32 int64 float64 string bytes records uuid".split()
)
VERSION_MAX = 32767


class NotationError(Exception):
    """A definition file is wrong; the message names file and line."""


@dataclass(frozen=True)
class Versions:
    first: int
    last: int

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last

    @classmethod
    def parse(cls, text: str) -> "Versions":
        match = re.fullmatch(r"(\d+)(\+|-(\d+))?", text)
        if not match:
            raise ValueError(f"not a version range: {text!r}")
        first = int(match[1])
        if match[2] is None:
            return cls(first, first)
        return cls(first, VERSION_MAX if match[2] == "+" else int(match[3]))


ALL = Versions(0, VERSION_MAX)
NONE = Versions(1, 0)


@dataclass
class Field:
    name: str
    type: str
    """A primitive or the name of a struct; the element type when ``is_array``."""
    is_array: bool = False
    versions: Versions = ALL
    nullable: Versions = NONE
    default: str | None = None
    """The text after ``=``; None when there is none."""
    tag: int | None = None
    ignorable: bool = False
    plain: bool = False
    fields: list["Field"] = field(default_factory=list)

    @property
    def is_struct(self) -> bool:
        return self.type not in PRIMITIVES


@dataclass
class Message:
    name: str
    versions: Versions
    legacy: Versions
    flexible: Versions
    id: int | None = None
    """The API key, or the record type of an internal record."""
    fields: list[Field] = field(default_factory=list)
    structs: dict[str, list[Field]] = field(default_factory=dict)

    @property
    def known_versions(self) -> range:
        first = self.versions.first if self.legacy == NONE else self.legacy.first
        return range(first, self.versions.last + 1)


@dataclass
class Definition:
    """One file: an API with its request and response, or a set of messages."""

    module: str
    doc: str
    messages: list[Message]
    api: str | None = None
    api_key: int | None = None
    unstable: int | None = None
    """First version that Kafka does not advertise by default yet."""


@dataclass
class _Line:
    path: Path
    number: int
    indent: int
    words: list[str]

    def error(self, problem: str) -> NotationError:
        return NotationError(f"{self.path.name}:{self.number}: {problem}")


def parse_file(path: Path) -> Definition:
    text = path.read_text()
    doc = [line.removeprefix("#").strip() for line in text.splitlines() if line.startswith("#")]
    definition = Definition(module=path.stem, doc="\n".join(doc), messages=[])
    lines = list(_lines(path, text))
    while lines:
        line = lines.pop(0)
        if line.indent:
            raise line.error("a field outside of a message")
        try:
            _statement(definition, line, lines)
        except (ValueError, IndexError) as problem:
            raise line.error(str(problem)) from problem
    return definition


def _lines(path: Path, text: str) -> Iterator[_Line]:
    for number, raw in enumerate(text.splitlines(), 1):
        content = raw.split("#", 1)[0].rstrip()
        if content:
            indent = len(content) - len(content.lstrip())
            yield _Line(path, number, indent, content.split())


def _statement(definition: Definition, line: _Line, rest: list[_Line]) -> None:
    match line.words:
        case ["api", key, name, *options]:
            definition.api_key, definition.api = int(key), name
            if options:
                definition.unstable = int(options[options.index("unstable") + 1])
        case ["request" | "response" as kind, *options]:
            if definition.api is None:
                raise ValueError("a request or response needs an api line before it")
            name = definition.api + kind.capitalize()
            message = _message(name, options)
            message.id = definition.api_key
            definition.messages.append(message)
            _body(message, rest)
        case ["message", name, *options]:
            definition.messages.append(_message(name, options))
            _body(definition.messages[-1], rest)
        case _:
            raise ValueError(f"unknown statement {line.words[0]!r}")


def _message(name: str, words: list[str]) -> Message:
    options = dict(zip(words[::2], words[1::2], strict=True))
    message = Message(
        name,
        versions=Versions.parse(options.pop("versions")),
        legacy=Versions.parse(options.pop("legacy")) if "legacy" in options else NONE,
        flexible=Versions.parse(options.pop("flexible")) if "flexible" in options else NONE,
    )
    if "id" in options:
        message.id = int(options.pop("id"))
    if options:
        raise ValueError(f"unknown options {sorted(options)}")
    return message


def _body(message: Message, rest: list[_Line]) -> None:
    while rest and rest[0].indent:
        if rest[0].words[0] == "struct":
            line = rest.pop(0)
            message.structs[line.words[1]] = _fields(rest, line.indent)
        else:
            message.fields += _fields(rest, 0)
    for owner in [message.fields, *message.structs.values()]:
        _resolve(message, owner)


def _fields(rest: list[_Line], parent_indent: int) -> list[Field]:
    """Read the fields indented deeper than ``parent_indent``, down to the next shallower line."""
    fields: list[Field] = []
    indent = rest[0].indent if rest else 0
    while rest and rest[0].indent > parent_indent and rest[0].words[0] != "struct":
        line = rest.pop(0)
        if line.indent != indent:
            raise line.error(f"indented by {line.indent}, its neighbours by {indent}")
        try:
            parsed = _field(line.words)
        except (ValueError, IndexError) as problem:
            raise line.error(str(problem)) from problem
        if rest and rest[0].indent > indent:
            if not parsed.is_struct:
                raise rest[0].error(f"below {parsed.name}, which is no struct")
            parsed.fields = _fields(rest, indent)
        fields.append(parsed)
    return fields


def _field(words: list[str]) -> Field:
    name, type_text, *rest = words
    match = re.fullmatch(r"(\[)?(\w+)(\])?(\?(\S*))?", type_text)
    if not match or bool(match[1]) != bool(match[3]):
        raise ValueError(f"not a type: {type_text!r}")
    parsed = Field(name, match[2], is_array=bool(match[1]))
    if rest and rest[0][0].isdigit():
        parsed.versions = Versions.parse(rest.pop(0))
    if match[4]:
        parsed.nullable = Versions.parse(match[5]) if match[5] else parsed.versions
    while rest:
        match rest.pop(0):
            case "=":
                parsed.default = rest.pop(0)
            case "tag":
                parsed.tag = int(rest.pop(0))
            case "ignorable":
                parsed.ignorable = True
            case "plain":
                parsed.plain = True
            case word:
                raise ValueError(f"unknown word {word!r}")
    return parsed


def _resolve(message: Message, fields: list[Field]) -> None:
    """Give every struct field its own fields, wherever they were written."""
    for each in fields:
        if each.is_struct:
            if not each.fields:
                if each.type not in message.structs:
                    raise ValueError(f"{message.name}: no fields for struct {each.type}")
                each.fields = message.structs[each.type]
            else:
                _resolve(message, each.fields)
