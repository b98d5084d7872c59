"""Groups are kept where every Kafka broker would look for them."""

import pytest

from odradek.core.java_hash import java_string_hash, partition_of


@pytest.mark.seed_row("4.8")
@pytest.mark.parametrize(
    ("text", "code"),
    # What Java 17 prints for String.hashCode.
    [
        ("", 0),
        ("hello", 99162322),
        ("my-group", -1906497762),
        ("polygenelubricants", -2147483648),
        ("𝕏ü", 54946946),
    ],
)
def test_the_hash_is_javas(text: str, code: int) -> None:
    assert java_string_hash(text) == code


@pytest.mark.seed_row("4.8")
def test_the_smallest_number_has_no_positive_twin_and_counts_as_zero() -> None:
    assert partition_of("polygenelubricants", 50) == 0
    assert partition_of("my-group", 50) == 1906497762 % 50
