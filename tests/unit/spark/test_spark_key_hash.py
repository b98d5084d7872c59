"""The hash of a column of keys against the one of a single key, and against Java's numbers."""

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.client.producer.partitioners import murmur2, partition_for_key
from odradek.spark.key_hash import murmur2_column, partitions_of_keys


@settings(deadline=None)
@given(st.lists(st.binary(max_size=40)), st.integers(0, 3), st.integers(1, 50))
def test_a_column_is_hashed_as_its_keys_are(keys: list[bytes], cut: int, partitions: int) -> None:
    column = pa.array([b"before"] * cut + keys, pa.large_binary()).slice(cut)
    assert murmur2_column(column).tolist() == [murmur2(key) for key in keys]
    expected = [partition_for_key(key, partitions) for key in keys]
    assert partitions_of_keys(column, partitions).tolist() == expected


def test_the_numbers_of_javas_client() -> None:
    # From UtilsTest.testMurmur2 of Kafka, as signed numbers.
    expected = {
        b"21": -973932308,
        b"foobar": -790332482,
        b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        b"abc": 479470107,
    }
    hashes = murmur2_column(pa.array(list(expected), pa.large_binary()))
    assert hashes.astype(np.int32).tolist() == list(expected.values())


def test_a_null_does_not_disturb_its_neighbours() -> None:
    hashes = murmur2_column(pa.array([b"abc", None, b"21"], pa.large_binary()))
    assert hashes[[0, 2]].tolist() == [murmur2(b"abc"), murmur2(b"21")]
