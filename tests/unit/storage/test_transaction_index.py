"""The index of aborted transactions: Kafka's bytes, what a fetch is told, damage."""

import errno
from pathlib import Path, PurePosixPath
from random import Random

import pytest

from odradek.core.errors import CorruptionError
from odradek.protocol.generated.producer_snapshot import AbortedTxn
from odradek.protocol.versioned import decode_versioned, encode_versioned
from odradek.storage.disk import OsDisk
from odradek.storage.transaction_index import AbortedTransaction, TransactionIndex
from odradek.testing.disk import SimulatedDisk

BASE = 100
FIRST = AbortedTransaction(producer_id=7, first_offset=90, last_offset=110, last_stable_offset=95)
SECOND = AbortedTransaction(8, 95, 120, 121)
THIRD = AbortedTransaction(9, 130, 140, 141)
ALL = [FIRST, SECOND, THIRD]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "log").mkdir()
    return tmp_path / "log" / "00000000000000000100.txnindex"


def make(path: Path) -> TransactionIndex:
    return TransactionIndex(OsDisk(), path, BASE)


def filled(path: Path) -> TransactionIndex:
    index = make(path)
    for transaction in ALL:
        index.append(transaction)
    return index


def test_the_bytes_of_an_entry(path: Path) -> None:
    make(path).append(FIRST)
    assert path.read_bytes() == bytes.fromhex(
        "0000 0000000000000007 000000000000005a 000000000000006e 000000000000005f"
    )


def test_an_entry_is_the_versioned_message_of_the_protocol(path: Path) -> None:
    filled(path)
    entries = [path.read_bytes()[start : start + 34] for start in range(0, 3 * 34, 34)]
    for entry, transaction in zip(entries, ALL, strict=True):
        decoded = decode_versioned(AbortedTxn, entry)
        assert transaction == (
            decoded.producer_id,
            decoded.first_offset,
            decoded.last_offset,
            decoded.last_stable_offset,
        )
        assert encode_versioned(decoded, 0) == entry


def test_no_file_is_made_before_the_first_append(path: Path) -> None:
    index = make(path)
    assert index.all() == []
    assert index.entries == 0
    assert index.collect(0, 1000) == ([], False)
    index.truncate_to(0)
    index.reset()
    index.check()
    index.sync()
    index.close()
    index.rename(path.with_suffix(".deleted"))
    index.remove()
    assert not list(path.parent.iterdir())


def test_entries_are_read_back(path: Path) -> None:
    filled(path).close()
    index = make(path)
    index.check()
    assert index.all() == ALL
    assert index.entries == 3


@pytest.mark.parametrize("last_offset", [99, 139, 140])
def test_last_offsets_ascend_from_the_base_offset(path: Path, last_offset: int) -> None:
    with pytest.raises(AssertionError):
        filled(path).append(AbortedTransaction(1, 90, last_offset, 150))
    with pytest.raises(AssertionError):
        make(path.with_name("empty")).append(AbortedTransaction(1, 90, BASE - 1, 150))


@pytest.mark.parametrize(
    ("fetch_offset", "upper_bound_offset", "found", "is_complete"),
    [
        (100, 131, ALL, True),
        (100, 130, [FIRST, SECOND], True),
        (100, 122, [FIRST, SECOND], True),
        (100, 121, [FIRST, SECOND], True),
        (100, 96, [FIRST, SECOND], True),
        (80, 95, [FIRST], True),
        (80, 96, [FIRST, SECOND], True),
        (80, 90, [], True),
        (110, 141, ALL, True),
        (111, 141, [SECOND, THIRD], True),
        (120, 142, [SECOND, THIRD], False),
        (121, 142, [THIRD], False),
        (140, 200, [THIRD], False),
        (141, 200, [], False),
    ],
)
def test_collect_finds_what_overlaps_and_knows_when_there_is_no_more(
    path: Path,
    fetch_offset: int,
    upper_bound_offset: int,
    found: list[AbortedTransaction],
    is_complete: bool,
) -> None:
    assert filled(path).collect(fetch_offset, upper_bound_offset) == (found, is_complete)


