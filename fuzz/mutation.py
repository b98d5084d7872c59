"""Ways to damage a valid encoding so that it stays nearly valid.

Random noise dies at the first length. These mutations keep most of the structure and attack what a
decoder believes: lengths, counts, varints, tags, types of neighbours.
"""

from collections.abc import Callable, Sequence
from random import Random

BYTES_MAX = 1 << 16
"""Mutated inputs are cut to this, so that splicing cannot grow them without end."""

_BYTES = (0, 1, 2, 0x7F, 0x80, 0x81, 0xFE, 0xFF)
_INT16 = tuple(v.to_bytes(2, "big", signed=True) for v in (-32768, -2, -1, 0, 1, 255, 32767))
_INT32 = tuple(
    v.to_bytes(4, "big", signed=True)
    for v in (-(1 << 31), -2, -1, 0, 1, 0xFFFF, 1 << 20, (1 << 20) + 1, 1 << 24, (1 << 31) - 1)
)
_INT64 = tuple(
    v.to_bytes(8, "big", signed=True) for v in (-(1 << 63), -2, -1, 1 << 32, (1 << 63) - 1)
)
_VARINTS = tuple(
    bytes.fromhex(text)
    for text in (
        "00 01 7f 8001 ff7f 808001 ffff03 80808001 ffffff7f 80808008 ffffffff07 ffffffff0f "
        "8080808010 ffffffff7f 808080808000 ffffffffffffffffff01 ffffffffffffffffffff01"
    ).split()
)
_BLOCKS = (*_INT16, *_INT32, *_INT64, *_VARINTS)


class Mutator:
    """Damages inputs, deterministically from its ``Random``."""

    def __init__(self, random: Random, corpus: Sequence[bytes]) -> None:
        self._random = random
        self._corpus = corpus
        self._ways: tuple[Callable[[bytearray], None], ...] = (
            self._flip_bit,
            self._set_byte,
            self._overwrite,
            self._overwrite,
            self._insert,
            self._delete,
            self._truncate,
            self._repeat,
            self._splice,
            self._nudge,
        )

    def mutate(self, data: bytes) -> bytes:
        out = bytearray(data)
        for _ in range(self._random.choice((1, 1, 1, 2, 2, 3, 6))):
            self._random.choice(self._ways)(out)
        del out[BYTES_MAX:]
        return bytes(out)

    def _position(self, out: bytearray) -> int:
        return int(self._random.random() * (len(out) + 1))

    def _flip_bit(self, out: bytearray) -> None:
        if out:
            out[int(self._random.random() * len(out))] ^= 1 << self._random.getrandbits(3)

    def _set_byte(self, out: bytearray) -> None:
        if out:
            out[int(self._random.random() * len(out))] = self._random.choice(_BYTES)

    def _nudge(self, out: bytearray) -> None:
        """Change a byte by one: a length that is nearly right."""
        if out:
            position = int(self._random.random() * len(out))
            out[position] = (out[position] + self._random.choice((-1, 1))) & 255

    def _overwrite(self, out: bytearray) -> None:
        """Put an interesting number in the place of as many bytes."""
        block, position = self._random.choice(_BLOCKS), self._position(out)
        out[position : position + len(block)] = block

    def _insert(self, out: bytearray) -> None:
        position = self._position(out)
        out[position:position] = self._random.choice(_BLOCKS)

    def _delete(self, out: bytearray) -> None:
        position = self._position(out)
        del out[position : position + self._random.randint(1, 8)]

    def _truncate(self, out: bytearray) -> None:
        del out[self._position(out) :]

    def _repeat(self, out: bytearray) -> None:
        position = self._position(out)
        part = out[position : position + self._random.randint(1, 32)]
        out[position:position] = part * self._random.choice((1, 2, 50))

    def _splice(self, out: bytearray) -> None:
        """Go on as another input of the corpus does."""
        other = self._random.choice(self._corpus)
        out[self._position(out) :] = other[int(self._random.random() * (len(other) + 1)) :]
