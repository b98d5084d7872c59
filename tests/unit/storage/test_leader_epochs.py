"""Leader epochs: Kafka's file, the rules of assigning, KIP-101 answers, truncation, damage."""

import errno
from pathlib import Path, PurePosixPath
from random import Random

import pytest

from odradek.core.errors import CorruptionError
from odradek.storage.disk import OsDisk
from odradek.storage.leader_epochs import LeaderEpochs
from odradek.testing.disk import SimulatedDisk
from tests.storage_batches import BASE_TIME_MS, make_batch
from tests.unit.storage.conftest import MakeLog

THREE = [(2, 0), (4, 10), (7, 30)]
FILE = "0\n3\n2 0\n4 10\n7 30\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "log").mkdir()
    return tmp_path / "log" / "leader-epoch-checkpoint"


def make(path: Path) -> LeaderEpochs:
    return LeaderEpochs(OsDisk(), path)


def filled(path: Path) -> LeaderEpochs:
    epochs = make(path)
    for epoch, start_offset in THREE:
        epochs.assign(epoch, start_offset)
    return epochs


@pytest.mark.seed_row("3.5")
def test_the_file_is_kafkas_and_written_at_once(path: Path) -> None:
    epochs = filled(path)
    assert path.read_text() == FILE
    epochs.check_invariants()
    assert make(path).entries == THREE


def test_nothing_is_read_or_made_before_the_first_use(path: Path) -> None:
    epochs = make(path)
    path.write_text(FILE)
    assert epochs.latest_epoch == 7


@pytest.mark.parametrize("content", [None, "", "0\n", "0\n0\n"])
def test_no_file_and_files_without_entries_are_empty(path: Path, content: str | None) -> None:
    if content is not None:
        path.write_text(content)
    epochs = make(path)
    assert epochs.entries == []
    assert epochs.latest_epoch is None
    assert epochs.end_offset_for(0, 100) == (-1, -1)
    assert epochs.epoch_for_offset(0) is None
    assert epochs.previous_epoch(5) is None
    epochs.truncate_from_end(0)
    epochs.truncate_from_start(10)
    epochs.check_invariants()


@pytest.mark.parametrize(
    ("assigned", "expected"),
    [
        ((7, 30), THREE),
        ((7, 31), THREE),
        ((7, 29), [(2, 0), (4, 10), (7, 29)]),
        ((7, 10), [(2, 0), (7, 10)]),
        ((8, 31), [*THREE, (8, 31)]),
        ((8, 30), [(2, 0), (4, 10), (8, 30)]),
        ((8, 5), [(2, 0), (8, 5)]),
        ((8, 0), [(8, 0)]),
        ((5, 40), [(2, 0), (4, 10), (5, 40)]),
        ((4, 40), [(2, 0), (4, 40)]),
        ((4, 20), [(2, 0), (4, 20)]),
        ((4, 10), [(2, 0), (4, 10)]),
        ((0, 40), [(0, 40)]),
    ],
)
def test_assigning_drops_the_entries_in_conflict(
    path: Path, assigned: tuple[int, int], expected: list[tuple[int, int]]
) -> None:
    epochs = filled(path)
    epochs.assign(*assigned)
    assert epochs.entries == expected
    assert make(path).entries == expected
    epochs.check_invariants()


def test_assigning_the_latest_epoch_again_writes_nothing() -> None:
    disk = SimulatedDisk(Random(1))
    epochs = LeaderEpochs(disk, PurePosixPath("/leader-epoch-checkpoint"))
    epochs.assign(3, 10)
    before = disk.operations
    epochs.assign(3, 10)
    epochs.assign(3, 500)
    assert disk.operations == before


def test_negative_epochs_and_offsets_are_our_bug(path: Path) -> None:
    for epoch, start_offset in [(-1, 0), (0, -1)]:
        with pytest.raises(AssertionError):
            make(path).assign(epoch, start_offset)
    with pytest.raises(AssertionError):
        filled(path).truncate_from_end(-1)


