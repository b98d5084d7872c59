"""Indexes and producer state: entries, sanity, and what does not fit the log."""

from struct import pack

import pytest

from odradek.storage.producer_snapshot import encode_snapshot
from tests.unit.storage.dump.dumped import LOG, batch, lines_of, out, problems

INDEX = LOG.replace(".log", ".index")
TIME_INDEX = LOG.replace(".log", ".timeindex")
TRANSACTION_INDEX = LOG.replace(".log", ".txnindex")
SNAPSHOT = LOG.replace(".log", ".snapshot")
FIRST = batch(b"a", b"b", timestamp=1000)
SECOND = batch(b"c", b"d", base_offset=2, timestamp=2000)
SEGMENT = {LOG: FIRST + SECOND, INDEX: pack(">ii", 3, len(FIRST))}


@pytest.mark.seed_row("3.4")
def test_entries_that_fit_are_printed_and_only_then() -> None:
    lines = lines_of(SEGMENT, INDEX)
    assert out(lines) == [f"Dumping {INDEX}", f"offset: 3 position: {len(FIRST)}"]
    assert problems(lines) == []
    assert out(lines_of(SEGMENT, INDEX, verify_index_only=True)) == [f"Dumping {INDEX}"]
    passed = out(lines_of(SEGMENT, INDEX, index_sanity_check=True))
    assert passed[1] == f"{INDEX} passed sanity check."


def test_mismatches_are_told_in_descending_order() -> None:
    files = SEGMENT | {INDEX: pack(">iiii", 1, len(FIRST), 2, len(FIRST))}
    assert problems(lines_of(files, INDEX)) == [
        f"Mismatches in :/data/orders-0/{INDEX}",
        "  Index offset: 2, log offset: 3",
        "  Index offset: 1, log offset: 3",
    ]


def test_zeros_behind_the_entries_end_an_index() -> None:
    files = SEGMENT | {INDEX: SEGMENT[INDEX] + bytes(80)}
    assert out(lines_of(files, INDEX))[1:] == [f"offset: 3 position: {len(FIRST)}"]


def test_an_index_without_entries_is_empty() -> None:
    assert out(lines_of({LOG: b"", INDEX: b""}, INDEX))[1] == f"{INDEX} is empty."
    # Preallocated for a segment that has nothing yet: Kafka's tool dies here.
    assert out(lines_of({LOG: b"", INDEX: bytes(80)}, INDEX))[1] == f"{INDEX} is empty."


def test_entries_that_point_nowhere_are_a_failure() -> None:
    for position in (-1, len(FIRST + SECOND), 1 << 30):
        files = SEGMENT | {INDEX: pack(">ii", 3, position)}
        lines = lines_of(files, INDEX)
        assert len(problems(lines)) == 1
        assert lines[-1].is_failure


def test_an_index_with_half_an_entry_fails_the_sanity_check() -> None:
    files = SEGMENT | {INDEX: SEGMENT[INDEX] + b"\0"}
    [problem] = problems(lines_of(files, INDEX, index_sanity_check=True))
    assert problem.endswith("found 9 bytes which is neither positive nor a multiple of 8")
    files = SEGMENT | {INDEX: pack(">ii", -5, 3)}
    [problem] = problems(lines_of(files, INDEX, index_sanity_check=True))
    assert "the last offset is -5 which is less than the base offset 0" in problem


def test_an_index_needs_its_log() -> None:
    lines = lines_of({INDEX: b""}, INDEX)
    assert problems(lines) == [f"/data/orders-0/{LOG}: No such file or directory"]
    assert lines[-1].is_failure


def time_index(*entries: tuple[int, int]) -> dict[str, bytes]:
    return SEGMENT | {TIME_INDEX: b"".join(pack(">qi", *entry) for entry in entries)}


def test_times_that_fit_are_printed() -> None:
    lines = lines_of(time_index((1000, 1), (2000, 3), (0, 0)), TIME_INDEX)
    assert out(lines)[1:] == ["timestamp: 1000 offset: 1", "timestamp: 2000 offset: 3"]
    assert problems(lines) == []


def test_times_that_do_not_fit_are_told_by_kind() -> None:
    path = f"/data/orders-0/{TIME_INDEX}"
    files = time_index((1000, 1), (1001, 1), (2000, 3), (2000, 3), (3000, 2), (4000, 9))
    assert problems(lines_of(files, TIME_INDEX)) == [
        f"Found timestamp mismatch in :{path}",
        "  Index timestamp: 1001, log timestamp: 1000",
        f"Found out of order timestamp in :{path}",
        "  Index timestamp: 2000, Previously indexed timestamp: 2000",
        f"The following indexed offsets are not found in :{path}",
        "Indexed offset: 2, found log offset: 3",
        "Indexed offset: 9, found log offset: -1",
    ]


def test_a_time_index_may_fail_the_sanity_check_in_three_ways() -> None:
    for files, words in (
        (time_index((2000, 3), (1000, 4)), "less than the first timestamp 2000"),
        (time_index((1000, -1)), "the last offset is -1 which is less than the first offset 0"),
        (SEGMENT | {TIME_INDEX: b"\0"}, "found 1 bytes"),
    ):
        [problem] = problems(lines_of(files, TIME_INDEX, index_sanity_check=True))
        assert words in problem


def test_aborted_transactions() -> None:
    data = pack(">hqqqq", 0, 1, 5, 9, 10)
    lines = lines_of({TRANSACTION_INDEX: data + b"half"}, TRANSACTION_INDEX)
    assert out(lines)[1:] == [
        "version: 0 producerId: 1 firstOffset: 5 lastOffset: 9 lastStableOffset: 10"
    ]
    unknown = lines_of({TRANSACTION_INDEX: b"\0\1" + data[2:]}, TRANSACTION_INDEX)
    assert problems(unknown) == [f"{TRANSACTION_INDEX}: AbortedTxn: unknown version 1"]


@pytest.mark.seed_row("3.4")
def test_producers_with_and_without_a_batch() -> None:
    data = encode_snapshot([(1, 0, 9, 9, 9, 1000, 0, -1), (2, 3, -1, -1, 0, 1001, -1, 7)])
    assert out(lines_of({SNAPSHOT: data}, SNAPSHOT))[1:] == [
        "producerId: 1 producerEpoch: 0 coordinatorEpoch: 0 "
        "currentTxnFirstOffset: OptionalLong.empty lastTimestamp: 1000 firstSequence: 0 "
        "lastSequence: 9 lastOffset: 9 offsetDelta: 9 timestamp: 1000",
        "producerId: 2 producerEpoch: 3 coordinatorEpoch: -1 "
        "currentTxnFirstOffset: OptionalLong[7] lastTimestamp: 1001",
    ]


def test_a_damaged_snapshot_is_told_and_no_failure() -> None:
    data = bytearray(encode_snapshot([(1, 0, 9, 9, 9, 1000, 0, -1)]))
    crc = int.from_bytes(data[2:6], "big")
    for damaged, words in (
        (data[:-1], "Snapshot failed schema validation: "),
        (b"\0\7" + data[2:], "Snapshot contained an unknown file version 7"),
        (data[:-1] + b"\0", f"(CRC is no longer valid). Stored crc: {crc}. Computed crc: "),
        (b"", "Snapshot failed schema validation: "),
    ):
        lines = lines_of({SNAPSHOT: bytes(damaged)}, SNAPSHOT)
        [problem] = problems(lines)
        assert words in problem
        assert not lines[-1].is_failure
