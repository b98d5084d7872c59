"""What ticks do: retention, flushes, checkpoints, removals; when, and how much at a time."""

from dataclasses import replace
from pathlib import Path

import pytest

from odradek.core.ids import TopicPartition
from odradek.storage import log_upkeep
from odradek.storage.config import LogConfig
from odradek.storage.disk import OsDisk
from odradek.storage.log import Log
from odradek.storage.log_store import LogStore
from odradek.storage.log_upkeep import NEVER_MS, StoreConfig
from odradek.storage.log_work import CheckpointWork, FlushWork, RemovalWork, Work
from odradek.testing.disk import SimulatedDisk
from tests.unit.storage.test_log_store_support import (
    SMALL,
    T0,
    T1,
    TOPIC_ID,
    A,
    append,
    new_disk,
    open_store,
    run,
    tick,
    values,
)

DAY = 86_400_000


def store_with_log(
    disk: SimulatedDisk, config: LogConfig = SMALL, *, batches: int = 0
) -> tuple[LogStore, Log]:
    store = open_store(disk, [A], config=config)
    log = store.create(T0, TOPIC_ID, now_ms=0)
    for i in range(batches):
        append(store, T0, b"%d" % i)
    return store, log


def of_kind(work: list[Work], kind: type[Work]) -> list[Work]:
    return [item for item in work if isinstance(item, kind)]


# Checkpoints.


def test_high_watermarks_are_written_every_5_s_if_they_changed() -> None:
    disk = new_disk()
    store, log = store_with_log(disk, batches=3)
    tick(store, 4999)
    assert not disk.exists(A / "replication-offset-checkpoint")
    log.update_high_watermark(2)
    (work,) = store.tick(5000)
    assert isinstance(work, CheckpointWork)
    log.update_high_watermark(3)  # after the plan was made
    run([work], 5000)
    assert disk.read(A / "replication-offset-checkpoint") == b"0\n1\nt 0 2\n"
    tick(store, 10_000)
    assert disk.read(A / "replication-offset-checkpoint") == b"0\n1\nt 0 3\n"
    assert tick(store, 15_000) == []


def test_recovery_points_and_log_starts_are_written_every_minute() -> None:
    disk = new_disk()
    store, log = store_with_log(disk, replace(SMALL, flush_ms=1000), batches=6)
    log.update_high_watermark(6)
    log.advance_log_start_offset(5)
    tick(store, 59_999)
    assert log.recovery_point == 6
    assert not disk.exists(A / "recovery-point-offset-checkpoint")
    assert not disk.exists(A / "log-start-offset-checkpoint")
    tick(store, 60_000)
    assert disk.read(A / "recovery-point-offset-checkpoint") == b"0\n1\nt 0 6\n"
    assert disk.read(A / "log-start-offset-checkpoint") == b"0\n1\nt 0 5\n"


def test_a_log_that_starts_with_a_segment_needs_no_log_start_checkpoint() -> None:
    disk = new_disk()
    store, log = store_with_log(disk, batches=10)
    log.update_high_watermark(10)
    log.advance_log_start_offset(log.segments[1].base_offset)
    tick(store, DAY)
    assert log.segments[0].base_offset == log.log_start_offset
    tick(store, 2 * DAY)
    assert disk.read(A / "log-start-offset-checkpoint") == b"0\n0\n"


def test_a_file_is_written_by_one_work_at_a_time() -> None:
    store, log = store_with_log(new_disk(), batches=3)
    log.update_high_watermark(1)
    (first,) = store.tick(5000)
    log.update_high_watermark(2)
    assert of_kind(store.tick(10_000), CheckpointWork) == []
    run([first], 10_000)
    assert store.next_deadline_ms() <= 10_000
    assert len(of_kind(store.tick(10_000), CheckpointWork)) == 1


# Flushes.


@pytest.mark.seed_row("1.16")
def test_without_a_flush_policy_only_closed_segments_are_synced() -> None:
    disk = new_disk()
    store, log = store_with_log(disk, batches=6)
    active = log.segments.active
    assert 0 < active.base_offset < 6
    disk.trace.clear()
    (work,) = store.tick(1000)
    assert isinstance(work, FlushWork)
    run([work], 1000)
    assert log.recovery_point == active.base_offset
    synced = [line for line in disk.trace if " sync " in line]
    assert synced
    assert not [line for line in synced if f"{active.base_offset:020d}" in line]
    assert store.tick(2000) == []


