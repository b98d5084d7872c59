"""Starting on what is there: leftovers, strangers, duplicates, damage, unclean stops."""

from pathlib import Path, PurePath
from typing import Any

import pytest

from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import TopicPartition, Uuid
from odradek.storage import log_loading, recovery
from odradek.storage.config import LogConfig
from odradek.storage.disk import Disk, OsDisk
from odradek.storage.log_loading import LoadingProgress, RecoveryTask, recover_folder
from odradek.storage.log_upkeep import StoreConfig
from odradek.storage.recovery import LogSettings
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
    tick,
    values,
)

UUID = "0123456789abcdef0123456789abcdef"


def write(disk: Disk, path: PurePath, content: bytes) -> None:
    disk.remove(path)
    file = disk.open(path, create=True)
    file.write(0, [content])
    file.close()


def populated(*partitions: TopicPartition, clean: bool = True) -> SimulatedDisk:
    disk = new_disk()
    store = open_store(disk)
    for partition in partitions:
        store.create(partition, TOPIC_ID, now_ms=0)
        append(store, partition, str(partition).encode())
    if clean:
        store.close(1)
    else:
        disk.kill()
    return disk


def test_leftovers_of_a_deletion_are_removed() -> None:
    disk = populated(T0)
    disk.make_folder(A / f"u-3.{UUID}-delete" / "deep")
    store = open_store(disk)
    tick(store, 0)
    assert not disk.exists(A / f"u-3.{UUID}-delete")
    assert values(store.get(T0)) == [b"t-0"]
    assert store.problems == []


def test_what_is_no_log_is_left_alone_and_reported() -> None:
    disk = populated(T0)
    disk.make_folder(A / "lost+found" / "inode")
    disk.make_folder(A / "t-00")
    write(disk, A / "notes-1", b"a file, not a folder")
    store = open_store(disk)
    tick(store, 10**9)
    assert store.problems == [
        "/a/lost+found is not the folder of a log; left alone",
        "/a/t-00 is not the folder of a log; left alone",
    ]
    assert disk.names(A / "lost+found") == ["inode"]
    assert disk.exists(A / "notes-1")
    assert len(store.logs) == 1


def test_the_metadata_log_is_not_ours() -> None:
    disk = populated(T0)
    disk.make_folder(A / "__cluster_metadata-0")
    store = open_store(disk)
    assert [log.partition for log in store.logs] == [T0]
    assert store.problems == []
    assert disk.names(A / "__cluster_metadata-0") == []


def test_the_reports_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_loading, "PROBLEMS_MAX", 2)
    disk = populated(T0)
    for number in range(5):
        disk.make_folder(A / f"x{number}")
    assert len(open_store(disk).problems) == 2


@pytest.mark.parametrize("first_is_unclean", [False, True])
def test_of_two_logs_of_a_partition_one_is_taken_aside(first_is_unclean: bool) -> None:
    disk = new_disk()
    for path, value in ((A, b"in a"), (B, b"in b")):
        store = open_store(disk, [path], seed=ord(value[-1:]))
        store.create(T0, TOPIC_ID, now_ms=0)
        append(store, T0, value)
        store.close(1)
    if first_is_unclean:
        disk.remove(A / ".kafka_cleanshutdown")
    kept, aside = (B, A) if first_is_unclean else (A, B)
    store = open_store(disk)
    assert values(store.get(T0)) == [f"in {kept.name}".encode()]
    (name,) = [name for name in disk.names(aside) if name.startswith("t-0")]
    assert name.endswith("-stray")
    assert store.problems == [
        f"{aside}/t-0: there is another log of this partition; renamed to {name}"
    ]
    assert disk.read(aside / name / "00000000000000000000.log")
    store.check_invariants()


def test_two_future_logs_and_one_beside_its_current_log_are_taken_aside() -> None:
    disk = populated(T0)
    for folder in (A / f"t-0.{UUID}-future", B / f"t-1.{UUID}-future", A / f"t-1.{UUID}-future"):
        disk.make_folder(folder)
    store = open_store(disk)
    assert store.get(T0) is not None
    assert store.get_future(T0) is None
    future = store.get_future(T1)
    assert future is not None
    assert future.folder.parent == A
    assert len(store.problems) == 2
    store.check_invariants()


def test_a_log_that_does_not_belong_here_is_taken_aside() -> None:
    disk = populated(T0, T1)
    known: dict[TopicPartition, Uuid] = {T0: TOPIC_ID, T1: OTHER_ID}
    store = open_store(disk, is_stray=lambda at, topic_id: known[at] != topic_id)
    assert [log.partition for log in store.logs] == [T0]
    (problem,) = store.problems
    assert problem.startswith(f"/b/t-1: no log of topic id {TOPIC_ID} belongs on this node")
    assert [name for name in disk.names(B) if name.endswith("-stray")]


