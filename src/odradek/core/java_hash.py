"""``String.hashCode`` of Java: which partition keeps a group's or a transaction's state."""

from collections.abc import Iterable
from functools import lru_cache
from struct import iter_unpack
from typing import Final

_INT32_BITS: Final = 0xFFFFFFFF
_INT32_MAX: Final = 0x7FFFFFFF

KEYS_REMEMBERED_MAX: Final = 1_000
"""Keys whose partition is remembered: strangers choose them, and each may have 32 KB."""


def java_string_hash(text: str) -> int:
    """Return the hash as Java's signed 32-bit number, over UTF-16 code units."""
    code = 0
    for unit in _code_units(text):
        code = (code * 31 + unit) & _INT32_BITS
    return code - (_INT32_BITS + 1) if code > _INT32_MAX else code


def _code_units(text: str) -> Iterable[int]:
    if text.isascii():  # as every request of a group or a transaction has, in practice
        return text.encode()
    return (unit for (unit,) in iter_unpack(">H", text.encode("utf-16-be", "surrogatepass")))


@lru_cache(KEYS_REMEMBERED_MAX)  # a group or a transaction is named by each of its requests
def partition_of(key: str, partitions: int) -> int:
    """Return the partition of a coordinator's topic that keeps ``key``."""
    # Kafka's Utils.abs takes the smallest number, which has no positive twin, as 0.
    code = java_string_hash(key)
    return (0 if code == -_INT32_MAX - 1 else abs(code)) % partitions