def test_flush_ms_is_kept_to() -> None:
    store, log = store_with_log(new_disk(), replace(SMALL, flush_ms=50))
    append(store, T0, b"x")
    assert store.next_deadline_ms() == 50
    assert store.tick(49) == []
    run(store.tick(50), 50)
    assert log.recovery_point == 1
    append(store, T0, b"y")
    run(store.tick(99), 99)
    assert log.recovery_point == 1
    run(store.tick(100), 100)
    assert log.recovery_point == 2


def test_a_log_is_flushed_by_one_work_at_a_time() -> None:
    store, log = store_with_log(new_disk(), replace(SMALL, flush_ms=50))
    append(store, T0, b"x")
    (work,) = store.tick(50)
    assert store.tick(200) == []
    append(store, T0, b"y")
    run([work], 200)
    assert log.recovery_point == 1, "what came after the plan is not flushed"


def test_a_flush_of_a_log_that_was_deleted_meanwhile_is_forgotten() -> None:
    store, log = store_with_log(new_disk(), batches=6)
    work = store.tick(1000)
    store.delete(T0)
    run(work, 1000)
    assert log.recovery_point == 0
    assert store.directories[0].is_online


def test_an_append_that_must_be_flushed_asks_for_it() -> None:
    store, log = store_with_log(new_disk())
    assert store.plan_flush(T0) is None
    append(store, T0, b"x")
    work = store.plan_flush(T0)
    assert work is not None
    run([work], 0)
    assert log.recovery_point == 1
    assert store.plan_flush(T0) is None


# Retention and removal.


def test_retention_runs_and_files_go_after_their_delay() -> None:
    disk = new_disk()
    config = replace(SMALL, retention_ms=1000, file_delete_delay_ms=60_000)
    store, log = store_with_log(disk, config, batches=10)
    log.update_high_watermark(10)
    tick(store, 29_999)
    assert log.log_start_offset == 0
    tick(store, 30_000)
    assert log.log_start_offset == 10
    names = disk.names(A / "t-0")
    assert "00000000000000000000.log.deleted" in names
    tick(store, 89_999)
    assert disk.names(A / "t-0") == names
    assert of_kind(tick(store, 91_000), RemovalWork)
    assert [name for name in disk.names(A / "t-0") if name.endswith(".log")] == [
        "00000000000000000010.log"
    ]
    assert [name for name in disk.names(A / "t-0") if "deleted" in name] == []


class BusyCleaner:
    def __init__(self) -> None:
        self.heard: list[object] = []
        self.is_busy = True

    def may_delete(self, partition: TopicPartition) -> bool:
        return not self.is_busy

    def on_truncated(self, partition: TopicPartition, offset: int) -> None:
        self.heard.append((partition, offset))

    def abandon(self, partition: TopicPartition) -> None:
        self.heard.append(partition)


def test_retention_waits_for_the_cleaner_and_the_cleaner_hears_of_changes() -> None:
    store, log = store_with_log(new_disk(), replace(SMALL, retention_ms=1000), batches=10)
    log.update_high_watermark(10)
    cleaner = store.directories[0].cleaner = BusyCleaner()
    tick(store, DAY)
    assert log.log_start_offset == 0
    cleaner.is_busy = False
    tick(store, 2 * DAY)
    assert log.log_start_offset == 10
    append(store, T0, b"x")
    store.truncate_to(T0, 10, 0)
    store.delete(T0)
    store.create(T0, TOPIC_ID, now_ms=0)
    assert cleaner.heard == [(T0, 10), T0, (T0, 0)]


def test_idle_producers_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    store, log = store_with_log(new_disk())
    asked: list[int] = []
    monkeypatch.setattr(log.producer_states, "remove_expired", asked.append)
    tick(store, 599_999)
    tick(store, 600_000)
    tick(store, 1_199_999)
    tick(store, 1_200_000)
    assert asked == [600_000, 1_200_000]


