"""A disk that fails or is full, a process out of descriptors: what is refused, what goes on."""

import errno
from dataclasses import replace

import pytest

from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import TopicPartition
from odradek.storage.log_directory import DirectoryRefusedError
from odradek.storage.log_store import LogStore
from odradek.storage.log_work import FlushWork
from odradek.testing.disk import SimulatedDisk
from tests.unit.storage.test_log_store_support import (
    OTHER_ID,
    SMALL,
    T0,
    T1,
    TOPIC_ID,
    A,
    B,
    append,
    new_disk,
    open_store,
    run,
    tick,
    values,
)

ERRORS = [errno.EIO, errno.ENOSPC, errno.EMFILE, errno.EROFS]
T2 = TopicPartition("t", 2)


def two_logs(disk: SimulatedDisk) -> LogStore:
    """Have T0 in A and T1 in B, with a record each."""
    store = open_store(disk)
    for partition in (T0, T1):
        store.create(partition, TOPIC_ID, now_ms=0)
        append(store, partition, b"first")
    return store


def check_only_a_is_offline(store: LogStore) -> None:
    for operation in (
        lambda: store.get(T0),
        lambda: append(store, T0, b"more"),
        lambda: store.truncate_to(T0, 0, 0),
    ):
        with pytest.raises(ApiError) as refused:
            operation()
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert "/a is offline" in refused.value.message
    append(store, T1, b"second")
    assert values(store.get(T1)) == [b"first", b"second"]
    assert T0 not in [log.partition for log in store.logs]
    assert [directory.path for directory in store.take_offline_directories()] == [A]
    assert store.take_offline_directories() == []
    codes = [description.error_code for description in store.describe()]
    assert codes == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]
    tick(store, 10**6)
    store.check_invariants()


@pytest.mark.parametrize("error", ERRORS)
def test_a_failed_append_takes_its_directory_offline_and_no_other(error: int) -> None:
    disk = new_disk()
    store = two_logs(disk)
    disk.fail("write", error, path="/a/t-0/*.log")
    with pytest.raises(ApiError) as refused:
        append(store, T0, b"lost")
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    check_only_a_is_offline(store)

    store.close(10**6, 5)
    assert not disk.exists(A / ".kafka_cleanshutdown")
    assert disk.exists(B / ".kafka_cleanshutdown")
    disk.kill()
    store = open_store(disk)
    # What was refused may be there all the same, but whole or not at all.
    assert values(store.get(T0)) in ([b"first"], [b"first", b"lost"])
    assert values(store.get(T1)) == [b"first", b"second"]


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("kind", ["create", "write", "sync", "rename", "sync_folder"])
def test_a_failed_checkpoint_takes_its_directory_offline(kind: str, error: int) -> None:
    disk = new_disk()
    store = two_logs(disk)
    path = "/a" if kind == "sync_folder" else "/a/replication*"
    disk.fail(kind, error, path=path)  # type: ignore[arg-type]
    tick(store, 5000)
    check_only_a_is_offline(store)


def test_after_a_failed_sync_nothing_counts_as_flushed() -> None:
    disk = new_disk()
    store = two_logs(disk)
    log = store.get(T0)
    assert log is not None
    work = store.plan_flush(T0)
    assert isinstance(work, FlushWork)
    disk.fail("sync", errno.EIO, path="/a/t-0/*.log")
    run([work], 0)
    assert log.recovery_point == 0
    assert disk.faults[0].times == 0
    check_only_a_is_offline(store)  # and the second sync, which would succeed, is never tried
    with pytest.raises(ApiError):
        store.plan_flush(T0)
    disk.trace.clear()
    tick(store, 10**7)
    store.close(10**7, 1)
    assert [line for line in disk.trace if "/a/" in line] == []
    disk.crash()
    assert values(open_store(disk).get(T0)) in ([], [b"first"])


