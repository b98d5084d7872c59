"""For all messages, all versions: what is encoded is what is decoded, to the byte."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.builder import SMALL, USUAL, Size, build
from fuzz.catalog import Entry, entries, message_versions
from odradek.protocol.generated import APIS, MESSAGES
from odradek.protocol.message import Message
from tests.long_searches import examples

ROUNDS = 4
ALL = list(message_versions())


def check_round_trip(entry: Entry, version: int, random: Random, size: Size) -> None:
    message = build(entry, version, random, size)
    data = message.to_bytes(version)
    decoded, end = entry.message_class.decode_from(data, 0, version)
    assert decoded == message
    assert end == len(data)
    assert decoded.to_bytes(version) == data


@pytest.mark.parametrize("name", entries())
def test_what_is_encoded_is_what_is_decoded(name: str) -> None:
    entry = entries()[name]
    for version in entry.versions:
        for seed in range(ROUNDS):
            check_round_trip(entry, version, Random(f"{name} {version} {seed}"), USUAL)


@settings(max_examples=150, deadline=None)
@given(which=st.sampled_from(ALL), random=st.randoms(use_true_random=False))
def test_hypothesis_finds_no_message_that_changes_on_the_way(
    which: tuple[Entry, int], random: Random
) -> None:
    check_round_trip(*which, random, SMALL)


@pytest.mark.slow
@settings(max_examples=examples(1_500, exploring=5_000))
@given(which=st.sampled_from(ALL), random=st.randoms(use_true_random=False))
def test_hypothesis_finds_none_in_a_long_search(which: tuple[Entry, int], random: Random) -> None:
    check_round_trip(*which, random, SMALL)


def test_every_defined_message_is_generated_and_listed() -> None:
    assert len(entries()) == 274
    assert len(ALL) == 792
    listed = {name: f"odradek.protocol.generated.{module}" for name, module in MESSAGES.items()}
    assert {name: entry.module.__name__ for name, entry in entries().items()} == listed
    assert len(APIS) == 91


@pytest.mark.parametrize("name", entries())
def test_class_constants_are_those_of_the_definition(name: str) -> None:
    definition, cls = entries()[name].definition, entries()[name].message_class
    versions = list(definition.known_versions)
    assert sorted(cls.DECODERS) == sorted(cls.ENCODERS) == versions
    assert (cls.VERSION_MIN, cls.VERSION_MAX) == (definition.versions.first, versions[-1])
    assert versions[0] == cls.VERSION_KNOWN_MIN
    assert [v >= cls.FLEXIBLE_FROM for v in versions] == [
        v in definition.flexible for v in versions
    ]
    assert getattr(cls, "ID", None) == definition.id


@pytest.mark.parametrize("name", entries())
def test_a_message_of_defaults_can_be_sent_in_every_version(name: str) -> None:
    """So no default is a null that an older version does not know."""
    cls = entries()[name].message_class
    for version in entries()[name].versions:
        message: Message = cls()
        assert cls.decode(message.to_bytes(version), version) == message
