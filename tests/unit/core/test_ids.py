"""Ids print and parse as Kafka's tools print and parse them."""

from random import Random

import pytest

from odradek.core.errors import CorruptionError
from odradek.core.ids import RESERVED_UUIDS, ZERO_UUID, TopicPartition, Uuid


def test_uuid_prints_as_kafka_does() -> None:
    # `kafka-storage random-uuid` once printed this for these bytes.
    raw = Uuid(bytes.fromhex("34f9991f285b47dcb4d3032094c1f6b2"))
    assert str(raw) == "NPmZHyhbR9y00wMglMH2sg"
    assert Uuid.from_text("NPmZHyhbR9y00wMglMH2sg") == raw
    assert repr(raw) == "Uuid('NPmZHyhbR9y00wMglMH2sg')"


def test_zero_uuid_is_sixteen_zero_bytes() -> None:
    assert bytes(ZERO_UUID) == bytes(16)
    assert str(ZERO_UUID) == "A" * 22


@pytest.mark.parametrize(
    "text",
    ["", "x", "NPmZHyhbR9y00wMglMH2s", "NPmZHyhbR9y00wMglMH2sgAA", "NPmZHyhbR9y00wMglMH2s!!"],
)
def test_text_that_is_no_uuid_is_refused(text: str) -> None:
    with pytest.raises(CorruptionError, match="not a base64 UUID"):
        Uuid.from_text(text)


def test_stray_low_bits_are_refused() -> None:
    """Two texts must not mean one id: the last character carries only two bits."""
    with pytest.raises(CorruptionError):
        Uuid.from_text("NPmZHyhbR9y00wMglMH2sh")


def test_random_uuids_are_version_4_and_safe_as_arguments() -> None:
    random = Random(1)
    for _ in range(500):
        made = Uuid.random(random)
        assert made[6] >> 4 == 4
        assert made[8] >> 6 == 2
        assert not str(made).startswith("-")
        assert made not in RESERVED_UUIDS


def test_same_seed_same_uuid() -> None:
    assert Uuid.random(Random(7)) == Uuid.random(Random(7))


def test_topic_partition_prints_as_its_folder_is_named() -> None:
    assert str(TopicPartition("orders", 3)) == "orders-3"