@pytest.mark.parametrize("kind", ["sync", "truncate", "create", "rename"])
def test_a_directory_whose_close_fails_is_not_said_to_be_clean(kind: str) -> None:
    disk = new_disk()
    store = two_logs(disk)
    disk.fail(kind, errno.EIO, path="/a/t-0/*" if kind != "rename" else "/a/*")  # type: ignore[arg-type]
    store.close(0, 5)
    assert not disk.exists(A / ".kafka_cleanshutdown")
    assert disk.exists(B / ".kafka_cleanshutdown")
    disk.kill()
    assert open_store(disk).previous_broker_epoch is None


# Creating, deleting, moving.


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("make_folder", "/a/t-2"),
        ("create", "/a/t-2/*.log"),
        ("create", "/a/t-2/partition.metadata.tmp"),
        ("sync_folder", "/a"),
    ],
)
def test_a_log_is_made_in_the_next_directory_if_one_fails(kind: str, path: str, error: int) -> None:
    disk = new_disk()
    store = two_logs(disk)
    disk.fail(kind, error, path=path)  # type: ignore[arg-type]
    log = store.create(T2, TOPIC_ID, now_ms=0)
    assert log.folder == B / "t-2"
    check_only_a_is_offline(store)


def test_no_log_is_made_if_all_directories_fail() -> None:
    disk = new_disk()
    store = two_logs(disk)
    disk.fail("make_folder", errno.EIO, times=None)
    with pytest.raises(ApiError) as refused:
        store.create(T2, TOPIC_ID, now_ms=0)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert len(store.take_offline_directories()) == 2
    assert store.logs == []


def test_what_may_be_in_an_offline_directory_is_not_made_a_second_time() -> None:
    disk = new_disk()
    store = two_logs(disk)
    store.directories[0].on_io_error(OSError(errno.EIO, "broken"))
    with pytest.raises(ApiError, match="t-2 may be in /a, which is offline"):
        store.create(T2, TOPIC_ID, now_ms=0, is_new=False)
    with pytest.raises(ApiError, match="t-2 may be in /a, which is offline"):
        store.delete(T2, 0)
    assert store.create(T2, TOPIC_ID, now_ms=0).folder == B / "t-2"


def test_a_log_in_an_offline_directory_cannot_be_deleted() -> None:
    disk = new_disk()
    store = two_logs(disk)
    disk.fail("rename", errno.EIO, path="/a/t-0")
    with pytest.raises(ApiError) as refused:
        store.delete(T0, 0)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert disk.exists(A / "t-0")
    check_only_a_is_offline(store)


def test_a_failed_removal_takes_the_directory_offline() -> None:
    disk = new_disk()
    store = two_logs(disk)
    store.create(T2, TOPIC_ID, now_ms=0)
    store.delete(T2, 0)
    disk.fail("remove", errno.EIO, path="/a/t-2.*/*.log")
    tick(store, SMALL.file_delete_delay_ms)
    check_only_a_is_offline(store)


def test_a_move_whose_old_directory_fails_is_done() -> None:
    disk = new_disk()
    store = two_logs(disk)
    target = store.directories[1].directory_id
    assert target is not None
    current = store.get(T0)
    assert current is not None
    future = store.create_future(T0, target, 0)
    future.append_as_follower(bytes(current.read(0, bytes_max=1000).records), now_ms=0)
    disk.fail("rename", errno.EIO, path="/a/t-0")
    with pytest.raises(ApiError):
        store.replace_current_with_future(T0, 0)
    assert values(store.get(T0)) == [b"first"]
    assert store.directory_of(T0).path == B
    append(store, T0, b"more")
    store.close(0, 1)
    disk.kill()
    store = open_store(disk)  # where the old log is found again, but that directory was offline
    assert values(store.get(T0)) == [b"first", b"more"]


# A full disk.


