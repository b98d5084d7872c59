"""The store against a dictionary of lists, under random use, kills, crashes and failing disks.

After a kill all that was appended is there. After a crash each log is a prefix of what was
appended, with all that was flushed. Deleted logs stay away after a kill, and may come back after a
crash, but never in place of one that was made since.
"""

import errno
from contextlib import suppress
from dataclasses import dataclass, field, replace
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from odradek.core.errors import ApiError
from odradek.core.ids import TopicPartition, Uuid
from odradek.testing.disk import SimulatedDisk
from tests.unit.storage.test_log_store_support import (
    SMALL,
    append,
    open_store,
    run,
    tick,
    values,
)

PARTITIONS = [TopicPartition(topic, number) for topic in ("t", "u") for number in range(2)]
CONFIG = replace(SMALL, file_delete_delay_ms=500, flush_ms=3000)

partitions = st.sampled_from(PARTITIONS)
picks = st.integers(0, len(PARTITIONS) - 1)


@dataclass
class Model:
    topic_id: Uuid
    appended: list[bytes] = field(default_factory=list)
    flushed: int = 0


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.starts = 0
        self.serial = 0
        self.logs: dict[TopicPartition, Model] = {}
        self.deleted: dict[TopicPartition, list[Model]] = {}

    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        self.disk = SimulatedDisk(Random(seed), block_bytes=64)
        self.open()

    def open(self) -> None:
        self.starts += 1
        self.store = open_store(self.disk, config=CONFIG, now_ms=self.now_ms, seed=self.starts)
        assert all(directory.is_online for directory in self.store.directories)
        assert [directory.failed for directory in self.store.directories] == [{}, {}]
        self.store.check_invariants()

    def picked(self, pick: int) -> TopicPartition:
        return sorted(self.logs)[pick % len(self.logs)]

    # Using it.

    @rule(partition=partitions)
    def create(self, partition: TopicPartition) -> None:
        self.serial += 1
        topic_id = Uuid(self.serial.to_bytes(16, "big"))
        model = self.logs.get(partition)
        if model is None:
            self.store.create(partition, topic_id, now_ms=self.now_ms)
            self.logs[partition] = Model(topic_id)
            self.deleted.pop(partition, None)  # from here on they cannot come back
            return
        self.store.create(partition, model.topic_id, now_ms=self.now_ms)
        with pytest.raises(ApiError, match="INCONSISTENT_TOPIC_ID"):
            self.store.create(partition, topic_id, now_ms=self.now_ms)

    @precondition(lambda self: self.logs)
    @rule(pick=picks, count=st.integers(1, 3))
    def append(self, pick: int, count: int) -> None:
        partition = self.picked(pick)
        model = self.logs[partition]
        for _ in range(count):
            self.serial += 1
            value = b"%d" % self.serial
            append(self.store, partition, value, now_ms=self.now_ms)
            model.appended.append(value)

    @precondition(lambda self: self.logs)
    @rule(pick=picks)
    def flush(self, pick: int) -> None:
        partition = self.picked(pick)
        work = self.store.plan_flush(partition)
        if work is not None:
            run([work], self.now_ms)
        self.logs[partition].flushed = len(self.logs[partition].appended)

    @precondition(lambda self: self.logs)
    @rule(pick=picks, back=st.integers(0, 5))
    def truncate(self, pick: int, back: int) -> None:
        partition = self.picked(pick)
        model = self.logs[partition]
        offset = max(len(model.appended) - back, 0)
        is_cut = self.store.truncate_to(partition, offset, self.now_ms)
        assert is_cut == (offset < len(model.appended))
        if is_cut:
            del model.appended[offset:]
            model.flushed = len(model.appended)

    @precondition(lambda self: self.logs)
    @rule(pick=picks)
    def delete(self, pick: int) -> None:
        partition = self.picked(pick)
        assert self.store.delete(partition)
        model = self.logs.pop(partition)
        model.flushed = 0  # of a log that is being removed anything may be left
        self.deleted.setdefault(partition, []).append(model)

    @precondition(lambda self: self.logs)
    @rule(pick=picks, how=st.sampled_from(["begin", "abandon", "finish"]))
    def move(self, pick: int, how: str) -> None:
        partition = self.picked(pick)
        store, model = self.store, self.logs[partition]
        if store.get_future(partition) is None:
            other = next(d for d in store.directories if d is not store.directory_of(partition))
            assert other.directory_id is not None
            store.create_future(partition, other.directory_id, self.now_ms)
        if how == "abandon":
            store.abandon_future(partition)
        if how != "finish":
            return
        future, current = store.get_future(partition), store.get(partition)
        assert future is not None
        assert current is not None
        if future.log_end_offset or future.log_start_offset:
            store.truncate_fully_and_start_at(partition, 0, self.now_ms, is_future=True)
        while future.log_end_offset < current.log_end_offset:
            records = current.read(future.log_end_offset, bytes_max=1).records
            future.append_as_follower(bytes(records), now_ms=self.now_ms)
        future.flush()
        store.replace_current_with_future(partition, self.now_ms)
        model.flushed = len(model.appended)

    @rule(passed_ms=st.sampled_from([1, 400, 3000, 60_000]))
    def wait(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        tick(self.store, self.now_ms)

    # Ending it.

    @rule()
    def close(self) -> None:
        self.store.close(self.starts)
        for model in self.logs.values():
            model.flushed = len(model.appended)
        self.open()
        assert self.store.previous_broker_epoch == self.starts - 1
        self.compare_after_kill()

    @rule()
    def kill(self) -> None:
        self.disk.kill()
        self.open()
        self.compare_after_kill()

    @rule()
    def crash(self) -> None:
        self.disk.crash()
        self.open()
        for partition in PARTITIONS:
            self.compare_after_crash(partition)

    @precondition(lambda self: self.logs)
    @rule(
        pick=picks,
        error=st.sampled_from([errno.EIO, errno.ENOSPC, errno.EMFILE]),
        kind=st.sampled_from(["write", "sync", "rename", "create", "truncate"]),
        after=st.integers(0, 9),
    )
    def fail(self, pick: int, error: int, kind: str, after: int) -> None:
        """Let the disk fail once, sooner or later, then start anew as an operator would."""
        partition = self.picked(pick)
        model = self.logs[partition]
        self.disk.fail(kind, error, after=after)  # type: ignore[arg-type]
        for _ in range(6):
            value = b"%d" % self.serial
            self.serial += 1
            # Refused or not, it may be there: as if it had been on its way when the node stopped.
            model.appended.append(value)
            with suppress(ApiError):
                append(self.store, partition, value, now_ms=self.now_ms)
            if not self.store.directory_of(partition).is_online:
                break
        self.now_ms += 60_000
        tick(self.store, self.now_ms)
        self.disk.faults.clear()
        self.disk.crash()
        self.open()
        for at in PARTITIONS:
            self.compare_after_crash(at)

    def compare_after_kill(self) -> None:
        assert {log.partition for log in self.store.logs} == self.logs.keys()
        self.deleted.clear()

    def compare_after_crash(self, partition: TopicPartition) -> None:
        log = self.store.get(partition)
        model = self.logs.get(partition)
        if model is not None:
            assert log is not None, f"{partition} is gone"
        elif log is not None:
            model = self.revived(partition, values(log))
        self.deleted.pop(partition, None)
        if model is None or log is None:
            return
        found = values(log)
        assert found == model.appended[: len(found)]
        assert len(found) >= model.flushed
        model.appended, model.flushed = found, 0
        self.logs[partition] = model

    def revived(self, partition: TopicPartition, found: list[bytes]) -> Model:
        topic_id = self.store.topic_id(partition)
        (model,) = [m for m in self.deleted.get(partition, []) if m.topic_id == topic_id]
        assert found == model.appended[: len(found)]
        return model

    @invariant()
    def the_store_holds_what_the_model_does(self) -> None:
        if not self.starts:
            return
        self.store.check_invariants()
        assert {log.partition for log in self.store.logs} == self.logs.keys()
        for partition, model in self.logs.items():
            log = self.store.get(partition)
            assert log is not None
            log.check_invariants()
            assert log.log_end_offset == len(model.appended)
            assert values(log) == model.appended
            assert log.recovery_point <= log.log_end_offset


TestLogStore = pytest.mark.slow(StoreMachine.TestCase)
TestLogStore.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
