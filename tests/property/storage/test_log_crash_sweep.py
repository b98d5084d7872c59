"""A crash at every single file operation of a scripted life of a log.

The script appends, rolls, flushes, truncates, deletes and closes. For each n it runs again on a
disk that stops at the n-th operation, once as a killed process and several times as a power loss
with different luck. Opening must not raise, must give a prefix of what was appended, and in it
everything that had been flushed.
"""

from pathlib import PurePosixPath
from random import Random

import pytest

from odradek.core.ids import TopicPartition
from odradek.records import Record, read_all
from odradek.storage.config import LogConfig
from odradek.storage.log import Log
from odradek.storage.producer_state import AppendOrigin
from odradek.storage.recovery import LogSettings, open_log
from odradek.storage.retention import delete_old_segments
from odradek.testing.disk import SimulatedCrash, SimulatedDisk
from tests.storage_batches import BASE_TIME_MS, make_batch, make_marker

FOLDER = PurePosixPath("/data/t-0")
SETTINGS = LogSettings(
    LogConfig(segment_bytes=500, index_interval_bytes=100, segment_index_bytes=96, retention_ms=50)
)
COORDINATOR = AppendOrigin.COORDINATOR
LUCK = 3
NOW_MS = BASE_TIME_MS


class Life:
    """One run of the script, and what a witness outside the machine saw of it."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        self.appended: list[Record] = []
        self.histories: list[list[Record]] = []
        self.flushed = 0
        self.log_start_offset = 0
        self.recovery_point = 0

    def run(self) -> None:
        log = self.open(clean=True)
        for number in range(8):
            self.append(log, number)
        self.flush(log)
        for number in range(8, 14):
            self.append(log, number)
        self.truncate(log, 11)
        for number in range(11, 20):
            self.append(log, number, epoch=1)
        self.transaction(log)
        self.flush(log)
        log.advance_log_start_offset(9)
        self.log_start_offset = 9
        delete_old_segments(log, NOW_MS)
        for segment in log.take_deletable(NOW_MS + 100_000):
            segment.remove()
        log.close()
        self.recovery_point = log.recovery_point

    def open(self, *, clean: bool) -> Log:
        log, _ = open_log(
            TopicPartition("t", 0),
            self.disk,
            FOLDER,
            SETTINGS,
            now_ms=NOW_MS,
            random=Random(0),
            clean=clean,
            log_start_offset=self.log_start_offset,
            recovery_point=self.recovery_point,
        )
        log.update_high_watermark(log.log_end_offset)
        return log

    def append(self, log: Log, number: int, epoch: int = 0) -> None:
        value = b"record %d of epoch %d" % (number, epoch)
        # Known to the witness before the call: a crash in the middle may keep it or not.
        self.appended.append(Record(number, NOW_MS, b"k", value))
        batch = make_batch([value], keys=[b"k"], timestamp=NOW_MS)
        log.append_as_leader(batch, leader_epoch=epoch, now_ms=NOW_MS)
        log.update_high_watermark(log.log_end_offset)

    def transaction(self, log: Log) -> None:
        value = b"in a transaction"
        self.appended.append(Record(len(self.appended), NOW_MS, b"k", value))
        batch = make_batch(
            [value],
            keys=[b"k"],
            timestamp=NOW_MS,
            producer_id=5,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
        log.append_as_leader(batch, leader_epoch=1, now_ms=NOW_MS)
        marker = make_marker(5, 0, commit=False, timestamp=NOW_MS)
        log.append_as_leader(marker, leader_epoch=1, now_ms=NOW_MS, origin=COORDINATOR)
        log.update_high_watermark(log.log_end_offset)

    def truncate(self, log: Log, offset: int) -> None:
        self.histories.append(list(self.appended))
        self.recovery_point = 0  # checkpointed before the truncation counts as done
        del self.appended[offset:]
        self.histories.append(list(self.appended))
        log.truncate_to(offset, NOW_MS)

    def flush(self, log: Log) -> None:
        log.flush()
        self.recovery_point = log.recovery_point
        self.flushed = len(self.appended)

    def check(self, log: Log) -> None:
        log.check_invariants()
        seen: list[Record] = []
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            blob = log.read(offset, bytes_max=10_000).records
            new = [r for r in read_all(blob) if r.offset >= offset]
            seen += new
            offset = new[-1].offset + 1 if new else log.log_end_offset
        start = log.log_start_offset
        candidates = [self.appended, *self.histories]
        assert any(seen == c[start : start + len(seen)] for c in candidates), seen
        end = max(start + len(seen), start)
        assert end >= min(self.flushed, len(self.appended))


def crashed_at(operation: int, luck: int, *, power: bool) -> tuple[Life, bool]:
    disk = SimulatedDisk(Random(operation * 1000 + luck))
    disk.make_folder(FOLDER)
    disk.sync_all()
    disk.stop_at = disk.operations + operation
    life = Life(disk)
    try:
        life.run()
    except SimulatedCrash:
        stopped = True
    else:
        stopped = False
    if power:
        disk.crash()
    else:
        disk.kill()
    return life, stopped


@pytest.mark.slow
@pytest.mark.parametrize("power", [False, True], ids=["killed", "power loss"])
def test_every_crash_point_recovers(power: bool) -> None:
    operation, stopped = 1, True
    while stopped:
        for luck in range(LUCK if power else 1):
            life, stopped = crashed_at(operation, luck, power=power)
            life.check(life.open(clean=False))
        operation += 1
    assert operation > 100, "the script is long enough to mean something"


@pytest.mark.slow
def test_a_crash_while_recovering_recovers() -> None:
    """Recovery writes too; the next crash may come in the middle of it."""
    for operation in range(1, 200, 7):
        life, _ = crashed_at(operation, 0, power=True)
        during = 1
        while True:
            life.disk.stop_at = life.disk.operations + during
            try:
                log = life.open(clean=False)
            except SimulatedCrash:
                life.disk.crash()
                during += 3
                continue
            life.disk.stop_at = None
            life.check(log)
            break
