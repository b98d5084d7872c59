"""Replicas are compared batch by batch, as far as all have them and know them to be committed."""

from collections.abc import Sequence

import pytest

from odradek.cli.replica_comparison import Compared, OffsetsDifferError, compare
from odradek.client.admin.log_dirs import ReplicaBatches
from odradek.core.ids import TopicPartition
from odradek.storage.scan import peek_batch
from tests.storage_batches import make_batch

KEY = TopicPartition("t", 0)


def replica(*batches: Sequence[bytes], start: int = 0, high_watermark: int = 100) -> ReplicaBatches:
    """Return one that has these batches, one after the other."""
    records, offset = b"", start
    for values in batches:
        records += bytes(make_batch(values, base_offset=offset))
        offset += len(values)
    return ReplicaBatches(high_watermark, records)


def test_equal_replicas_are_compared_to_their_end() -> None:
    same = replica([b"a"], [b"b", b"c"])
    assert compare(KEY, 0, {1: same, 2: same, 3: same}) == Compared(3, [])


def test_what_one_replica_lacks_is_compared_later() -> None:
    replicas = {1: replica([b"a"], [b"b"]), 2: replica([b"a"])}
    assert compare(KEY, 0, replicas) == Compared(1, [])
    assert compare(KEY, 0, {1: replica([b"a"]), 2: ReplicaBatches(-1, b"")}) == Compared(0, [])


def test_what_is_not_committed_may_differ() -> None:
    replicas = {1: replica([b"a"], [b"b"], high_watermark=1), 2: replica([b"a"], [b"x"])}
    assert compare(KEY, 0, replicas) == Compared(1, [])


def test_a_batch_that_is_cut_short_is_compared_later() -> None:
    whole = replica([b"a"], [b"b"])
    cut = ReplicaBatches(whole.high_watermark, whole.records[:-1])
    assert compare(KEY, 0, {1: whole, 2: cut}) == Compared(1, [])


def test_another_checksum_is_named_and_the_rest_compared() -> None:
    replicas = {
        1: replica([b"a"], [b"b"], start=7),
        2: replica([b"x"], [b"b"], start=7),
        3: replica([b"a"], [b"b"], start=7),
    }
    mine, theirs = (peek_batch(replicas[each].records).crc for each in (1, 2))
    assert mine != theirs
    assert compare(KEY, 7, replicas) == Compared(
        9,
        [
            f"partition t-0 has unmatched checksum at offset 7; replica 1's checksum {mine};"
            f" replica 2's checksum {theirs}"
        ],
    )


def test_batches_that_end_elsewhere_end_the_comparison() -> None:
    replicas = {1: replica([b"a"], [b"b"]), 2: replica([b"x"], [b"b", b"c"])}
    with pytest.raises(OffsetsDifferError) as raised:
        compare(KEY, 0, replicas)
    assert (
        str(raised.value)
        == "partition t-0: replica 1's offset 1 doesn't match replica 2's offset 2"
    )
    assert len(raised.value.differences) == 1  # that of the batch before