@pytest.mark.seed_row("3.5")
@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (-1, (-1, -1)),  # undefined
        (0, (0, 0)),  # before the first: the epoch asked for, the start of the first
        (1, (1, 0)),
        (2, (2, 10)),
        (3, (2, 10)),  # between: the epoch below
        (4, (4, 30)),
        (5, (4, 30)),
        (7, (7, 100)),  # the latest ends with the log
        (8, (-1, -1)),  # not known yet
    ],
)
def test_end_offset_of_an_epoch(path: Path, epoch: int, expected: tuple[int, int]) -> None:
    assert filled(path).end_offset_for(epoch, log_end_offset=100) == expected


def test_end_offset_of_an_epoch_whose_records_are_gone_is_the_start_of_what_is_left(
    path: Path,
) -> None:
    epochs = filled(path)
    epochs.truncate_from_start(15)
    assert epochs.end_offset_for(2, 100) == (2, 15)
    assert epochs.end_offset_for(4, 100) == (4, 30)


@pytest.mark.parametrize(
    ("offset", "epoch"), [(0, 2), (9, 2), (10, 4), (29, 4), (30, 7), (10**12, 7)]
)
def test_the_epoch_of_an_offset(path: Path, offset: int, epoch: int) -> None:
    assert filled(path).epoch_for_offset(offset) == epoch


def test_an_offset_before_the_first_entry_has_no_epoch(path: Path) -> None:
    epochs = make(path)
    epochs.assign(3, 10)
    assert epochs.epoch_for_offset(9) is None


@pytest.mark.parametrize(
    ("epoch", "previous"), [(0, None), (2, None), (3, 2), (4, 2), (7, 4), (8, 7)]
)
def test_the_previous_epoch(path: Path, epoch: int, previous: int | None) -> None:
    assert filled(path).previous_epoch(epoch) == previous


@pytest.mark.parametrize(
    ("end_offset", "left"), [(0, 0), (1, 1), (10, 1), (11, 2), (30, 2), (31, 3), (99, 3)]
)
def test_truncation_from_the_end_is_written_at_once(path: Path, end_offset: int, left: int) -> None:
    epochs = filled(path)
    epochs.truncate_from_end(end_offset)
    assert epochs.entries == THREE[:left]
    assert make(path).entries == THREE[:left]


@pytest.mark.parametrize(
    ("start_offset", "expected"),
    [
        (0, THREE),
        (5, [(2, 5), (4, 10), (7, 30)]),
        (10, [(4, 10), (7, 30)]),
        (29, [(4, 29), (7, 30)]),
        (30, [(7, 30)]),
        (1000, [(7, 1000)]),
    ],
)
def test_truncation_from_the_start_moves_the_start_and_is_written_by_sync(
    path: Path, start_offset: int, expected: list[tuple[int, int]]
) -> None:
    epochs = filled(path)
    epochs.truncate_from_start(start_offset)
    assert epochs.entries == expected
    epochs.check_invariants()
    assert path.read_text() == FILE
    epochs.sync()
    assert make(path).entries == expected


def test_truncation_before_the_first_entry_changes_nothing(path: Path) -> None:
    epochs = make(path)
    epochs.assign(3, 10)
    epochs.truncate_from_start(5)
    assert epochs.entries == [(3, 10)]


def test_sync_without_a_change_writes_nothing() -> None:
    disk = SimulatedDisk(Random(1))
    epochs = LeaderEpochs(disk, PurePosixPath("/leader-epoch-checkpoint"))
    epochs.assign(1, 0)
    epochs.sync()
    before = disk.operations
    epochs.truncate_from_start(0)
    epochs.sync()
    assert disk.operations == before


def test_clear_drops_everything_even_a_malformed_file(path: Path) -> None:
    path.write_text("rubbish")
    epochs = make(path)
    epochs.clear()
    assert epochs.entries == []
    assert path.read_text() == "0\n0\n"


