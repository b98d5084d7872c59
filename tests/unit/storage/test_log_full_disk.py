"""An append that finds no space leaves the log as it was, whichever of its steps that hits."""

import errno
from contextlib import suppress
from random import Random

import pytest

from odradek.records import ControlRecordType
from odradek.records.builder import BatchBuilder, build_end_transaction_marker
from odradek.records.control import EndTransactionMarker
from odradek.storage.config import LogConfig
from odradek.storage.log import Log
from odradek.storage.producer_state import AppendOrigin
from odradek.storage.recovery import LogSettings, create_log, open_log
from odradek.testing.disk import SimulatedDisk
from odradek.testing.disk_faults import Kind
from tests.unit.storage.test_log_store_support import T0, A, new_disk, values

FOLDER = A / "t-0"
CONFIG = LogConfig(segment_bytes=600, segment_index_bytes=120, index_interval_bytes=60)
PRODUCER_ID = 7
STEPS = 40


def batch(number: int) -> bytearray:
    """Have each fourth batch end a transaction, in an abort; the others are part of one."""
    if number % 4 == 3:
        return build_end_transaction_marker(
            EndTransactionMarker(ControlRecordType.ABORT, 0),
            timestamp=number,
            producer_id=PRODUCER_ID,
            producer_epoch=0,
        )
    builder = BatchBuilder(
        producer_id=PRODUCER_ID,
        producer_epoch=0,
        base_sequence=number - number // 4,
        transactional=True,
    )
    builder.append(number, b"k", b"%d" % number)
    return builder.build()


def append(log: Log, number: int) -> None:
    is_marker = number % 4 == 3
    origin = AppendOrigin.COORDINATOR if is_marker else AppendOrigin.CLIENT
    # Epochs go up now and then: a checkpoint that has to be written before the batch.
    log.append_as_leader(batch(number), leader_epoch=number // 10, now_ms=number, origin=origin)
    log.update_high_watermark(log.log_end_offset)


def state(log: Log) -> tuple[object, ...]:
    producers = log.producer_states.active_producers
    return (
        log.log_end_offset,
        values(log),
        {
            producer_id: (entry.current_txn_first_offset, entry.last_sequence)
            for producer_id, entry in producers.items()
        },
        log.first_unstable_offset,
        [each for segment in log.segments for each in segment.transaction_index.all()],
    )


def written_without_faults() -> list[tuple[object, ...]]:
    log = create_log(T0, new_disk(), FOLDER, LogSettings(CONFIG), now_ms=0, random=Random(0))
    states = [state(log)]
    for number in range(STEPS):
        append(log, number)
        states.append(state(log))
    return states


def reopened(disk: SimulatedDisk, *, clean: bool) -> Log:
    log, report = open_log(
        T0, disk, FOLDER, LogSettings(CONFIG), now_ms=0, random=Random(0), clean=clean
    )
    assert report.loss is None
    log.update_high_watermark(log.log_end_offset)
    return log


@pytest.mark.parametrize("kind", ["write", "create", "truncate"])
@pytest.mark.parametrize("clean", [True, False])
def test_whichever_step_finds_no_space_the_log_goes_on_where_it_was(
    kind: Kind, clean: bool
) -> None:
    expected = written_without_faults()
    refused = 0
    for after in range(0, 200, 3):
        disk = new_disk(after)
        log = create_log(T0, disk, FOLDER, LogSettings(CONFIG), now_ms=0, random=Random(0))
        disk.fail(kind, errno.ENOSPC, after=after, times=2)
        for number in range(STEPS):
            while True:
                try:
                    append(log, number)
                except OSError:
                    refused += 1
                    assert state(log) == expected[number], (after, number)
                else:
                    break
            assert state(log) == expected[number + 1], (after, number)
        if clean:
            with suppress(OSError):
                log.close()
            if disk.faults[0].times != 0:
                continue  # it struck in the close, which is another story
        disk.kill()
        disk.faults.clear()
        assert state(reopened(disk, clean=clean)) == expected[-1], after
    assert refused > 10


@pytest.mark.parametrize("kind", ["write", "create", "truncate"])
def test_whichever_step_finds_no_space_a_follower_goes_on_where_it_was(kind: Kind) -> None:
    """It appends several batches at once; the space is gone with the first or a later entry."""
    leader = create_log(T0, new_disk(), FOLDER, LogSettings(CONFIG), now_ms=0, random=Random(0))
    for number in range(STEPS):
        append(leader, number)
    refused = 0
    for after in range(100):
        disk = new_disk(after)
        log = create_log(T0, disk, FOLDER, LogSettings(CONFIG), now_ms=0, random=Random(0))
        disk.fail(kind, errno.ENOSPC, after=after, times=2)
        while (end_offset := log.log_end_offset) < leader.log_end_offset:
            fetched = leader.read(end_offset, bytes_max=500).records
            before = state(log)
            try:
                log.append_as_follower(bytes(fetched), now_ms=0)
            except OSError:
                refused += 1
                assert state(log) == before, after
            log.update_high_watermark(log.log_end_offset)
        assert state(log) == state(leader), after
    assert refused > 10


def test_a_smaller_batch_that_fits_after_a_failed_roll_is_not_lost() -> None:
    disk = new_disk()
    log = create_log(T0, disk, FOLDER, LogSettings(CONFIG), now_ms=0, random=Random(0))

    def sized(size: int) -> bytearray:
        builder = BatchBuilder()
        builder.append(0, b"k", b"x" * size)
        return builder.build()

    log.append_as_leader(sized(400), leader_epoch=0, now_ms=0)
    disk.fail("create", errno.ENOSPC, path="*.index")
    with pytest.raises(OSError, match="No space"):
        log.append_as_leader(sized(400), leader_epoch=0, now_ms=0)
    for _ in range(2):
        log.append_as_leader(sized(1), leader_epoch=0, now_ms=0)
    log.close()
    disk.kill()
    log = reopened(disk, clean=True)
    assert log.log_end_offset == 3
    assert [len(value) for value in values(log)] == [400, 1, 1]
