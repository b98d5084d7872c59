"""The shell around the cleaner: choosing, handing out, taking in, and what happens meanwhile."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest

from odradek.records import BatchBuilder
from odradek.storage.checkpoints import read_offset_checkpoint, write_offset_checkpoint
from odradek.storage.cleaner.cleaning import clean
from odradek.storage.cleaner.log_cleaner import LogCleaner
from odradek.storage.cleaner.task import CleanerSettings, CleaningResult, CleaningTask
from odradek.storage.cleaner.worker import Workers
from odradek.storage.config import CleanupPolicy
from odradek.storage.disk import OsDisk
from odradek.storage.log import Log
from odradek.storage.recovery import LogSettings, create_log
from odradek.storage.retention import delete_old_segments
from odradek.testing.disk import SimulatedDisk
from tests.unit.storage.cleaner.compacted_log import (
    DAY_MS,
    FOLDER,
    LOG_DIR,
    PARTITION,
    START_MS,
    UNLIMITED,
    CompactedLog,
    compact_config,
)

CHECKPOINT = LOG_DIR / "cleaner-offset-checkpoint"
SECONDS_MAX = 180


class Bench:
    """A dirty log and a cleaner whose work is done at once, in this process."""

    def __init__(self, **config: Any) -> None:
        self.made = CompactedLog(**config)
        for _ in range(3):
            self.made.append(("a", "1"), ("b", "1"))
            self.made.roll()
        self.error: Exception | None = None
        self.cleaner = self.new_cleaner()

    def new_cleaner(self) -> LogCleaner:
        return LogCleaner(self.made.disk, LOG_DIR, self.submit, CleanerSettings())

    def submit(self, task: CleaningTask) -> Future[CleaningResult]:
        future: Future[CleaningResult] = Future()
        try:
            if self.error is not None:
                raise self.error
            future.set_result(clean(self.made.disk, task, UNLIMITED))
        except Exception as error:
            future.set_exception(error)
        return future

    def start(self) -> Future[CleaningResult]:
        to_clean = self.cleaner.select([self.made.log], self.made.now_ms)
        assert to_clean is not None
        return self.cleaner.start_cleaning(to_clean, self.made.now_ms)

    def litter(self) -> list[str]:
        return [name for name in self.made.disk.names(FOLDER) if name.endswith(".cleaned")]

    def is_dirty(self) -> bool:
        return self.cleaner.select([self.made.log], self.made.now_ms) is not None


@pytest.mark.seed_row("1.15")
def test_a_cleaning_is_swapped_in_and_its_end_remembered() -> None:
    bench = Bench()
    future = bench.start()
    assert not bench.is_dirty(), "it is being cleaned"
    assert not bench.cleaner.may_delete(PARTITION)
    plan = bench.cleaner.on_cleaned(PARTITION, future, START_MS)
    assert plan is not None
    assert bench.made.rows() == [(4, "a", "1"), (5, "b", "1")]
    assert read_offset_checkpoint(bench.made.disk, CHECKPOINT) == {}, "not before it is on disk"
    plan.run()
    assert read_offset_checkpoint(bench.made.disk, CHECKPOINT) == {PARTITION: 6}
    assert bench.cleaner.may_delete(PARTITION)
    assert not bench.is_dirty()
    assert bench.new_cleaner().checkpoint == {PARTITION: 6}


def test_the_log_is_appended_to_and_read_while_it_is_cleaned() -> None:
    bench = Bench()
    future = bench.start()
    bench.made.append(("a", "2"))
    bench.made.roll()
    bench.made.append(("a", "3"))
    bench.cleaner.on_cleaned(PARTITION, future, START_MS)
    assert bench.made.rows() == [(4, "a", "1"), (5, "b", "1"), (6, "a", "2"), (7, "a", "3")]


def test_old_files_stay_for_readers_until_their_time() -> None:
    bench = Bench(file_delete_delay_ms=1000)
    before = bench.made.log.segments[0]
    view = before.read(0, before.size)
    bench.cleaner.on_cleaned(PARTITION, bench.start(), START_MS)
    deleted = [n for n in bench.made.disk.names(FOLDER) if n.endswith(".log.deleted")]
    assert len(deleted) == 3
    assert bytes(before.read(0, before.size)) == bytes(view)
    assert bench.made.log.take_deletable(START_MS + 999) == []
    for segment in bench.made.log.take_deletable(START_MS + 1000):
        segment.remove()
    assert not [n for n in bench.made.disk.names(FOLDER) if n.endswith(".deleted")]


def test_snapshots_of_segments_that_are_gone_go_too() -> None:
    bench = Bench()
    bench.cleaner.on_cleaned(PARTITION, bench.start(), START_MS)
    bases = [segment.base_offset for segment in bench.made.log.segments]
    assert bases == [0, 6]
    snapshots = [int(n[:20]) for n in bench.made.disk.names(FOLDER) if n.endswith(".snapshot")]
    assert snapshots == [6]


def test_a_truncation_meanwhile_throws_the_result_away() -> None:
    bench = Bench()
    future = bench.start()
    bench.cleaner.checkpoint = {PARTITION: 4}
    write_offset_checkpoint(bench.made.disk, CHECKPOINT, bench.cleaner.checkpoint)
    bench.cleaner.on_truncated(PARTITION, 3)
    bench.made.log.truncate_to(3, START_MS)
    assert bench.made.log.log_end_offset == 2, "a batch goes as a whole"
    # The same sizes again, so that only what the cleaner was told can tell.
    for _ in range(2):
        bench.made.append(("a", "1"), ("b", "1"))
        bench.made.roll()
    assert bench.litter()
    assert bench.cleaner.on_cleaned(PARTITION, future, START_MS) is None
    assert not bench.litter()
    assert bench.cleaner.checkpoint == {}
    assert read_offset_checkpoint(bench.made.disk, CHECKPOINT) == {}
    assert len(bench.made.rows()) == 6
    assert bench.is_dirty()


@pytest.mark.parametrize("cut", ["truncation", "retention"])
def test_a_log_with_other_segments_is_not_swapped_even_if_nobody_told(cut: str) -> None:
    bench = Bench()
    future = bench.start()
    log = bench.made.log
    if cut == "retention":
        log.advance_log_start_offset(2)
        assert delete_old_segments(log, START_MS) == 1
    else:
        log.truncate_to(3, START_MS)
    rows = bench.made.rows()
    assert bench.cleaner.on_cleaned(PARTITION, future, START_MS) is None
    assert bench.made.rows() == rows
    assert not bench.litter()
    assert bench.cleaner.checkpoint == {}


def test_a_log_that_was_deleted_meanwhile_is_no_trouble() -> None:
    bench = Bench()
    future = bench.start()
    bench.cleaner.abandon(PARTITION)
    bench.made.disk.remove_folder(FOLDER)
    assert bench.cleaner.on_cleaned(PARTITION, future, START_MS) is None


def test_a_log_that_cannot_be_cleaned_is_set_aside() -> None:
    bench = Bench()
    bench.error = OSError("broken")
    assert bench.cleaner.on_cleaned(PARTITION, bench.start(), START_MS) is None
    assert bench.cleaner.uncleanable == {PARTITION: bench.error}
    assert not bench.is_dirty()
    assert bench.cleaner.may_delete(PARTITION)
    bench.cleaner.retain([])
    assert bench.cleaner.uncleanable == {}


def test_a_checkpoint_that_is_not_within_the_log_is_replaced_on_disk() -> None:
    bench = Bench()
    write_offset_checkpoint(bench.made.disk, CHECKPOINT, {PARTITION: 100})
    bench.cleaner = bench.new_cleaner()
    bench.cleaner.mend_checkpoint([bench.made.log])
    assert read_offset_checkpoint(bench.made.disk, CHECKPOINT) == {PARTITION: 0}


def test_forgotten_partitions_leave_the_checkpoint() -> None:
    bench = Bench()
    plan = bench.cleaner.on_cleaned(PARTITION, bench.start(), START_MS)
    assert plan is not None
    bench.cleaner.retain([])
    assert bench.cleaner.checkpoint == {}


def test_compaction_and_retention_work_on_the_same_log() -> None:
    bench = Bench(cleanup_policy=frozenset(CleanupPolicy), retention_ms=7 * DAY_MS)
    made = bench.made
    bench.cleaner.on_cleaned(PARTITION, bench.start(), START_MS)
    made.now_ms += 4 * DAY_MS
    made.append(("c", "1"))
    made.roll()
    assert delete_old_segments(made.log, made.now_ms) == 0
    made.now_ms += 4 * DAY_MS
    assert delete_old_segments(made.log, made.now_ms) == 1
    assert made.rows() == [(6, "c", "1")]
    assert bench.cleaner.checkpoint == {PARTITION: 6}
    made.append(("c", "2"))
    made.roll()
    assert bench.cleaner.on_cleaned(PARTITION, bench.start(), made.now_ms) is not None
    assert made.rows() == [(7, "c", "2")]


def test_retention_is_not_held_up_by_segments_of_which_nothing_is_left() -> None:
    made = CompactedLog(
        SimulatedDisk(Random(0), now_ms=START_MS + 100 * DAY_MS),
        cleanup_policy=frozenset(CleanupPolicy),
        retention_ms=7 * DAY_MS,
        segment_bytes=80,
    )
    for _ in range(3):
        made.append(("a", "1"))
    made.clean()
    assert made.batches()[0].records_count == 0
    made.now_ms += 8 * DAY_MS
    assert delete_old_segments(made.log, made.now_ms) == 3
    assert made.log.log_start_offset == 3


@pytest.fixture
def workers() -> Iterator[Workers]:
    started = Workers()
    yield started
    started.close()


def real_log(tmp_path: Path) -> Log:
    settings = LogSettings(compact_config(segment_bytes=2000, segment_index_bytes=12_000))
    folder = tmp_path / "topic-0"
    log = create_log(PARTITION, OsDisk(), folder, settings, now_ms=START_MS, random=Random(0))
    for number in range(100):
        builder = BatchBuilder(base_offset=number, partition_leader_epoch=0)
        builder.append(START_MS, b"k%d" % (number % 10), bytes(100))
        log.append_as_follower(builder.build(), now_ms=START_MS)
    log.update_high_watermark(log.log_end_offset)
    return log


@pytest.mark.slow
def test_a_log_is_cleaned_in_another_process(tmp_path: Path, workers: Workers) -> None:
    log = real_log(tmp_path)
    cleaner = LogCleaner(OsDisk(), tmp_path, workers.submit, CleanerSettings())
    to_clean = cleaner.select([log], START_MS)
    assert to_clean is not None
    future = cleaner.start_cleaning(to_clean, START_MS)
    future.exception(timeout=SECONDS_MAX)
    size = log.segments.bytes
    plan = cleaner.on_cleaned(PARTITION, future, START_MS)
    assert plan is not None
    plan.run()
    assert log.segments.bytes < size / 3
    assert cleaner.checkpoint == {PARTITION: log.segments.active.base_offset}
    assert {name[-8:] for name in OsDisk().names(tmp_path / "topic-0")} >= {".deleted"}
    log.close()


@pytest.mark.slow
def test_errors_come_back_from_the_other_process_and_so_does_the_pool(
    tmp_path: Path, workers: Workers
) -> None:
    log = real_log(tmp_path)
    cleaner = LogCleaner(OsDisk(), tmp_path, workers.submit, CleanerSettings())
    to_clean = cleaner.select([log], START_MS)
    assert to_clean is not None
    task = cleaner.start_cleaning(to_clean, START_MS)
    assert task.exception(timeout=SECONDS_MAX) is None
    assert isinstance(workers._pool, ProcessPoolExecutor)
    processes = workers._pool._processes
    for process_id in list(processes):
        os.kill(process_id, signal.SIGKILL)
    for process in list(processes.values()):
        process.join(SECONDS_MAX)
    bad = CleanerSettings(dedupe_buffer_bytes=1)
    cleaner.on_truncated(PARTITION, 0)
    assert cleaner.on_cleaned(PARTITION, task, START_MS) is None
    cleaner.settings = bad
    seen = []
    for _ in range(2):  # the first may be told that its process is gone
        to_clean = cleaner.select([log], START_MS)
        assert to_clean is not None
        future = cleaner.start_cleaning(to_clean, START_MS)
        seen.append(type(future.exception(timeout=SECONDS_MAX)).__name__)
        cleaner.on_cleaned(PARTITION, future, START_MS)
        cleaner.uncleanable.clear()
    assert seen[-1] == "DedupeBufferTooSmallError"
    log.close()
