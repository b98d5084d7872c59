"""One log directory: whose it is, how it was left, and what it does when its disk fails."""

import errno
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import Uuid
from odradek.storage.checkpoint_file import CheckpointFile
from odradek.storage.disk import OsDisk
from odradek.storage.log_dir_files import CleanShutdown, write_clean_shutdown
from odradek.storage.log_directory import DirectoryRefusedError, LogDirectory
from odradek.testing.disk import SimulatedDisk
from tests.unit.storage.test_log_store_support import T0, T1, A, new_disk

DIRECTORY_ID = "_qE_1mMRTXutLtMEpzBmpg"


def open_directory(
    disk: Any, path: Any = A, *, cluster_id: str = "c", node_id: int = 1, format_new: bool = True
) -> LogDirectory:
    return LogDirectory.open(
        disk,
        path,
        cluster_id=cluster_id,
        node_id=node_id,
        random=Random(0),
        format_new=format_new,
    )


def write(disk: SimulatedDisk, name: str, content: bytes) -> None:
    disk.make_folder(A)
    file = disk.open(A / name, create=True)
    file.write(0, [content])
    file.close()


# Whose it is.


def test_formatting_writes_meta_properties_once() -> None:
    disk = new_disk()
    directory = open_directory(disk)
    content = disk.read(A / "meta.properties")
    assert (
        content
        == (
            f"#\ncluster.id=c\ndirectory.id={directory.directory_id}\nnode.id=1\nversion=1\n"
        ).encode()
    )
    directory.unlock()
    assert open_directory(disk, format_new=False).directory_id == directory.directory_id
    assert disk.read(A / "meta.properties") == content


def test_a_directory_that_is_not_formatted_is_refused() -> None:
    disk = new_disk()
    with pytest.raises(DirectoryRefusedError, match=r"/a/meta\.properties is missing: format"):
        open_directory(disk, format_new=False)
    open_directory(disk)  # the lock was given back


def test_an_unformatted_directory_that_holds_logs_is_refused() -> None:
    disk = new_disk()
    write(disk, "lost+found", b"")
    for number in range(7):
        disk.make_folder(A / f"orders-{number}")
        disk.open(A / f"orders-{number}" / "00000000000000000000.log", create=True).close()
    with pytest.raises(DirectoryRefusedError) as refused:
        open_directory(disk)
    assert str(refused.value).startswith(
        "/a/meta.properties is missing, but the directory holds logs: orders-0, orders-1, "
        "orders-2, orders-3, orders-4 and 2 more. Restore the file"
    )
    assert not disk.exists(A / "meta.properties")
    for number in range(7):
        disk.remove_folder(A / f"orders-{number}")
    assert open_directory(disk).directory_id is not None


def test_what_formatting_left_when_it_was_killed_is_formatted() -> None:
    disk = new_disk()
    write(disk, "bootstrap.checkpoint", b"")
    write(disk, "meta.properties.tmp", b"")
    disk.make_folder(A / "__cluster_metadata-0")
    snapshot = A / "__cluster_metadata-0" / "00000000000000000000-0000000000.checkpoint"
    disk.open(snapshot, create=True).close()
    assert open_directory(disk).directory_id is not None


@pytest.mark.parametrize(
    ("identity", "message"),
    [
        ({"cluster_id": "d"}, "/a/meta.properties says cluster.id=c, this node has cluster.id=d"),
        ({"node_id": 2}, "/a/meta.properties says node.id=1, this node has node.id=2"),
    ],
)
def test_the_directory_of_another_node_is_refused(identity: dict[str, Any], message: str) -> None:
    disk = new_disk()
    open_directory(disk).unlock()
    with pytest.raises(DirectoryRefusedError, match=message):
        open_directory(disk, **identity)


