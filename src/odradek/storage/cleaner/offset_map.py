"""The newest offset of each key, in memory that is bounded.

A plain ``dict``: it is as fast as anything written in Python can be (a flat table of digests, which
is what Kafka has, took three times as long, see ``bench/cleaner.py``).

Two keys must never be taken for one, that would delete a record that is somebody's only one. So
short keys are kept as they are. Long ones, which would let a few records fill the map, are kept as
a digest that is one byte longer than any short key: the two kinds cannot meet, and nobody knows how
to make two keys with the same BLAKE2b of 264 bits.

Each entry is charged what it can cost at worst, which is while the dict grows: the buffer holds an
old and a new table then. Hot path: ``add`` and ``retain``, once per record.
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final, NamedTuple

from odradek.records import Record

KEY_BYTES_MAX: Final = 32
"""Longer keys are kept as a digest."""

DIGEST_BYTES: Final = KEY_BYTES_MAX + 1
ENTRY_BYTES: Final = 192
"""Key 33 + 33, offset 32, its share of the dict's tables at worst 90."""

NOT_FOUND: Final = -1


class OffsetMap:
    """Maps keys to offsets until it is full."""

    __slots__ = ("_offsets", "entries_max")

    def __init__(self, bytes_max: int, load_factor: float = 0.9) -> None:
        self.entries_max = int(bytes_max * load_factor) // ENTRY_BYTES
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def utilization(self) -> float:
        """How much of the memory it may take is taken."""
        return len(self._offsets) / max(self.entries_max, 1)

    def add(self, records: Iterable[Record], start_offset: int) -> bool:
        """Take note of records, in the order of their offsets; leave out those before the start.

        Return whether there was room for all. If not, those up to some record are in.
        """
        offsets, entries_max = self._offsets, self.entries_max
        for offset, _, key, _, _ in records:
            if key is None or offset < start_offset:
                continue
            if len(key) > KEY_BYTES_MAX:
                key = blake2b(key, digest_size=DIGEST_BYTES).digest()
            if len(offsets) >= entries_max and key not in offsets:
                return False
            offsets[key] = offset
        return True

    def find(self, key: bytes) -> int:
        """Return the newest offset of ``key``, -1 if it is not in the map."""
        if len(key) > KEY_BYTES_MAX:
            key = blake2b(key, digest_size=DIGEST_BYTES).digest()
        return self._offsets.get(key, NOT_FOUND)

    def retain(self, records: Iterable[Record], *, drop_tombstones: bool) -> "Retained":
        """Divide records into those of which there is nothing newer and the others."""
        get = self._offsets.get
        kept: list[Record] = []
        tombstones = keyless = 0
        for record in records:
            offset, _, key, value, _ = record
            if key is None:
                keyless += 1
                continue
            if len(key) > KEY_BYTES_MAX:
                key = blake2b(key, digest_size=DIGEST_BYTES).digest()
            if offset >= get(key, NOT_FOUND):
                if value is None:
                    if drop_tombstones:
                        continue
                    tombstones += 1
                kept.append(record)
        return Retained(kept, tombstones, keyless)


class Retained(NamedTuple):
    records: list[Record]
    tombstones: int
    """How many of ``records`` have no value."""
    keyless: int
    """How many had no key, and were dropped for that."""
