"""A disk that fails or is full, a process out of descriptors: what is refused, what goes on."""

import errno
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import TopicPartition
from odradek.storage.log_directory import DirectoryRefusedError
from odradek.storage.log_store import LogStore
from odradek.storage.log_upkeep import StoreConfig
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

ERRORS = [errno.EIO, errno.EMFILE, errno.EROFS]
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

    store.close(5)
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
    store.close(1)
    assert [line for line in disk.trace if "/a/" in line] == []
    disk.crash()
    assert values(open_store(disk).get(T0)) in ([], [b"first"])


@pytest.mark.parametrize("kind", ["sync", "truncate", "create", "rename"])
def test_a_directory_whose_close_fails_is_not_said_to_be_clean(kind: str) -> None:
    disk = new_disk()
    store = two_logs(disk)
    disk.fail(kind, errno.EIO, path="/a/t-0/*" if kind != "rename" else "/a/*")  # type: ignore[arg-type]
    store.close(5)
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
        store.delete(T2)
    assert store.create(T2, TOPIC_ID, now_ms=0).folder == B / "t-2"


def test_a_log_in_an_offline_directory_cannot_be_deleted() -> None:
    disk = new_disk()
    store = two_logs(disk)
    disk.fail("rename", errno.EIO, path="/a/t-0")
    with pytest.raises(ApiError) as refused:
        store.delete(T0)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert disk.exists(A / "t-0")
    check_only_a_is_offline(store)


def test_a_failed_removal_takes_the_directory_offline() -> None:
    disk = new_disk()
    store = two_logs(disk)
    store.create(T2, TOPIC_ID, now_ms=0)
    store.delete(T2)
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
    store.close(1)
    disk.kill()
    store = open_store(disk)  # where the old log is found again, but that directory was offline
    assert values(store.get(T0)) == [b"first", b"more"]


# A full disk.


RESERVE_BYTES = 1024


def full_store(**options: Any) -> tuple[SimulatedDisk, LogStore]:
    """Have a store on a disk with no byte left, with records that are old and one that is not."""
    disk = new_disk()
    config = replace(SMALL, retention_ms=1000, file_delete_delay_ms=10**9)
    store = open_store(disk, [A], config=config, reserve_bytes=RESERVE_BYTES, **options)
    for partition in (T0, T1):
        log = store.create(partition, TOPIC_ID, now_ms=0)
        for i in range(10):
            append(store, partition, b"%d" % i)
        log.update_high_watermark(10)
    append(store, T1, b"young", now_ms=10**6)
    disk.capacity_bytes = disk.used_bytes()
    refuse_append(store, T0, b"x" * 200)
    disk.capacity_bytes = disk.used_bytes()
    return disk, store


def refuse_append(store: LogStore, partition: TopicPartition, value: bytes = b"x") -> None:
    with pytest.raises(ApiError, match="/a is full") as refused:
        append(store, partition, value)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_full_directory_goes_on_with_reads_and_refuses_writes() -> None:
    disk, store = full_store()
    assert store.directories[0].is_full
    assert values(store.get(T0)) == [b"%d" % i for i in range(10)]
    disk.trace.clear()
    refuse_append(store, T0)
    refuse_append(store, T1)
    assert list(disk.trace) == [], "refused without a try"
    with pytest.raises(ApiError, match="/a is full"):
        store.create(T2, TOPIC_ID, now_ms=0)
    assert not disk.exists(A / "t-2")
    assert [each.error_code for each in store.describe()] == [ErrorCode.NONE]
    assert store.take_offline_directories() == []
    store.check_invariants()


def test_retention_makes_space_and_writes_are_accepted_again() -> None:
    disk, store = full_store()
    directory = store.directories[0]
    used = disk.used_bytes()
    assert store.take_full_changes() == ([directory], [])
    tick(store, 10**6)
    tick(store, 10**6 + 1000)
    assert directory.is_writable
    assert store.take_full_changes() == ([], [directory])
    assert disk.used_bytes() < used
    assert disk.size(A / ".reserve") == RESERVE_BYTES
    append(store, T1, b"again", now_ms=10**6)
    assert values(store.get(T1))[-2:] == [b"young", b"again"]
    store.close(1)
    assert store.is_closed_cleanly
    disk.kill()
    assert values(open_store(disk, [A]).get(T1))[-2:] == [b"young", b"again"]


def test_a_full_disk_that_nothing_frees_stays_so_until_it_has_space() -> None:
    disk, store = full_store(store_config=StoreConfig(log_retention_check_interval_ms=10**12))
    directory = store.directories[0]
    now_ms = 0  # at which no record is too old
    for _ in range(3):
        tick(store, now_ms)
        assert directory.is_full
        assert disk.used_bytes() <= (disk.capacity_bytes or 0)
        assert store.next_deadline_ms() > now_ms, "it does not spin"
        now_ms += 1000
    assert disk.capacity_bytes is not None
    disk.capacity_bytes += 2 * RESERVE_BYTES
    tick(store, now_ms)
    assert directory.is_writable
    assert (directory.times_full, store.next_deadline_ms() > now_ms) == (1, True)
    append(store, T0, b"at last")


