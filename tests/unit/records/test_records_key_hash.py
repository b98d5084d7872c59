"""The hash of keys, one by one and by the column, against Java's numbers."""

from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.records import key_hash
from odradek.records.arrow import partitions_of_keys
from odradek.records.implementation import murmur2

# From UtilsTest.testMurmur2 of Kafka, as signed numbers.
JAVAS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.seed_row("2.6")
@pytest.mark.parametrize("hashed", [murmur2, key_hash.murmur2], ids=["chosen", "plain"])
def test_the_numbers_of_javas_client(hashed: Callable[[bytes], int]) -> None:
    assert {key: hashed(key) for key in JAVAS} == {
        key: number % 2**32 for key, number in JAVAS.items()
    }


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.none() | st.binary(max_size=40)), st.integers(0, 3), st.integers(1, 50))
def test_a_column_is_hashed_as_its_keys_are(
    keys: list[bytes | None], cut: int, partitions: int
) -> None:
    column = pa.array([b"before"] * cut + keys, pa.large_binary()).slice(cut)
    assert partitions_of_keys(column, partitions).to_pylist() == [
        -1 if key is None else (key_hash.murmur2(key) & 0x7FFFFFFF) % partitions for key in keys
    ]