def test_entries_in_conflict_that_an_old_broker_wrote_are_dropped(path: Path) -> None:
    path.write_text("0\n4\n2 0\n5 40\n4 30\n6 30\n")
    assert make(path).entries == [(2, 0), (6, 30)]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("1\n0\n", 1),
        ("x\n0\n", 1),
        ("0\nx\n", 2),
        ("0\n2\n1 0\n", 2),
        ("0\n1\n1 0\n2 5\n", 2),
        ("0\n1\n1\n", 3),
        ("0\n1\n1 2 3\n", 3),
        ("0\n2\n1 0\nx 5\n", 4),
        ("0\n1\n-1 0\n", 3),
        ("0\n1\n1 -5\n", 3),
        ("0\n1\n2147483648 0\n", 3),
        ("0\n1\n1 9223372036854775808\n", 3),
    ],
)
def test_a_malformed_file_is_corruption_with_file_and_line(
    path: Path, content: str, line: int
) -> None:
    path.write_text(content)
    with pytest.raises(CorruptionError, match=rf"leader-epoch-checkpoint, line {line}:"):
        make(path).entries  # noqa: B018


def test_an_assignment_that_could_not_be_written_did_not_happen() -> None:
    path = PurePosixPath("/leader-epoch-checkpoint")
    disk = SimulatedDisk(Random(1))
    epochs = LeaderEpochs(disk, path)
    epochs.assign(1, 0)
    disk.fail("write", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        epochs.assign(2, 50)
    assert epochs.latest_epoch == 1
    epochs.assign(2, 50)
    disk.kill()
    assert LeaderEpochs(disk, path).entries == [(1, 0), (2, 50)]


def test_the_file_follows_its_folder(path: Path) -> None:
    epochs = filled(path)
    folder = path.parent.rename(path.parent.with_name("log-delete"))
    epochs.relocate(folder / path.name)
    epochs.assign(9, 90)
    assert make(folder / path.name).latest_epoch == 9


# An epoch begins with leadership.


def test_an_epoch_without_records_is_known_and_not_written(path: Path) -> None:
    epochs = filled(path)
    epochs.begin(9, 42)
    assert epochs.entries == [*THREE, (9, 42)]
    assert epochs.end_offset_for(9, 42) == (9, 42)
    assert epochs.end_offset_for(8, 42) == (7, 42)
    assert (epochs.latest_epoch, epochs.written_epoch) == (9, 7)
    epochs.sync()
    assert path.read_text() == FILE
    epochs.check_invariants()


def test_the_first_record_of_an_epoch_has_it_written(path: Path) -> None:
    epochs = filled(path)
    epochs.begin(9, 42)
    epochs.assign(9, 42)
    assert (epochs.latest_epoch, epochs.written_epoch) == (9, 9)
    assert make(path).entries == [*THREE, (9, 42)]


def test_leaders_who_wrote_nothing_leave_no_epoch(path: Path) -> None:
    epochs = filled(path)
    for epoch in (8, 9, 12):
        epochs.begin(epoch, 42)
    assert epochs.entries == [*THREE, (12, 42)]
    epochs.assign(12, 42)
    assert make(path).entries == [*THREE, (12, 42)]


def test_an_epoch_that_has_begun_does_not_begin_again(path: Path) -> None:
    epochs = filled(path)
    epochs.begin(7, 42)
    assert epochs.entries == THREE
    assert epochs.written_epoch == 7


def test_an_epoch_without_records_outlives_the_start_and_not_the_end(path: Path) -> None:
    epochs = filled(path)
    epochs.begin(9, 42)
    epochs.truncate_from_start(42)
    assert epochs.entries == [(9, 42)]
    assert epochs.written_epoch is None
    epochs.sync()
    assert make(path).entries == [(9, 42)]
    epochs.truncate_from_end(42)
    assert epochs.entries == []
    assert make(path).entries == []


def test_a_log_is_written_with_the_epoch_whatever_was_truncated_before(make_log: MakeLog) -> None:
    log = make_log()
    log.begin_epoch(3)
    log.truncate_to(5, now_ms=0)  # behind the end: there is nothing to cut
    log.append_as_leader(make_batch([b"v"]), leader_epoch=3, now_ms=BASE_TIME_MS)
    log.begin_epoch(4)
    log.update_high_watermark(1)
    log.advance_log_start_offset(1)
    log.append_as_leader(make_batch([b"v"]), leader_epoch=4, now_ms=BASE_TIME_MS)
    assert LeaderEpochs(log.disk, log.leader_epochs.path).entries == [(4, 1)]