@pytest.mark.parametrize(("offset", "left"), [(0, 0), (110, 0), (111, 1), (120, 1), (141, 3)])
def test_truncation_drops_what_ended_at_or_behind_an_offset(
    path: Path, offset: int, left: int
) -> None:
    index = filled(path)
    index.truncate_to(offset)
    assert index.all() == ALL[:left]
    assert path.stat().st_size == 34 * left
    index.append(AbortedTransaction(1, 150, 160, 161))
    assert make(path).all() == [*ALL[:left], (1, 150, 160, 161)]


def test_a_large_index_is_truncated_in_place(path: Path) -> None:
    """Reads from 64 KiB on are views of a mapping; one that is held would force a copy."""
    index = make(path)
    for i in range(3000):
        index.append(AbortedTransaction(i, BASE + i, BASE + i, BASE + i + 1))
    inode = path.stat().st_ino
    assert index.collect(BASE + 2990, BASE + 2992) == ([index.all()[2990], index.all()[2991]], True)
    index.truncate_to(BASE + 2500)
    assert index.entries == 2500
    assert path.stat().st_ino == inode
    assert not path.with_name(path.name + ".truncated").exists()


def test_reset_drops_everything_even_before_it_was_read(path: Path) -> None:
    filled(path).close()
    index = make(path)
    index.reset()
    assert index.all() == []
    assert path.read_bytes() == b""


def entry(*numbers: int) -> bytes:
    version, *fields = numbers
    return version.to_bytes(2, "big", signed=True) + b"".join(
        field.to_bytes(8, "big", signed=True) for field in fields
    )


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (entry(0, *FIRST)[:-1], "multiple of 34"),
        (entry(0, *FIRST) + b"\0", "multiple of 34"),
        (entry(1, *FIRST), "version 1"),
        (entry(-1, *FIRST), "version -1"),
        (entry(0, 7, 90, 99, 100), "last_offset=99"),
        (entry(0, 7, 105, 104, 100), "first_offset=105"),
        (entry(0, *SECOND) + entry(0, *FIRST), "after offset 120"),
        (entry(0, *FIRST) + entry(0, *FIRST), "after offset 110"),
        (entry(0, *FIRST) + bytes(34), "after offset 110"),
    ],
)
def test_a_damaged_file_fails_the_check(path: Path, content: bytes, why: str) -> None:
    path.write_bytes(content)
    with pytest.raises(CorruptionError, match=why):
        make(path).check()


def test_an_unknown_version_is_not_served_to_a_fetch(path: Path) -> None:
    path.write_bytes(entry(1, *FIRST))
    with pytest.raises(CorruptionError, match="version 1"):
        make(path).collect(100, 200)


def test_the_file_follows_rename_and_relocate(path: Path) -> None:
    index = filled(path)
    index.rename(path.with_suffix(".deleted"))
    assert not path.exists()
    index.append(AbortedTransaction(1, 150, 160, 161))
    folder = path.parent.rename(path.parent.with_name("log-delete"))
    index.relocate(folder / index.path.name)
    assert len(index.all()) == 4
    index.sync()
    index.remove()
    assert not list(folder.iterdir())
    assert index.all() == []


def test_a_torn_append_is_overwritten_by_the_next() -> None:
    for seed in range(20):
        disk = SimulatedDisk(Random(seed))
        index = TransactionIndex(disk, PurePosixPath("/a.txnindex"), BASE)
        index.append(FIRST)
        disk.fail("write", errno.ENOSPC)
        with pytest.raises(OSError, match="No space"):
            index.append(SECOND)
        index.close()  # opened again, the file has the size that the failed write gave it
        assert index.all() == [FIRST]
        index.append(SECOND)
        index.check()
        assert index.all() == [FIRST, SECOND]


def test_a_failed_sync_is_tried_again() -> None:
    disk = SimulatedDisk(Random(1))
    index = TransactionIndex(disk, PurePosixPath("/a.txnindex"), BASE)
    index.append(FIRST)
    disk.fail("sync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        index.sync()
    before = disk.operations
    index.sync()
    index.sync()
    assert disk.operations == before + 1
