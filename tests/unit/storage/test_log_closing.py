"""What a clean stop costs: nothing for logs that nobody wrote to, four syncs for the others."""

from odradek.core.ids import TopicPartition
from odradek.storage.log_store import LogStore
from odradek.testing.disk import SimulatedDisk
from tests.unit.storage.test_log_store_support import (
    TOPIC_ID,
    A,
    append,
    new_disk,
    open_store,
    values,
)

PARTITIONS = [TopicPartition("t", number) for number in range(20)]


def reopened() -> tuple[SimulatedDisk, LogStore]:
    """Have logs with several segments that were written to before the last stop."""
    disk = new_disk()
    store = open_store(disk, [A])
    for partition in PARTITIONS:
        store.create(partition, TOPIC_ID, now_ms=0)
        for number in range(5):
            append(store, partition, b"%d" % number, now_ms=number)
    store.close(1)
    disk.kill()
    disk.trace.clear()
    return disk, open_store(disk, [A])


def touched(disk: SimulatedDisk) -> list[str]:
    """Return what was done in the folders of logs since the trace was cleared."""
    return [line for line in disk.trace if "/a/t-" in line]


def test_a_start_and_a_stop_touch_no_file_of_a_log_that_nobody_writes_to() -> None:
    disk, store = reopened()
    assert touched(disk) == []
    for partition in PARTITIONS:
        assert values(store.get(partition)) == [b"%d" % number for number in range(5)]
    store.close(1)
    assert touched(disk) == []
    assert store.is_closed_cleanly
    disk.kill()
    store = open_store(disk, [A])
    assert [values(store.get(each)) for each in PARTITIONS] == [[b"0", b"1", b"2", b"3", b"4"]] * 20


def test_a_log_that_was_written_to_is_synced_once() -> None:
    disk, store = reopened()
    append(store, PARTITIONS[3], b"more", now_ms=9)
    disk.trace.clear()
    store.close(1)
    syncs = [line.split(" ", 1)[1] for line in touched(disk) if " sync" in line]
    assert sorted(syncs) == [
        "sync /a/t-3/00000000000000000004.index",
        "sync /a/t-3/00000000000000000004.log",
        "sync /a/t-3/00000000000000000004.timeindex",
        "sync_folder /a/t-3",
    ]


def test_an_index_grows_with_the_first_append_and_is_finished_at_the_stop() -> None:
    disk, store = reopened()
    append(store, PARTITIONS[0], b"late", now_ms=9)
    store.close(1)
    disk.kill()
    log = open_store(disk, [A]).get(PARTITIONS[0])
    assert log is not None
    assert log.segments.active.time_index.last_entry == (9, 5)
    log.segments.active.check_indexes()


def test_the_first_record_of_a_log_is_in_its_time_index_after_a_stop() -> None:
    disk = new_disk()
    store = open_store(disk, [A])
    store.create(PARTITIONS[0], TOPIC_ID, now_ms=0)
    store.close(1)
    disk.kill()
    store = open_store(disk, [A])
    append(store, PARTITIONS[0], b"first", now_ms=7)
    store.close(1)
    disk.kill()
    log = open_store(disk, [A]).get(PARTITIONS[0])
    assert log is not None
    assert log.segments.active.time_index.last_entry == (7, 0)