def full_store() -> tuple[SimulatedDisk, LogStore]:
    disk = new_disk()
    config = replace(SMALL, retention_ms=1000, file_delete_delay_ms=10**9)
    store = open_store(disk, [A], config=config)
    for partition in (T0, T1):
        log = store.create(partition, TOPIC_ID, now_ms=0)
        for i in range(10):
            append(store, partition, b"%d" % i)
        log.update_high_watermark(10)
    append(store, T1, b"young", now_ms=10**6)
    disk.capacity_bytes = disk.used_bytes()
    with pytest.raises(ApiError):
        append(store, T0, b"x" * 200)
    return disk, store


def test_retention_makes_space_on_a_full_disk_at_once() -> None:
    disk, store = full_store()
    directory = store.directories[0]
    assert directory.is_full
    used = disk.used_bytes()
    tick(store, 10**6)
    tick(store, 2 * 10**6)
    assert directory.is_full, "until the next start"
    assert disk.used_bytes() < used / 2
    assert not [n for n in disk.names(A / "t-1") if "deleted" in n]
    with pytest.raises(ApiError) as refused:
        store.get(T1)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    store.close(10**6, 1)
    assert not disk.exists(A / ".kafka_cleanshutdown")
    disk.kill()
    store = open_store(disk, [A])
    assert values(store.get(T1))[-1] == b"young"
    append(store, T1, b"again")


def test_a_full_disk_does_not_make_the_store_spin() -> None:
    _, store = full_store()
    tick(store, 10**6)
    assert store.next_deadline_ms() > 10**6


def test_topics_can_be_deleted_from_a_full_disk() -> None:
    disk, store = full_store()
    assert store.delete(T0, 0)
    tick(store, 2 * 10**9)
    assert not [name for name in disk.names(A) if name.startswith("t-0")]


def test_a_broken_disk_is_left_alone_even_by_retention() -> None:
    disk, store = full_store()
    store.directories[0].on_io_error(OSError(errno.EIO, "broken"))
    disk.trace.clear()
    tick(store, 10**7)
    assert list(disk.trace) == []


# Starting.


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("open", "/a/.lock"),
        ("read", "/a/meta.properties"),
        ("read", "/a/recovery-point-offset-checkpoint"),
        ("sync_folder", "/a"),
        ("open", "/a/t-0/*"),
        ("read", "/a/t-0/partition.metadata"),
    ],
)
def test_a_directory_that_cannot_be_read_is_offline_from_the_start(
    kind: str, path: str, error: int
) -> None:
    disk = new_disk()
    two_logs(disk).close(0, 1)
    disk.fail(kind, error, path=path)  # type: ignore[arg-type]
    store = open_store(disk)
    assert store.problems == [] or "/a" in store.problems[0]
    assert [d.is_online for d in store.directories] == [False, True]
    assert values(store.get(T1)) == [b"first"]
    assert store.previous_broker_epoch is None
    with pytest.raises(ApiError, match="may be in /a"):
        store.create(T0, TOPIC_ID, now_ms=0, is_new=False)
    store.close(0, 2)
    disk.kill()
    assert values(open_store(disk).get(T0)) == [b"first"]


def test_a_node_without_a_usable_directory_does_not_start() -> None:
    disk = new_disk()
    two_logs(disk).close(0, 1)
    disk.fail("read", errno.EIO, path="*/meta.properties", times=None)
    with pytest.raises(DirectoryRefusedError, match=r"no log directory can be used: /a: .*/b: "):
        open_store(disk)


def test_a_folder_that_may_not_be_read_is_one_bad_log() -> None:
    disk = new_disk()
    two_logs(disk).close(0, 1)
    disk.fail("read", errno.EACCES, path="/a/t-0/*", times=None)
    store = open_store(disk)
    assert store.directories[0].is_online
    with pytest.raises(ApiError, match="/a/t-0 cannot be opened"):
        store.get(T0)
    assert store.create(TopicPartition("u", 0), OTHER_ID, now_ms=0).folder.parent == A
