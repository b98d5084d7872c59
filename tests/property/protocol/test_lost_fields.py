"""For all fields of all messages: a version that lacks a field drops it only if it is ignorable.

Kafka's rule. Losing a transactional id or a filter silently would make a request mean something
else, so encoding refuses; a rack id or a hint may be lost.
"""

from collections.abc import Iterator
from random import Random

import pytest

from fuzz.builder import FULL, build, build_value
from fuzz.catalog import Entry, entries
from odradek.core.errors import ApiError, ErrorCode
from odradek.protocol.message import Message, Struct
from tools.notation import Field


def absent_fields(
    owner: Struct, fields: list[Field], version: int
) -> Iterator[tuple[Struct, Field]]:
    """Yield each field that ``version`` lacks, once for the first struct of its kind."""
    for field in fields:
        if version not in field.versions:
            yield owner, field
        elif field.is_struct:
            value = getattr(owner, field.name)
            inner = value[0] if field.is_array else value
            if inner is not None:
                yield from absent_fields(inner, field.fields, version)


def other_than_default(entry: Entry, field: Field, default: object) -> object:
    """Return a value of the field, as some other version would carry it."""
    for seed in range(100):
        value = build_value(entry, field, field.versions.first, Random(seed), FULL)
        if value != default:
            return value
    raise AssertionError(f"{entry.name}.{field.name}: 100 times the default")


def outcome(message: Message, version: int) -> bytes | ErrorCode:
    try:
        return message.to_bytes(version)
    except ApiError as error:
        return error.code


@pytest.mark.parametrize("name", entries())
def test_a_field_is_lost_only_if_it_is_ignorable(name: str) -> None:
    entry = entries()[name]
    for version in entry.versions:
        message = build(entry, version, Random(f"{name} {version}"), FULL)
        without = message.to_bytes(version)
        for owner, field in absent_fields(message, entry.definition.fields, version):
            default = getattr(owner, field.name)
            setattr(owner, field.name, other_than_default(entry, field, default))
            expected = without if field.ignorable else ErrorCode.UNSUPPORTED_VERSION
            assert outcome(message, version) == expected, (version, field.name)
            setattr(owner, field.name, default)


def test_there_are_fields_of_both_kinds_to_lose() -> None:
    kinds = [
        field.ignorable
        for entry in entries().values()
        for version in entry.versions
        for _, field in absent_fields(
            build(entry, version, Random(0), FULL), entry.definition.fields, version
        )
    ]
    assert kinds.count(True) > 500
    assert kinds.count(False) > 300
