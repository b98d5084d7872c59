"""A log is the list of what was appended, whatever happens to the machine.

Hypothesis drives the real log on a simulated disk next to a list. After the process is killed the
log holds the whole list; after the power went it holds a prefix, and in it all that was flushed.
"""

from pathlib import PurePosixPath
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from odradek.core.ids import TopicPartition
from odradek.records import CompressionType, Record, read_all
from odradek.storage.config import LogConfig
from odradek.storage.log import Log
from odradek.storage.recovery import LogSettings, RecoveryReport, open_log
from odradek.storage.retention import delete_old_segments
from odradek.storage.timestamps import find_offset_at
from odradek.testing.disk import SimulatedDisk
from tests.storage_batches import BASE_TIME_MS, make_batch

PARTITION = TopicPartition("t", 0)
FOLDER = PurePosixPath("/data/t-0")
# Tiny, so that thirty steps cross many borders.
SETTINGS = LogSettings(
    LogConfig(
        segment_bytes=600,
        max_message_bytes=600,
        index_interval_bytes=100,
        segment_index_bytes=96,
        retention_ms=1000,
    )
)
VALUES = st.lists(st.binary(max_size=40), min_size=1, max_size=5)


class LogMachine(RuleBasedStateMachine):
    log: Log

    @initialize(seed=st.integers(0, 2**32))
    def start(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = SimulatedDisk(self.random)
        self.disk.make_folder(FOLDER)
        self.disk.sync_all()
        self.model: list[Record] = []  # every record from offset 0 on, also those deleted since
        self.ends: list[int] = [0]  # the log end offsets there have been, by batch
        # What the log was before it was truncated: that is not synced, so it may come back.
        self.cut: list[tuple[list[Record], list[int]]] = []
        self.now_ms = BASE_TIME_MS
        self.epoch = 0
        self.producer_epoch = self.sequence = 0
        # (sequence, values, offset) of the batches of the producer's epoch
        self.sent: list[tuple[int, list[bytes], int]] = []
        # What the checkpoint files would say: they are written after the fact.
        self.recovery_point = 0
        self.log_start_offset = 0
        self._open(clean=True)

    def _open(self, *, clean: bool) -> None:
        self.log, self.report = open_log(
            PARTITION,
            self.disk,
            FOLDER,
            SETTINGS,
            now_ms=self.now_ms,
            random=self.random,
            clean=clean,
            log_start_offset=self.log_start_offset,
            recovery_point=self.recovery_point,
        )
        self.log.update_high_watermark(self.log.log_end_offset)

    @rule(values=VALUES, codec=st.sampled_from(CompressionType), step_ms=st.integers(0, 400))
    def append(self, values: list[bytes], codec: CompressionType, step_ms: int) -> None:
        self.now_ms += step_ms
        batch = make_batch(values, codec=codec, timestamp=self.now_ms)
        if len(batch) > SETTINGS.config.max_message_bytes:
            return
        base_offset = self.log.log_end_offset
        result = self.log.append_as_leader(batch, leader_epoch=self.epoch, now_ms=self.now_ms)
        assert result.base_offset == base_offset
        assert self.log.log_end_offset == base_offset + len(values)
        self._remember(values)

    @rule(count=st.integers(1, 4), again=st.booleans())
    def append_idempotently(self, count: int, again: bool) -> None:
        """A producer's next batch is taken once, however often it is sent."""
        values = [b"%d" % (self.sequence + i) for i in range(count)]
        for _ in range(1 + again):
            batch = make_batch(
                values,
                timestamp=self.now_ms,
                producer_id=7,
                producer_epoch=self.producer_epoch,
                base_sequence=self.sequence,
            )
            result = self.log.append_as_leader(batch, leader_epoch=self.epoch, now_ms=self.now_ms)
            assert result.base_offset == len(self.model)
        assert result.is_duplicate == again
        self.sent.append((self.sequence, values, len(self.model)))
        self._remember(values)
        self.sequence += count

    @rule(data=st.data())
    def send_again(self, data: st.DataObject) -> None:
        """One of a producer's last five batches is known, however often the node was started."""
        there = [each for each in self.sent[-5:] if each[2] >= self.log.log_start_offset]
        if not there:
            return
        sequence, values, offset = data.draw(st.sampled_from(there))
        batch = make_batch(
            values,
            timestamp=self.now_ms,
            producer_id=7,
            producer_epoch=self.producer_epoch,
            base_sequence=sequence,
        )
        result = self.log.append_as_leader(batch, leader_epoch=self.epoch, now_ms=self.now_ms)
        assert (result.base_offset, result.is_duplicate) == (offset, True)

    @rule(values=VALUES, count=st.integers(1, 3))
    def replicate(self, values: list[bytes], count: int) -> None:
        blob = bytearray()
        base_offset = self.log.log_end_offset
        for index in range(count):
            blob += make_batch(
                values,
                timestamp=self.now_ms,
                base_offset=base_offset + index * len(values),
                leader_epoch=self.epoch,
            )
        if len(blob) > SETTINGS.config.segment_bytes:
            return
        self.log.append_as_follower(bytes(blob) + b"cut short", now_ms=self.now_ms)
        for _ in range(count):
            self._remember(values)

    def _remember(self, values: list[bytes]) -> None:
        for index, value in enumerate(values):
            self.model.append(Record(len(self.model), self.now_ms + index, None, value))
        self.ends.append(len(self.model))
        self.log.update_high_watermark(self.log.log_end_offset)

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now_ms)

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.recovery_point = self.log.recovery_point
        assert self.recovery_point == self.log.log_end_offset
        self.cut.clear()

    @precondition(lambda self: self.log.log_end_offset > self.log.log_start_offset)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        """Only a new leader epoch makes a replica truncate."""
        offset = data.draw(st.integers(self.log.log_start_offset, self.log.log_end_offset))
        self.epoch += 1
        self.cut.append((list(self.model), list(self.ends)))
        self.log.truncate_to(offset, self.now_ms)
        end = max(end for end in self.ends if end <= offset)
        assert self.log.log_end_offset == max(end, self.log.log_start_offset)
        self._forget_from(self.log.log_end_offset)
        self.recovery_point = min(self.recovery_point, self.log.recovery_point)

    def _forget_from(self, offset: int) -> None:
        # The producer cannot know what is left of its batches: it starts over.
        self.producer_epoch += 1
        self.sequence = 0
        self.sent.clear()
        del self.model[offset:]
        self.ends = [end for end in self.ends if end < offset] + [offset]

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.log.log_start_offset, self.log.log_end_offset))
        self.log.advance_log_start_offset(offset)
        self._retained()

    @rule(step_ms=st.integers(0, 3000))
    def retain(self, step_ms: int) -> None:
        self.now_ms += step_ms
        delete_old_segments(self.log, self.now_ms)
        for segment in self.log.take_deletable(self.now_ms + 100_000):
            segment.remove()
        self._retained()

    def _retained(self) -> None:
        # The checkpoint of the log start is written before anything is really removed.
        self.log_start_offset = self.log.log_start_offset

    @rule()
    def restart_cleanly(self) -> None:
        self.log.close()
        self.recovery_point = self.log.recovery_point
        self.cut.clear()
        self._open(clean=True)
        assert self.log.log_end_offset == len(self.model)
        assert self.report == RecoveryReport()

    @rule()
    def kill(self) -> None:
        self.disk.kill()
        self._open(clean=False)
        assert self.log.log_end_offset == len(self.model)

    @rule()
    def lose_power(self) -> None:
        self.disk.crash()
        self._open(clean=False)
        end = self.log.log_end_offset
        assert end >= min(self.recovery_point, len(self.model))
        if end == self.log_start_offset > len(self.model):
            # The log start was known, the records before it are gone.
            self.model += [Record(i, 0, None, None) for i in range(len(self.model), end)]
        survived = self._records()
        for model, ends in [(self.model, self.ends), *reversed(self.cut)]:
            if end in ends and survived == model[self.log.log_start_offset : end]:
                self.model, self.ends = list(model), list(ends)
                break
        else:
            assert survived == [], "no prefix of anything the log has been"
        self.cut.clear()
        self._forget_from(end)

    def _records(self) -> list[Record]:
        offset = self.log.log_start_offset
        seen: list[Record] = []
        while offset < self.log.log_end_offset:
            read = self.log.read(offset, bytes_max=10_000).records
            seen += [r for r in read_all(read) if r.offset >= offset]
            offset = seen[-1].offset + 1
        return seen

    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        log = self.log
        offset = data.draw(st.integers(log.log_start_offset, log.log_end_offset))
        bytes_max = data.draw(st.integers(0, 1500))
        records = list(read_all(log.read(offset, bytes_max=bytes_max).records, partial_tail=True))
        wanted = [record for record in records if record.offset >= offset]
        assert wanted == self.model[offset : offset + len(wanted)]
        if offset < log.log_end_offset:
            assert wanted, "at least one batch"

    @rule(step_ms=st.integers(-500, 3000))
    def find_by_time(self, step_ms: int) -> None:
        timestamp = self.now_ms - step_ms
        found = find_offset_at(self.log, timestamp)
        kept = self.model[self.log.log_start_offset :]
        expected = next((r for r in kept if r.timestamp >= timestamp), None)
        assert (found and found.offset) == (expected and expected.offset)

    @invariant()
    def log_is_sound(self) -> None:
        self.log.check_invariants()
        assert self.log.log_end_offset == len(self.model)

    @rule()
    def read_everything(self) -> None:
        assert self._records() == self.model[self.log.log_start_offset :]


TestLog = pytest.mark.slow(LogMachine.TestCase)
TestLog.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