# Portions and limits.


def many_logs(disk: SimulatedDisk, count: int) -> LogStore:
    store = open_store(disk, [A], config=replace(SMALL, flush_ms=1000, retention_ms=1))
    for number in range(count):
        partition = TopicPartition("t", number)
        log = store.create(partition, TOPIC_ID, now_ms=0)
        append(store, partition, b"x")
        log.update_high_watermark(1)
    return store


def test_a_pass_over_many_logs_takes_many_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_upkeep, "_RETENTION_LOGS_MAX", 4)
    store = many_logs(new_disk(), 10)
    retained = []
    for _ in range(3):
        assert store.next_deadline_ms() <= DAY
        run(store.tick(DAY), DAY)
        retained.append(sum(log.log_start_offset == 1 for log in store.logs))
    assert retained == [4, 8, 10]


def test_work_under_way_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_upkeep, "WORK_MAX", 3)
    store = many_logs(new_disk(), 8)
    now_ms = 1000
    work = store.tick(now_ms)
    assert len(work) == 3
    assert store.tick(now_ms) == []
    assert store.next_deadline_ms() == NEVER_MS
    while work:
        run(work[:1], now_ms)
        assert store.next_deadline_ms() <= now_ms or len(work) <= 3
        work = work[1:] + store.tick(now_ms)
        assert len(work) <= 3
    assert [log.recovery_point for log in store.logs] == [1] * 8


def test_folders_that_wait_for_removal_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_upkeep, "REMOVALS_MAX", 2)
    disk = new_disk()
    store = many_logs(disk, 5)
    for number in range(5):
        store.delete(TopicPartition("t", number))
    run(store.tick(1), 1)
    assert sum(name.endswith("-delete") for name in disk.names(A)) == 2


def test_an_idle_store_sleeps_until_the_next_look_round() -> None:
    store = open_store(new_disk(), [A])
    assert store.next_deadline_ms() == 1000
    assert store.tick(1000) == []
    assert store.next_deadline_ms() == 2000


def test_a_bug_in_a_work_is_not_taken_for_an_io_error() -> None:
    store, _ = store_with_log(new_disk(), batches=6)
    (work,) = store.tick(1000)
    with pytest.raises(ZeroDivisionError):
        work.done(ZeroDivisionError(), 1000)
    assert store.directories[0].is_online


def test_settings_can_be_kafkas_or_others() -> None:
    assert StoreConfig().log_retention_check_interval_ms == 300_000
    disk = new_disk()
    config = StoreConfig(replica_high_watermark_checkpoint_interval_ms=10)
    store = open_store(disk, [A], store_config=config)
    store.create(T1, TOPIC_ID, now_ms=0)
    tick(store, 10)
    assert disk.read(A / "replication-offset-checkpoint") == b"0\n1\nt 1 0\n"


def test_work_runs_in_threads_on_the_real_disk(tmp_path: Path) -> None:
    """Descriptors are counted on the owner's thread only, whatever the works open."""
    from concurrent.futures import ThreadPoolExecutor

    disk = OsDisk(descriptors_max=4)
    store = open_store(disk, [tmp_path], config=replace(SMALL, flush_ms=10, retention_ms=1))
    now_ms = 0
    with ThreadPoolExecutor(4) as pool:
        for number in range(8):
            store.create(TopicPartition("t", number), TOPIC_ID, now_ms=0)
        for _ in range(20):
            now_ms += 5000
            for number in range(8):
                append(store, TopicPartition("t", number), b"x", now_ms=now_ms)
            work = store.tick(now_ms)
            running = [(item, pool.submit(item.run)) for item in work]
            for number in range(8):  # meanwhile, on this thread
                append(store, TopicPartition("t", number), b"y", now_ms=now_ms)
            for item, future in running:
                item.done(future.exception(), now_ms)
            assert disk.descriptors <= 4
    store.close(1)
    store = open_store(OsDisk(), [tmp_path], config=SMALL)
    assert all(values(log)[-2:] == [b"x", b"y"] for log in store.logs)
    assert store.previous_broker_epoch == 1
    store.close(0)
