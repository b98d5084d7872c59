"""Making, finding, cutting, deleting and moving the logs of a node."""

from dataclasses import replace
from pathlib import PurePosixPath

import pytest

from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import TopicPartition, Uuid
from odradek.storage import log_directory, stored_logs
from odradek.storage.log_dir_description import LogDescription, VolumeSpace
from odradek.storage.log_directory import DirectoryRefusedError
from odradek.storage.log_loading import LoadingProgress
from odradek.storage.log_store import LogStore
from odradek.storage.log_work import FlushWork
from odradek.storage.recovery import LogSettings
from tests.unit.storage.test_log_store_support import (
    OTHER_ID,
    SMALL,
    T0,
    T1,
    TOPIC_ID,
    A,
    B,
    append,
    batch,
    new_disk,
    open_store,
    run,
    tick,
    values,
)


def directory_id(store: LogStore, slot: int) -> Uuid:
    found = store.directories[slot].directory_id
    assert found is not None
    return found


# Opening.


def test_the_directories_are_made_and_formatted() -> None:
    disk = new_disk()
    store = open_store(disk)
    assert disk.names(A) == [".lock", "meta.properties"]
    assert store.logs == []
    assert store.problems == []
    assert store.previous_broker_epoch is None
    assert directory_id(store, 0) != directory_id(store, 1)


def test_directories_that_are_one_and_the_same_are_refused() -> None:
    disk = new_disk()
    with pytest.raises(DirectoryRefusedError, match="in use"):
        open_store(disk, [A, A])
    open_store(disk, [A]).close(0)
    disk.make_folder(B)
    meta = disk.open(B / "meta.properties", create=True)
    meta.write(0, [disk.read(A / "meta.properties")])
    with pytest.raises(DirectoryRefusedError, match=r"/a and /b have the same directory\.id"):
        open_store(disk)
    open_store(disk, [A])  # all locks were given back


def test_no_directory_at_all_is_refused() -> None:
    with pytest.raises(DirectoryRefusedError, match="no log directory can be used"):
        open_store(new_disk(), [])


# Creating.


def test_a_new_log_has_a_folder_with_its_topic_id() -> None:
    disk = new_disk()
    store = open_store(disk)
    log = store.create(T0, TOPIC_ID, now_ms=0)
    assert log.folder == A / "t-0"
    assert disk.read(A / "t-0" / "partition.metadata") == (
        f"version: 0\ntopic_id: {TOPIC_ID}".encode()
    )
    assert store.get(T0) is log
    assert store.get(T1) is None
    assert store.topic_id(T0) == TOPIC_ID
    assert store.logs == [log]
    store.check_invariants()


def test_a_new_log_survives_a_crash_at_once() -> None:
    disk = new_disk()
    open_store(disk).create(T0, TOPIC_ID, now_ms=0)
    disk.crash()
    store = open_store(disk)
    assert values(store.get(T0)) == []
    assert store.topic_id(T0) == TOPIC_ID


def test_logs_go_to_the_directory_with_the_fewest() -> None:
    store = open_store(new_disk())
    places = [store.create(TopicPartition("t", i), TOPIC_ID, now_ms=0).folder for i in range(4)]
    assert [place.parent for place in places] == [A, B, A, B]
    store.delete(TopicPartition("t", 0))
    assert store.create(TopicPartition("u", 0), TOPIC_ID, now_ms=0).folder.parent == A


def test_a_log_goes_to_the_directory_that_is_asked_for() -> None:
    store = open_store(new_disk())
    for number in range(3):
        log = store.create(
            TopicPartition("t", number), TOPIC_ID, now_ms=0, directory_id=directory_id(store, 1)
        )
        assert log.folder.parent == B
    with pytest.raises(ApiError) as refused:
        store.create(T0._replace(topic="u"), TOPIC_ID, now_ms=0, directory_id=OTHER_ID)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_creating_what_is_there_gives_the_same_log() -> None:
    store = open_store(new_disk())
    assert store.create(T0, TOPIC_ID, now_ms=0) is store.create(T0, TOPIC_ID, now_ms=5)


