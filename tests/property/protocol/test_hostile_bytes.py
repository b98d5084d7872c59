"""For all messages, all versions: damaged bytes are refused as corrupt or decode to something.

Nothing else may happen: an IndexError that escapes is a broker connection that dies with a stack
trace, and in a loop a denial of service.
"""

from random import Random

import pytest

from fuzz.builder import FULL, build
from fuzz.catalog import Entry, entries
from odradek.core.errors import CorruptionError


def decodes(entry: Entry, data: bytes | memoryview, version: int) -> bool:
    """Return whether the bytes decoded; any exception but CorruptionError fails the test."""
    try:
        _, end = entry.message_class.decode_from(data, 0, version)
    except CorruptionError:
        return False
    assert end <= len(data)
    return True


def populated(entry: Entry, version: int) -> bytes:
    return build(entry, version, Random(f"{entry.name} {version}"), FULL).to_bytes(version)


@pytest.mark.parametrize("name", entries())
def test_a_message_cut_anywhere_is_refused(name: str) -> None:
    """The decoder reads every byte it was given, so each shorter prefix lacks something."""
    entry = entries()[name]
    for version in entry.versions:
        data = populated(entry, version)
        assert decodes(entry, data, version)
        for length in range(len(data)):
            assert not decodes(entry, memoryview(data)[:length], version), (version, length)


@pytest.mark.parametrize("name", entries())
def test_a_message_with_any_byte_changed_is_refused_or_decodes(name: str) -> None:
    entry = entries()[name]
    for version in entry.versions:
        data = bytearray(populated(entry, version))
        random = Random(version)
        for position, original in enumerate(data):
            for change in (0xFF, 0x80, random.randrange(1, 256)):
                data[position] = original ^ change
                decodes(entry, bytes(data), version)
            data[position] = original


@pytest.mark.parametrize("name", entries())
def test_bytes_behind_a_message_are_left_alone(name: str) -> None:
    entry = entries()[name]
    for version in entry.versions:
        data = populated(entry, version)
        message, end = entry.message_class.decode_from(b"before" + data + b"behind", 6, version)
        assert end == 6 + len(data)
        assert message.to_bytes(version) == data