@pytest.mark.parametrize(
    ("name", "content", "clean"),
    [
        ("partition.metadata", b"version: 0\ntopic_id: x", True),
        ("partition.metadata", b"version: 0\ntopic_id: x", False),
        ("leader-epoch-checkpoint", b"0\nx\n", True),
    ],
)
def test_one_bad_folder_does_not_stop_the_others(name: str, content: bytes, clean: bool) -> None:
    disk = populated(T0, T1, TopicPartition("t", 2), clean=clean)
    write(disk, A / "t-0" / name, content)
    seen: list[LoadingProgress] = []
    store = open_store(disk, on_progress=seen.append)
    with pytest.raises(ApiError, match=f"/a/t-0 cannot be opened.*{name}") as refused:
        store.get(T0)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(ApiError, match="cannot be opened"):
        store.create(T0, TOPIC_ID, now_ms=0)
    assert values(store.get(T1)) == [b"t-1"]
    assert values(store.get(TopicPartition("t", 2))) == [b"t-2"]
    assert all(directory.is_online for directory in store.directories)
    assert seen[-1][:3] == (3, 2, 1)
    store.check_invariants()


def test_a_failed_log_keeps_its_checkpoints_and_prevents_a_clean_stop() -> None:
    disk = populated(T0, T1, TopicPartition("t", 2))
    recovery_points = disk.read(A / "recovery-point-offset-checkpoint")
    good = disk.read(A / "t-0" / "partition.metadata")
    write(disk, A / "t-0" / "partition.metadata", b"bad")
    store = open_store(disk)
    tick(store, 60_000)
    store.close(3)
    lines = disk.read(A / "recovery-point-offset-checkpoint").splitlines()
    assert sorted(lines) == sorted(recovery_points.splitlines())
    assert not disk.exists(A / ".kafka_cleanshutdown")
    assert disk.exists(B / ".kafka_cleanshutdown")
    write(disk, A / "t-0" / "partition.metadata", good)
    assert values(open_store(disk).get(T0)) == [b"t-0"]


def test_a_failed_log_can_be_deleted() -> None:
    disk = populated(T0)
    write(disk, A / "t-0" / "partition.metadata", b"bad")
    store = open_store(disk)
    assert store.delete(T0)
    tick(store, 0)
    assert not [name for name in disk.names(A) if name.startswith("t-")]
    store.create(T0, OTHER_ID, now_ms=0)


def test_a_torn_batch_is_cut_after_an_unclean_stop() -> None:
    disk = populated(T0, clean=False)
    path = A / "t-0" / "00000000000000000000.log"
    file = disk.open(path)
    whole = file.size
    file.write(whole, [file.read(0, whole - 3)])
    seen: list[LoadingProgress] = []
    store = open_store(disk, on_progress=seen.append)
    assert values(store.get(T0)) == [b"t-0"]
    assert seen[-1].recovered == 1
    assert seen[-1].checked_bytes == 2 * whole - 3
    assert disk.size(path) == whole


def test_a_stop_while_loading_is_an_unclean_one() -> None:
    disk = populated(T0)

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        open_store(disk, on_progress=interrupt)
    store = open_store(disk)  # the locks were given back
    assert store.directories[0].clean_shutdown is None
    assert values(store.get(T0)) == [b"t-0"]


# Worker processes, on the real disk.


def fill(tmp_path: Path, logs: int, batches: int, config: LogConfig) -> list[bytes]:
    """Write some logs and stop without a word."""
    store = open_store(OsDisk(), [tmp_path], config=config)
    written = [b"%d" % i for i in range(batches)]
    for number in range(logs):
        partition = TopicPartition("t", number)
        store.create(partition, TOPIC_ID, now_ms=0)
        for value in written:
            append(store, partition, value)
    store.abandon()
    return written


def test_a_folder_is_recovered_by_a_function_of_plain_values(tmp_path: Path) -> None:
    written = fill(tmp_path, 1, 9, SMALL)
    path = max((tmp_path / "t-0").glob("*.log"))
    path.write_bytes(path.read_bytes() + b"torn")
    task = RecoveryTask(T0, tmp_path / "t-0", LogSettings(SMALL), 0, 0, 0, 0)
    assert recover_folder(task).cut_bytes == 4
    assert recover_folder(task).cut_bytes == 0
    store = open_store(OsDisk(), [tmp_path])
    assert values(store.get(T0)) == written
    store.close(0)


def test_logs_are_recovered_by_other_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = fill(tmp_path, 4, 9, SMALL)
    torn = max((tmp_path / "t-1").glob("*.log"))
    torn.write_bytes(torn.read_bytes() + b"torn")
    epochs = tmp_path / "t-3" / "leader-epoch-checkpoint"
    epochs.unlink()
    epochs.mkdir()
    monkeypatch.setattr(log_loading, "RECOVERY_INLINE_BYTES_MAX", 0)
    opened_cleanly = []
    real = recovery.open_log

    def spy(*args: Any, clean: bool, **options: Any) -> object:
        opened_cleanly.append(clean)
        return real(*args, clean=clean, **options)

    monkeypatch.setattr(log_loading, "open_log", spy)
    seen: list[LoadingProgress] = []
    store = open_store(
        OsDisk(),
        [tmp_path],
        config=SMALL,
        on_progress=seen.append,
        store_config=StoreConfig(num_recovery_threads_per_data_dir=2),
    )
    assert opened_cleanly == [True] * 3
    assert seen[-1][:4] == (4, 3, 1, 3)
    for number in range(3):
        log = store.get(TopicPartition("t", number))
        assert values(log) == written
        assert log is not None
        assert log.recovery_point == len(written)
    with pytest.raises(ApiError, match="t-3 cannot be opened"):
        store.get(TopicPartition("t", 3))
    store.close(0)
