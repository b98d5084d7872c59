"""A crash at every operation of a cleaning and its swap leaves a log that a reader can trust.

After each crash the log is opened, and it must hold: the newest value of each key that it held
before; nothing that it did not hold; no value that a tombstone had deleted; the same producers.
Then it is cleaned again, which must give what the cleaning without a crash gave.
"""

import errno
from contextlib import suppress
from pathlib import PurePosixPath
from random import Random

import pytest

from odradek.records import Record
from odradek.storage.checkpoints import read_offset_checkpoint
from odradek.storage.cleaner.offset_map import ENTRY_BYTES
from odradek.testing.disk import SimulatedCrash, SimulatedDisk
from tests.unit.storage.cleaner.compacted_log import (
    DAY_MS,
    FOLDER,
    PARTITION,
    CompactedLog,
    newest,
)

CHECKPOINT = PurePosixPath("/data/cleaner-offset-checkpoint")


def filthy_log(seed: int) -> CompactedLog:
    """A log whose next cleaning has something of everything to do."""
    made = CompactedLog(SimulatedDisk(Random(seed)), segment_bytes=600)
    for number in range(8):
        made.append((f"k{number}", "old"), ("deleted", str(number)))
    made.append(("deleted", None), ("k0", "newer"))
    made.append(("k1", "aborted"), producer_id=1, transactional=True)
    made.abort(1)
    made.roll()
    made.clean()
    # The next cleaning comes after the horizon of what the first one saw.
    made.now_ms += DAY_MS
    for number in range(6):
        made.append((f"k{number}", "newest"), producer_id=2)
    made.append(("k7", "aborted too"), producer_id=1, transactional=True)
    made.append(("k6", None))
    made.abort(1)
    made.append(("k7", "committed"), producer_id=3, transactional=True)
    made.commit(3)
    made.roll()
    made.append(("active", "1"), ("k5", "active"))
    return made


def producers(made: CompactedLog) -> dict[int, tuple[int, int, int | None, int | None]]:
    return {
        producer_id: (
            state.producer_epoch,
            state.last_sequence,
            state.last_data_offset,
            state.current_txn_first_offset,
        )
        for producer_id, state in made.log.producer_states.active_producers.items()
    }


def live(records: list[Record]) -> dict[bytes, Record]:
    return {key: each for key, each in newest(records).items() if each.value is not None}


def recover(made: CompactedLog, recovery_point: int) -> None:
    made.reopen(recovery_point=recovery_point)
    offsets = read_offset_checkpoint(made.disk, CHECKPOINT)
    made.checkpoint = offsets.get(PARTITION)
    made.log.check_invariants()


@pytest.mark.slow
@pytest.mark.parametrize(("power_loss", "flushed"), [(True, False), (True, True), (False, True)])
def test_every_crash_point_recovers(power_loss: bool, flushed: bool) -> None:
    made = filthy_log(1)
    # With the recovery point at the end nothing is checked on opening; at 0 everything is.
    recovery_point = made.log.log_end_offset if flushed else 0
    made.disk.sync_all()
    before = made.disk.snapshot()
    before_checkpoint = made.checkpoint
    original = made.records()
    original_committed = made.records(committed=True)
    expected_producers = producers(made)

    recover(made, recovery_point)
    made.clean()
    cleaned = made.rows()
    operations = made.disk.operations - before.operations
    assert operations > 60
    assert len(cleaned) < len(original)

    made.disk.restore(before)
    for stop in range(1, operations + 2):  # the last one comes when all is done
        for seed in range(6 if stop > operations - 4 else 1):
            made.disk.restore(before)
            made.disk.random = Random(1000 * stop + seed)
            made.checkpoint = before_checkpoint
            recover(made, recovery_point)
            made.disk.stop_at = before.operations + stop
            with suppress(SimulatedCrash):
                made.clean()
            if power_loss:
                made.disk.crash()
            else:
                made.disk.kill()
            recover(made, recovery_point)
            case = f"crash at {stop}, seed {seed}: {list(made.disk.trace)[-5:]}"
            check(made, original, original_committed, case)
            assert producers(made) == expected_producers, case
            made.clean()
            assert made.rows() == cleaned, case


def check(
    made: CompactedLog, original: list[Record], original_committed: list[Record], case: str
) -> None:
    records, committed = made.records(), made.records(committed=True)
    assert live(committed) == live(original_committed), case
    assert set(records) <= set(original), case
    assert [r.offset for r in records] == sorted({r.offset for r in records}), case
    names = made.disk.names(FOLDER)
    litter = (".cleaned", ".swap", ".deleted")
    assert not [name for name in names if name.endswith(litter)], case


def test_what_a_failed_cleaning_wrote_is_removed_and_the_next_one_works() -> None:
    made = filthy_log(2)
    before = made.rows()
    for kind in ("create", "write", "sync", "truncate"):
        made.disk.fail(kind, errno.ENOSPC, path="*.cleaned", after=2)
        with pytest.raises(OSError, match="No space"):
            made.clean()
        assert made.rows() == before
        assert not [name for name in made.disk.names(FOLDER) if name.endswith(".cleaned")]
    made.clean()
    assert len(made.rows()) < len(before)


def test_older_segments_are_swapped_before_younger_ones() -> None:
    """Else two crashes could bring a value back whose tombstone is gone for good."""
    made = filthy_log(3)
    made.clean()
    renames = [line.split(" ", 3)[2:] for line in made.disk.trace if ".log.cleaned to" in line]
    order = [source for source, _ in renames[-3:]]
    assert len(order) == 3
    assert order == sorted(order)


def test_what_was_aborted_stays_hidden_wherever_the_swap_stops() -> None:
    """With a map too small for all, aborted data is left, and so must be its index."""

    def made_with_aborted_data() -> CompactedLog:
        made = CompactedLog()
        made.append(("a", "1"))
        made.append(("b", "1"))
        made.append(("c", "aborted"), producer_id=1, transactional=True)
        made.abort(1)
        made.roll()
        made.append(("x", "1"))
        made.disk.sync_all()
        return made

    small: dict[str, float] = {"dedupe_buffer_bytes": ENTRY_BYTES, "load_factor": 1.0}
    made = made_with_aborted_data()
    expected = made.rows(committed=True)
    start = made.disk.operations
    made.clean(**small)
    for stop in range(start + 1, made.disk.operations + 1):
        crashed = made_with_aborted_data()
        crashed.disk.stop_at = stop
        with suppress(SimulatedCrash):
            crashed.clean(**small)
        crashed.disk.kill()
        recover(crashed, crashed.log.log_end_offset)
        assert crashed.rows(committed=True) == expected, list(crashed.disk.trace)[-5:]