def test_a_malformed_meta_properties_is_refused_and_left_as_it_is() -> None:
    disk = new_disk()
    write(disk, "meta.properties", b"version=1\nnode.id=x\ncluster.id=c\n")
    with pytest.raises(DirectoryRefusedError, match=r"/a/meta\.properties"):
        open_directory(disk)
    assert disk.read(A / "meta.properties") == b"version=1\nnode.id=x\ncluster.id=c\n"


def test_a_directory_of_an_older_kafka_gets_a_directory_id() -> None:
    disk = new_disk()
    write(disk, "meta.properties", b"version=1\nnode.id=1\ncluster.id=c\n")
    directory = open_directory(disk, format_new=False)
    assert directory.directory_id is not None
    assert f"directory.id={directory.directory_id}".encode() in disk.read(A / "meta.properties")


def test_the_directory_id_that_is_there_stays() -> None:
    disk = new_disk()
    meta = f"cluster.id=c\nversion=1\ndirectory.id={DIRECTORY_ID}\nnode.id=1\n".encode()
    write(disk, "meta.properties", meta)
    assert open_directory(disk).directory_id == Uuid.from_text(DIRECTORY_ID)
    assert disk.read(A / "meta.properties") == meta


# Two nodes.


def test_two_nodes_on_one_directory_are_refused() -> None:
    disk = new_disk()
    directory = open_directory(disk)
    with pytest.raises(DirectoryRefusedError, match=r"/a is in use.* holds /a/\.lock"):
        open_directory(disk)
    directory.unlock()
    open_directory(disk)


def test_two_nodes_in_one_process_are_refused_and_the_first_keeps_its_lock(tmp_path: Path) -> None:
    """POSIX locks would let the second in, and its leaving would drop the lock of the first."""
    directory = open_directory(OsDisk(), tmp_path)
    with pytest.raises(DirectoryRefusedError, match="is in use"):
        open_directory(OsDisk(), tmp_path)
    assert not _another_process_can_lock(tmp_path)
    directory.unlock()
    assert _another_process_can_lock(tmp_path)
    open_directory(OsDisk(), tmp_path).unlock()


def _another_process_can_lock(path: Path) -> bool:
    program = f"import fcntl; fcntl.lockf(open({str(path / '.lock')!r}, 'r+'), fcntl.LOCK_EX | 4)"
    return subprocess.run([sys.executable, "-c", program], capture_output=True).returncode == 0


def test_a_lock_that_cannot_be_opened_is_the_disks_fault() -> None:
    disk = new_disk()
    disk.fail("create", errno.EACCES, path="*.lock")
    with pytest.raises(PermissionError):
        open_directory(disk)


# How it was left.


def test_a_clean_stop_is_read_and_taken_back() -> None:
    disk = new_disk()
    directory = open_directory(disk)
    write_clean_shutdown(disk, A, 42)
    assert directory.begin_loading() == []
    assert directory.clean_shutdown == CleanShutdown(42)
    disk.crash()  # from here on this is an unclean stop, and the removal was synced
    directory = open_directory(disk)
    directory.begin_loading()
    assert directory.clean_shutdown is None


def test_a_damaged_clean_shutdown_file_counts_as_an_unclean_stop() -> None:
    disk = new_disk()
    write(disk, ".kafka_cleanshutdown", b"{broken")
    directory = open_directory(disk)
    (problem,) = directory.begin_loading()
    assert "/a/.kafka_cleanshutdown" in problem
    assert directory.clean_shutdown is None


@pytest.mark.parametrize(
    "name",
    [
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "log-start-offset-checkpoint",
        "cleaner-offset-checkpoint",
    ],
)
def test_a_damaged_checkpoint_counts_as_empty_and_is_reported(name: str) -> None:
    disk = new_disk()
    write(disk, name, b"0\n2\nt 0 5\n")
    directory = open_directory(disk)
    (problem,) = directory.begin_loading()
    assert f"/a/{name}" in problem
    assert directory.recovery_points.written == {}