def test_what_must_be_written_has_a_reserve() -> None:
    disk, store = full_store()
    directory = store.directories[0]
    directory.write_checkpoints()
    assert disk.exists(A / "replication-offset-checkpoint")
    assert not disk.exists(A / ".reserve"), "a piece is more than all of it here"
    store.close(1)
    assert store.is_closed_cleanly


def test_a_node_stops_cleanly_and_starts_again_while_the_disk_is_full() -> None:
    disk, store = full_store()
    kept = {partition: values(store.get(partition)) for partition in (T0, T1)}
    store.close(1)
    assert store.is_closed_cleanly
    assert disk.exists(A / ".kafka_cleanshutdown")
    disk.kill()
    disk.capacity_bytes = disk.used_bytes()  # somebody else was quicker
    store = open_store(disk, [A], reserve_bytes=RESERVE_BYTES)
    assert store.losses == []
    assert {partition: values(store.get(partition)) for partition in (T0, T1)} == kept
    refuse_append(store, T0)
    assert store.directories[0].is_full
    disk.capacity_bytes = None
    tick(store, 1000)
    append(store, T0, b"more")


@pytest.mark.parametrize("seed", range(10))
def test_nothing_acknowledged_is_lost_whenever_the_disk_is_full_or_the_process_killed(
    seed: int,
) -> None:
    random, disk = Random(seed), new_disk(seed)
    config = replace(SMALL, retention_ms=-1)
    store = open_store(disk, [A], config=config, reserve_bytes=RESERVE_BYTES)
    partitions = (T0, T1)
    for partition in partitions:
        store.create(partition, TOPIC_ID, now_ms=0)
    acknowledged: dict[TopicPartition, list[bytes]] = {partition: [] for partition in partitions}
    now_ms, codes = 0, []
    disk.capacity_bytes = disk.used_bytes() + 2000
    for number in range(300):
        now_ms += 100
        partition, value = random.choice(partitions), b"%d" % number * random.randint(1, 40)
        try:
            append(store, partition, value, now_ms=now_ms)
        except ApiError as error:
            codes.append(error.code)
        else:
            acknowledged[partition].append(value)
        match random.randrange(40):
            case 0:
                disk.kill()
                store = open_store(disk, [A], config=config, reserve_bytes=RESERVE_BYTES)
            case 1:
                store.close(1)
                disk.kill()
                store = open_store(disk, [A], config=config, reserve_bytes=RESERVE_BYTES)
            case 2:
                disk.capacity_bytes += 2000
        if number % 10 == 0:
            tick(store, now_ms)
        assert store.directories[0].is_online
        assert store.losses == []
    for partition in partitions:
        assert values(store.get(partition)) == acknowledged[partition]
    assert len(codes) > 10
    assert set(codes) == {ErrorCode.KAFKA_STORAGE_ERROR}
    assert sum(map(len, acknowledged.values())) > 50


def test_topics_can_be_deleted_from_a_full_disk_at_once() -> None:
    disk, store = full_store()
    assert store.delete(T0)
    tick(store, 0)
    assert not [name for name in disk.names(A) if name.startswith("t-0")]


def test_a_sync_that_finds_no_space_is_worse_than_a_full_disk() -> None:
    disk = new_disk()
    store = two_logs(disk)
    work = store.plan_flush(T0)
    assert isinstance(work, FlushWork)
    disk.fail("sync", errno.ENOSPC, path="/a/t-0/*.log")
    run([work], 0)
    check_only_a_is_offline(store)


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
    two_logs(disk).close(1)
    disk.fail(kind, error, path=path)  # type: ignore[arg-type]
    store = open_store(disk)
    assert store.problems == [] or "/a" in store.problems[0]
    assert [d.is_online for d in store.directories] == [False, True]
    assert values(store.get(T1)) == [b"first"]
    # What fails later is reported by heartbeats: the broker has registered before it loads logs.
    fails_at_once = path in ("/a/.lock", "/a/meta.properties")
    assert store.previous_broker_epoch == (None if fails_at_once else 1)
    with pytest.raises(ApiError, match="may be in /a"):
        store.create(T0, TOPIC_ID, now_ms=0, is_new=False)
    store.close(2)
    disk.kill()
    assert values(open_store(disk).get(T0)) == [b"first"]


def test_a_node_without_a_usable_directory_does_not_start() -> None:
    disk = new_disk()
    two_logs(disk).close(1)
    disk.fail("read", errno.EIO, path="*/meta.properties", times=None)
    with pytest.raises(DirectoryRefusedError, match=r"no log directory can be used: /a: .*/b: "):
        open_store(disk)


def test_a_folder_that_may_not_be_read_is_one_bad_log() -> None:
    disk = new_disk()
    two_logs(disk).close(1)
    disk.fail("read", errno.EACCES, path="/a/t-0/*", times=None)
    store = open_store(disk)
    assert store.directories[0].is_online
    with pytest.raises(ApiError, match="/a/t-0 cannot be opened"):
        store.get(T0)
    assert store.create(TopicPartition("u", 0), OTHER_ID, now_ms=0).folder.parent == A