def test_another_topic_of_the_same_name_is_refused() -> None:
    disk = new_disk()
    store = open_store(disk)
    store.create(T0, TOPIC_ID, now_ms=0)
    for _ in range(2):
        with pytest.raises(ApiError, match=f"{TOPIC_ID}, not {OTHER_ID}") as refused:
            store.create(T0, OTHER_ID, now_ms=0)
        assert refused.value.code is ErrorCode.INCONSISTENT_TOPIC_ID
        store.close(0)
        store = open_store(disk)


def test_a_log_without_a_topic_id_gets_one() -> None:
    disk = new_disk()
    open_store(disk).create(T0, TOPIC_ID, now_ms=0)
    disk.kill()
    disk.remove(A / "t-0" / "partition.metadata")
    store = open_store(disk)
    assert store.topic_id(T0) is None
    store.create(T0, OTHER_ID, now_ms=0)
    assert store.topic_id(T0) == OTHER_ID
    assert str(OTHER_ID).encode() in disk.read(A / "t-0" / "partition.metadata")


@pytest.mark.parametrize("topic", ["", "..", "a/b", "a\0b", "x" * 250])
def test_hostile_names_touch_no_file(topic: str) -> None:
    disk = new_disk()
    store = open_store(disk)
    operations = disk.operations
    with pytest.raises(ApiError) as refused:
        store.create(TopicPartition(topic, 0), TOPIC_ID, now_ms=0)
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert disk.operations == operations


def test_the_number_of_logs_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_logs, "LOGS_MAX", 1)
    store = open_store(new_disk())
    store.create(T0, TOPIC_ID, now_ms=0)
    with pytest.raises(ApiError, match="1 logs"):
        store.create(T1, TOPIC_ID, now_ms=0)
    assert store.get(T1) is None


def test_settings_come_by_topic_and_can_change() -> None:
    retention = {"t": 5, "u": 7}
    store = open_store(
        new_disk(),
        settings_for=lambda topic: LogSettings(replace(SMALL, retention_ms=retention[topic])),
    )
    log = store.create(T0, TOPIC_ID, now_ms=0)
    other = store.create(TopicPartition("u", 0), OTHER_ID, now_ms=0)
    assert (log.config.retention_ms, other.config.retention_ms) == (5, 7)
    retention["t"] = retention["u"] = 9
    store.update_settings("t", [0, 1])
    assert (log.config.retention_ms, other.config.retention_ms) == (9, 7)


def test_a_folder_that_was_put_in_the_way_is_taken_aside() -> None:
    disk = new_disk()
    store = open_store(disk, [A])
    disk.make_folder(A / "t-0" / "precious")
    store.create(T0, TOPIC_ID, now_ms=0)
    (stray,) = [name for name in disk.names(A) if name.endswith("-stray")]
    assert disk.names(A / stray) == ["precious"]


# Deleting.


def test_a_deleted_log_is_renamed_and_removed_later() -> None:
    disk = new_disk()
    store = open_store(disk, [A])
    store.create(T0, TOPIC_ID, now_ms=0)
    append(store, T0, b"x")
    tick(store, 1000)
    assert store.delete(T0)
    assert store.get(T0) is None
    (name,) = [name for name in disk.names(A) if name.startswith("t-")]
    assert name.startswith("t-0.")
    assert name.endswith("-delete")
    tick(store, 1000 + SMALL.file_delete_delay_ms - 1)
    assert disk.exists(A / name)
    tick(store, 1000 + SMALL.file_delete_delay_ms)
    assert not disk.exists(A / name)
    assert not store.delete(T0)
    store.check_invariants()


def test_a_deleted_log_can_be_made_anew_at_once() -> None:
    disk = new_disk()
    store = open_store(disk, [A])
    store.create(T0, TOPIC_ID, now_ms=0)
    append(store, T0, b"old")
    store.delete(T0)
    store.create(T0, OTHER_ID, now_ms=0)
    append(store, T0, b"new")
    tick(store, 10**6)
    assert values(store.get(T0)) == [b"new"]


