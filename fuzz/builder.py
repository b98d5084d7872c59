"""Random valid messages of any message-version, made from the definitions alone.

Every field that the version has gets a value: boundary integers, null where it may be null, empty
and long strings (a compact length past 127 takes two bytes), nested arrays. Tagged fields are set
or left out; unknown tags appear now and then. Fields that the version lacks keep their defaults,
so what is built is exactly what comes back from the wire.

All choices come from one ``Random``: a seed names a message for good, and Hypothesis can pass a
``Random`` of its own and shrink.
"""

from dataclasses import dataclass
from random import Random
from typing import Any

from fuzz.catalog import Entry
from odradek.core.ids import METADATA_TOPIC_ID, ZERO_UUID, Uuid
from odradek.protocol.message import Message, Struct, Tags
from tools.layout import FORMATS, is_optional_struct, tagged, untagged
from tools.notation import Field

_ALPHABET = "abcxyzABC019._- /=:\x00\n\u00e9\u00df\u0416\u20ac\u4e2d\uffff\U0001f600\U0010ffff"
_INTERESTING_FLOATS = (0.0, -0.0, 1.0, -1.5, 1e308, -5e-324, float("inf"), float("-inf"))
_UNKNOWN_TAGS = (50, 127, 128, 16384, 0x7FFFFFFF)
"""Above every tag that Kafka uses, at the edges of one, two and five varint bytes."""


@dataclass(frozen=True)
class Size:
    """How big and how full the built messages become."""

    elements_min: int = 0
    elements_max: int = 3
    bytes_max: int = 300
    null_share: float = 0.2
    tagged_share: float = 0.6
    huge: bool = True
    """Whether a string may sometimes take three bytes for its length (16 KiB and more)."""


USUAL = Size()
SMALL = Size(elements_max=2, bytes_max=12, huge=False)
FULL = Size(elements_min=1, elements_max=2, bytes_max=8, null_share=0, tagged_share=1, huge=False)
"""Small, but every field is there: no part of the decoder is passed by."""


def build(
    entry: Entry,
    version: int,
    random: Random,
    size: Size = USUAL,
    *,
    unknown_tags: bool = True,
) -> Message:
    """Return a random message that ``version`` can carry whole."""
    built = Builder(entry, version, random, size, unknown_tags=unknown_tags)
    made = built.struct(entry.message_class, entry.definition.fields)
    assert isinstance(made, Message)
    return made


def build_value(entry: Entry, field: Field, version: int, random: Random, size: Size) -> object:
    """Return a random value of one field."""
    value: object = Builder(entry, version, random, size, unknown_tags=False).value(field)
    return value


class Builder:
    def __init__(
        self, entry: Entry, version: int, random: Random, size: Size, *, unknown_tags: bool
    ) -> None:
        self._entry = entry
        self._version = version
        self._random = random
        self._size = size
        self._unknown_tags = unknown_tags and entry.is_flexible(version)

    def struct(self, cls: type[Struct], fields: list[Field]) -> Struct:
        values: dict[str, Any] = {f.name: self.value(f) for f in untagged(fields, self._version)}
        for field in tagged(fields, self._version):
            if self._chance(self._size.tagged_share):
                values[field.name] = self.value(field)
        values["unknown_tags"] = self._tags()
        return cls(**values)

    def value(self, field: Field) -> Any:
        if self._version in field.nullable and self._chance(self._size.null_share):
            return None
        if field.is_array:
            return [self._element(field) for _ in range(self._count())]
        made = self._element(field)
        if is_optional_struct(field) and made == type(made)():
            return None  # a tagged struct of defaults is not sent and comes back as None
        return made

    def _element(self, field: Field) -> Any:
        if field.is_struct:
            return self.struct(self._entry.struct_class(field.type), field.fields)
        match field.type:
            case "bool":
                return self._chance(0.5)
            case "string":
                return self._string()
            case "bytes" | "records":
                return self._bytes()
            case "uuid":
                return self._uuid()
            case "float64":
                return self._random.choice(_INTERESTING_FLOATS)
            case _:
                return self._integer(field)

    def _integer(self, field: Field) -> int:
        bits = FORMATS[field.type][1] * 8
        low, high = (
            (0, 1 << bits) if field.type.startswith("u") else (-1 << bits - 1, 1 << bits - 1)
        )
        if self._chance(0.5):
            return self._random.randrange(low, high)
        default = 0 if field.is_array else int(field.default or "0", 0)
        edges = (low, high - 1, 0, 1, 127, max(low, -1), default)
        return self._random.choice(edges)

    def _string(self) -> str:
        length = self._length()
        if self._size.huge and self._chance(0.005):
            return "k" * self._random.choice((16382, 16383, 16384, 32767))
        letters = self._random.choices(_ALPHABET, k=length)
        return "".join(letters) if self._chance(0.7) else "t" * length

    def _bytes(self) -> bytes:
        if self._size.huge and self._chance(0.005):
            return bytes(self._random.choice((16382, 16383, 16384, 70000)))
        return self._random.getrandbits(8 * 400).to_bytes(400, "big")[: self._length()]

    def _length(self) -> int:
        """Return 0 often, a short length mostly, sometimes one around the edge of the varint."""
        if self._chance(0.15):
            return 0
        if self._chance(0.1):
            return min(self._random.choice((126, 127, 128, 300)), self._size.bytes_max)
        return self._random.randint(1, min(12, self._size.bytes_max))

    def _uuid(self) -> Uuid:
        if self._chance(0.2):
            return self._random.choice((ZERO_UUID, METADATA_TOPIC_ID, Uuid(b"\xff" * 16)))
        return Uuid(self._random.getrandbits(128).to_bytes(16, "big"))

    def _count(self) -> int:
        return self._random.randint(self._size.elements_min, self._size.elements_max)

    def _tags(self) -> Tags:
        if not self._unknown_tags or not self._chance(0.1):
            return ()
        count = self._random.randrange(1, 3)
        tags = sorted(self._random.sample(_UNKNOWN_TAGS, count))
        return tuple((tag, self._bytes()) for tag in tags)

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability
