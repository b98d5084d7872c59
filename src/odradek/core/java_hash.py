"""``String.hashCode`` of Java: which partition keeps a group's or a transaction's state."""

from typing import Final

_INT32_BITS: Final = 0xFFFFFFFF
_INT32_MAX: Final = 0x7FFFFFFF


def java_string_hash(text: str) -> int:
    """Return the hash as Java's signed 32-bit number, over UTF-16 code units."""
    code = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(units), 2):
        unit = units[position] << 8 | units[position + 1]
        code = (code * 31 + unit) & _INT32_BITS
    return code - (_INT32_BITS + 1) if code > _INT32_MAX else code


def partition_of(key: str, partitions: int) -> int:
    """Return the partition of a coordinator's topic that keeps ``key``."""
    # Kafka's Utils.abs takes the smallest number, which has no positive twin, as 0.
    code = java_string_hash(key)
    return (0 if code == -_INT32_MAX - 1 else abs(code)) % partitions