def test_the_clean_shutdown_file_comes_after_the_checkpoints_and_is_synced() -> None:
    disk = new_disk()
    directory = open_directory(disk)
    directory.begin_loading()
    disk.trace.clear()
    directory.finish(broker_epoch=9)
    renames = [line.split()[-1] for line in disk.trace if " rename " in line]
    assert renames == [
        "/a/recovery-point-offset-checkpoint",
        "/a/log-start-offset-checkpoint",
        "/a/replication-offset-checkpoint",
        "/a/.kafka_cleanshutdown",
    ]
    disk.crash()
    assert disk.read(A / ".kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":9}'
    assert disk.read(A / "recovery-point-offset-checkpoint") == b"0\n0\n"


# Errors.


def test_an_error_within_the_guard_takes_the_directory_offline_for_good() -> None:
    directory = open_directory(new_disk())
    with directory.guard:
        pass
    with pytest.raises(ApiError) as refused, directory.guard:
        raise OSError(errno.EIO, "rotten")
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert "/a" in refused.value.message
    assert isinstance(refused.value.__cause__, OSError)
    assert not directory.is_online
    with pytest.raises(ApiError, match="rotten"), directory.guard:
        pytest.fail("offline directories are not used")


def test_other_exceptions_pass_the_guard_and_do_no_harm() -> None:
    directory = open_directory(new_disk())
    with pytest.raises(ApiError, match="TOO_LARGE"), directory.guard:
        raise ApiError(ErrorCode.MESSAGE_TOO_LARGE)
    assert directory.is_online


def test_a_full_directory_refuses_what_takes_space_and_a_broken_one_everything() -> None:
    directory = open_directory(new_disk())
    full = OSError(errno.ENOSPC, "full")
    broken = OSError(errno.EIO, "broken")
    directory.on_io_error(full)
    assert (directory.is_online, directory.is_full, directory.is_writable) == (True, True, False)
    with directory.guard:
        pass
    with pytest.raises(ApiError, match=r"/a is full \(full\)"), directory.writing_guard:
        pytest.fail("there is no space")
    directory.on_io_error(broken)
    assert (directory.is_online, directory.is_full, directory.is_writable) == (False, False, False)
    directory.on_io_error(full)
    assert directory.error is broken
    with pytest.raises(ApiError, match=r"offline: .* broken"), directory.guard:
        pytest.fail("broken is more than full")


def test_an_offline_directory_is_never_said_to_be_clean() -> None:
    disk = new_disk()
    directory = open_directory(disk)
    directory.on_io_error(OSError(errno.EIO, "broken"))
    directory.finish(broker_epoch=9)
    assert not disk.exists(A / ".kafka_cleanshutdown")


# Checkpoints.


def checkpoint_file() -> tuple[SimulatedDisk, CheckpointFile]:
    disk = new_disk()
    disk.make_folder(A)
    return disk, CheckpointFile(disk, A / "f")


def test_a_checkpoint_has_kafkas_format() -> None:
    disk, file = checkpoint_file()
    file.write_now({T0: 5, T1: 7})
    assert disk.read(A / "f") == b"0\n2\nt 0 5\nt 1 7\n"
    assert file.written == {T0: 5, T1: 7}


def test_a_late_write_never_replaces_a_newer_one() -> None:
    disk, file = checkpoint_file()
    late = file.plan_write({T0: 5})
    assert file.largest(T0) == 5
    file.write_now({T1: 7})
    late.run()
    file.on_written(late)
    assert disk.read(A / "f") == b"0\n1\nt 1 7\n"
    assert file.written == {T1: 7}
    assert not file.is_writing


def test_what_may_be_on_disk_is_what_is_written_or_about_to_be() -> None:
    _, file = checkpoint_file()
    file.write_now({T0: 9})
    plan = file.plan_write({T0: 5})
    assert file.is_writing
    assert file.largest(T0) == 9
    plan.run()
    file.on_written(plan)
    assert file.largest(T0) == 5
    assert file.largest(T1) is None