@pytest.mark.parametrize("seed", range(20))
def test_a_deleted_log_does_not_come_back_beside_its_successor(seed: int) -> None:
    disk = new_disk(seed)
    store = open_store(disk)
    store.create(T0, TOPIC_ID, now_ms=0, directory_id=directory_id(store, 0))
    store.delete(T0)
    store.create(T0, OTHER_ID, now_ms=0, directory_id=directory_id(store, 1))
    disk.crash()
    store = open_store(disk)
    assert store.problems == []
    assert store.topic_id(T0) == OTHER_ID


def test_renames_that_are_not_synced_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_directory, "UNSYNCED_REMOVALS_MAX", 2)
    disk = new_disk()
    store = open_store(disk, [A])
    for number in range(6):
        store.create(TopicPartition("t", number), TOPIC_ID, now_ms=0)
    disk.trace.clear()
    for number in range(6):
        store.delete(TopicPartition("t", number))
    assert sum("sync_folder" in line for line in disk.trace) == 2


def test_the_checkpoints_of_a_deleted_log_do_not_harm_its_successor() -> None:
    """The old log started at 8. A new one that ends at 1 would be thrown away for that."""
    disk = new_disk()
    store = open_store(disk, [A])
    log = store.create(T0, TOPIC_ID, now_ms=0)
    for i in range(10):
        append(store, T0, b"%d" % i)
    log.update_high_watermark(10)
    log.advance_log_start_offset(9)
    tick(store, 100_000)
    assert disk.read(A / "log-start-offset-checkpoint") == b"0\n1\nt 0 9\n"

    store.delete(T0)
    store.create(T0, OTHER_ID, now_ms=100_000)
    append(store, T0, b"new")
    flush = store.plan_flush(T0)
    assert flush is not None
    run([flush], 100_000)
    disk.crash()
    store = open_store(disk, [A])
    log = store.create(T0, OTHER_ID, now_ms=0)
    assert values(log) == [b"new"]
    assert (log.log_start_offset, log.high_watermark) == (0, 0)


def test_a_checkpoint_under_way_does_not_bring_a_deleted_log_back() -> None:
    disk = new_disk()
    store = open_store(disk, [A])
    store.create(T0, TOPIC_ID, now_ms=0)
    append(store, T0, b"x")
    log = store.get(T0)
    assert log is not None
    log.update_high_watermark(1)
    under_way = store.tick(5000)
    store.delete(T0)
    store.create(T0, OTHER_ID, now_ms=5000)
    run(under_way, 5000)
    assert disk.read(A / "replication-offset-checkpoint") == b"0\n0\n"


def test_a_stray_is_kept_aside_and_not_removed() -> None:
    disk = new_disk()
    store = open_store(disk, [A])
    store.create(T0, TOPIC_ID, now_ms=0)
    store.delete(T0, is_stray=True)
    tick(store, 10**9)
    (name,) = [name for name in disk.names(A) if name.startswith("t-")]
    assert name.endswith("-stray")
    store.close(0)
    store = open_store(disk, [A])
    assert store.logs == []
    assert store.problems == [f"/a/{name} was taken aside; move it away, or remove it"]


# Truncating.


def test_no_checkpoint_is_ahead_of_a_log_that_was_cut() -> None:
    disk = new_disk()
    store = open_store(disk, [A])
    store.create(T0, TOPIC_ID, now_ms=0)
    for i in range(10):
        append(store, T0, b"%d" % i)
    flush = store.plan_flush(T0)
    assert flush is not None
    run([flush], 0)
    tick(store, 60_000)
    assert disk.read(A / "recovery-point-offset-checkpoint") == b"0\n1\nt 0 10\n"
    assert store.truncate_to(T0, 5, 60_000)
    log = store.get(T0)
    assert log is not None
    assert log.log_end_offset == 5
    # Lowered before the cut, to the start of the segment; what is left was synced after it.
    assert disk.read(A / "recovery-point-offset-checkpoint") == b"0\n1\nt 0 4\n"
    assert log.recovery_point == 5


def test_a_log_that_starts_over_before_its_old_start_is_kept() -> None:
    disk = new_disk()
    store = open_store(disk, [A])
    log = store.create(T0, TOPIC_ID, now_ms=0)
    for i in range(10):
        append(store, T0, b"%d" % i)
    log.update_high_watermark(10)
    log.advance_log_start_offset(9)
    tick(store, 60_000)
    store.truncate_fully_and_start_at(T0, 3, 60_000)
    append(store, T0, b"again")
    disk.sync_all()
    disk.crash()
    log_after = open_store(disk, [A]).get(T0)
    assert log_after is not None
    assert log_after.log_start_offset == 3
    assert values(log_after) == [b"again"]


def test_a_flush_from_before_a_truncation_says_nothing_about_what_followed() -> None:
    store = open_store(new_disk(), [A])
    store.create(T0, TOPIC_ID, now_ms=0)
    append(store, T0, b"a", b"b", b"c")
    flush = store.plan_flush(T0)
    assert isinstance(flush, FlushWork)
    store.truncate_to(T0, 0, 0)
    append(store, T0, b"x", b"y", b"z", b"zz")
    run([flush], 0)
    log = store.get(T0)
    assert log is not None
    assert log.recovery_point == 0


# Moving between directories.


def test_a_future_log_replaces_the_current_one() -> None:
    disk = new_disk()
    store = open_store(disk)
    current = store.create(T0, TOPIC_ID, now_ms=0)
    append(store, T0, b"a", b"b")
    current.update_high_watermark(2)
    future = store.create_future(T0, directory_id(store, 1), 0)
    (name,) = [name for name in disk.names(B) if name.startswith("t-")]
    assert name.endswith("-future")
    assert store.get(T0) is current
    assert store.get_future(T0) is future
    future.append_as_follower(bytes(current.read(0, bytes_max=1000).records), now_ms=0)

    moved = store.replace_current_with_future(T0, 0)
    assert store.get(T0) is moved
    assert store.get_future(T0) is None
    assert moved.folder == B / "t-0"
    assert values(moved) == [b"a", b"b"]
    assert moved.high_watermark == 2
    assert store.topic_id(T0) == TOPIC_ID
    append(store, T0, b"c")
    store.check_invariants()
    tick(store, SMALL.file_delete_delay_ms)
    assert [name for name in disk.names(A) if name.startswith("t-")] == []
    store.close(1)
    assert values(open_store(disk).get(T0)) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("seed", range(20))
def test_what_was_flushed_before_a_move_is_there_after_a_crash(seed: int) -> None:
    disk = new_disk(seed)
    store = open_store(disk)
    current = store.create(T0, TOPIC_ID, now_ms=0)
    append(store, T0, b"a")
    current.flush()
    future = store.create_future(T0, directory_id(store, 1), 0)
    future.append_as_follower(bytes(current.read(0, bytes_max=1000).records), now_ms=0)
    moved = store.replace_current_with_future(T0, 0)
    append(store, T0, b"b")
    moved.flush()
    disk.crash()
    store = open_store(disk)
    assert store.problems == []
    assert values(store.get(T0)) == [b"a", b"b"]


def test_a_future_log_starts_where_the_current_one_does() -> None:
    store = open_store(new_disk())
    current = store.create(T0, TOPIC_ID, now_ms=0)
    append(store, T0, b"a", b"b")
    current.update_high_watermark(2)
    current.advance_log_start_offset(2)
    future = store.create_future(T0, directory_id(store, 1), 0)
    assert (future.log_start_offset, future.log_end_offset) == (2, 2)


def test_a_future_log_can_be_abandoned_and_survives_a_restart() -> None:
    disk = new_disk()
    store = open_store(disk)
    store.create(T0, TOPIC_ID, now_ms=0)
    store.create_future(T0, directory_id(store, 1), 0)
    store.close(0)
    store = open_store(disk)
    assert store.get_future(T0) is not None
    store.abandon_future(T0)
    assert store.get_future(T0) is None
    assert store.get(T0) is not None
    tick(store, SMALL.file_delete_delay_ms)
    assert [name for name in disk.names(B) if name.startswith("t-")] == []
    store.check_invariants()


def test_deleting_takes_the_future_log_too() -> None:
    disk = new_disk()
    store = open_store(disk)
    store.create(T0, TOPIC_ID, now_ms=0)
    store.create_future(T0, directory_id(store, 1), 0)
    store.delete(T0)
    tick(store, SMALL.file_delete_delay_ms)
    assert [name for path in (A, B) for name in disk.names(path) if name.startswith("t-")] == []


def test_a_move_to_nowhere_is_refused() -> None:
    store = open_store(new_disk())
    store.create(T0, TOPIC_ID, now_ms=0)
    with pytest.raises(ApiError) as refused:
        store.create_future(T0, OTHER_ID, 0)
    assert refused.value.code is ErrorCode.LOG_DIR_NOT_FOUND
    with pytest.raises(ApiError) as refused:
        store.create_future(T1, directory_id(store, 1), 0)
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# Describing and stopping.


def test_directories_are_described_with_sizes_and_lags() -> None:
    store = open_store(new_disk())
    store.create(T0, TOPIC_ID, now_ms=0)
    append(store, T0, b"a", b"b")
    store.create_future(T0, directory_id(store, 1), 0)
    a, b = store.describe(lambda path: VolumeSpace(100, 50 if path == A else 40))
    assert a.path == A
    assert a.space == VolumeSpace(100, 50)
    assert a.logs == [LogDescription(T0, len(batch(b"a", b"b")), 0, is_future=False)]
    assert b.logs == [LogDescription(T0, 0, 2, is_future=True)]
    assert b.space.usable_bytes == 40
    assert store.describe()[0].space == VolumeSpace(-1, -1)


def test_a_clean_stop_leaves_nothing_to_recover() -> None:
    disk = new_disk()
    store = open_store(disk)
    for number in range(3):
        store.create(TopicPartition("t", number), TOPIC_ID, now_ms=0)
        for i in range(7):
            append(store, TopicPartition("t", number), b"%d" % i)
    log = store.get(T0)
    assert log is not None
    log.update_high_watermark(5)
    log.advance_log_start_offset(1)
    store.close(12)
    assert disk.read(A / "recovery-point-offset-checkpoint") == b"0\n2\nt 0 7\nt 2 7\n"
    assert disk.read(A / "replication-offset-checkpoint") == b"0\n2\nt 0 5\nt 2 0\n"
    assert disk.read(A / "log-start-offset-checkpoint") == b"0\n1\nt 0 1\n"
    assert disk.read(A / ".kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":12}'
    disk.crash()  # all of it is on the platter

    seen: list[LoadingProgress] = []
    store = open_store(disk, on_progress=seen.append)
    assert store.previous_broker_epoch == 12
    assert seen[-1] == (3, 3, 0, 0, 0)
    log = store.get(T0)
    assert log is not None
    assert values(log) == [b"%d" % i for i in range(7)]
    assert (log.log_start_offset, log.high_watermark, log.recovery_point) == (1, 5, 7)
    assert not disk.exists(A / ".kafka_cleanshutdown")


def test_broker_epochs_that_differ_are_none() -> None:
    disk = new_disk()
    open_store(disk, [A]).close(1)
    open_store(disk, [B], seed=1).close(2)
    assert open_store(disk, [A, B]).previous_broker_epoch is None


def test_an_idle_log_is_closed_without_a_sync() -> None:
    disk = new_disk()
    store = open_store(disk, [A])
    store.create(T0, TOPIC_ID, now_ms=0)
    append(store, T0, b"x")
    store.close(0)
    store = open_store(disk, [A])
    disk.trace.clear()
    store.close(0)
    assert [line for line in disk.trace if " sync " in line and "/t-0/" in line] == []


def test_a_truncated_log_is_synced_when_it_is_closed() -> None:
    disk = new_disk()
    store = open_store(disk, [A])
    store.create(T0, TOPIC_ID, now_ms=0)
    append(store, T0, b"x")
    flush = store.plan_flush(T0)
    assert flush is not None
    run([flush], 0)
    store.truncate_to(T0, 0, 0)
    store.close(0)
    for _ in range(10):
        snapshot = disk.snapshot()
        disk.crash()
        store = open_store(disk, [A])
        assert values(store.get(T0)) == []
        disk.restore(snapshot)


def test_two_stores_do_not_share_a_directory() -> None:
    disk = new_disk()
    store = open_store(disk)
    with pytest.raises(DirectoryRefusedError, match="in use"):
        open_store(disk, [PurePosixPath("/c"), B])
    store.close(0)
    open_store(disk, [B])
