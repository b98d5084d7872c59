"""What the tests of the log store share: a small store on a simulated disk, and how to use it."""

from collections.abc import Callable, Sequence
from pathlib import PurePath, PurePosixPath
from random import Random
from typing import Any, Final

from odradek.core.ids import TopicPartition, Uuid
from odradek.records import read_records
from odradek.records.builder import BatchBuilder
from odradek.storage.config import LogConfig
from odradek.storage.disk import Disk
from odradek.storage.log import Log
from odradek.storage.log_directory import open_directories
from odradek.storage.log_loading import IsStray, LoadingProgress
from odradek.storage.log_store import LogStore
from odradek.storage.log_upkeep import StoreConfig
from odradek.storage.log_work import Work
from odradek.storage.recovery import LogSettings
from odradek.storage.scan import iter_batches
from odradek.testing.disk import SimulatedDisk

A: Final = PurePosixPath("/a")
B: Final = PurePosixPath("/b")
T0: Final = TopicPartition("t", 0)
T1: Final = TopicPartition("t", 1)
TOPIC_ID: Final = Uuid(bytes(range(16)))
OTHER_ID: Final = Uuid(bytes(range(1, 17)))
SMALL: Final = LogConfig(segment_bytes=300, segment_index_bytes=120, index_interval_bytes=60)

SettingsFor = Callable[[str], LogSettings]


def new_disk(seed: int = 0, **options: Any) -> SimulatedDisk:
    return SimulatedDisk(Random(seed), block_bytes=64, **options)


def open_store(
    disk: Disk,
    paths: Sequence[PurePath] = (A, B),
    *,
    now_ms: int = 0,
    seed: int = 0,
    config: LogConfig = SMALL,
    settings_for: SettingsFor | None = None,
    format_new: bool = True,
    store_config: StoreConfig | None = None,
    is_stray: IsStray | None = None,
    on_progress: Callable[[LoadingProgress], None] | None = None,
    reserve_bytes: int = 0,
    monotonic_ms: Callable[[], int] | None = None,
) -> LogStore:
    random = Random(seed)
    directories = open_directories(
        disk,
        paths,
        cluster_id="cluster",
        node_id=1,
        random=random,
        format_new=format_new,
        reserve_bytes=reserve_bytes,
    )
    store = LogStore(
        disk,
        directories,
        settings_for or (lambda _topic: LogSettings(config)),
        now_ms=now_ms,
        random=random,
        config=store_config or StoreConfig(),
        monotonic_ms=monotonic_ms,
    )
    try:
        for _ in store.load_in_steps(is_stray, on_progress):
            pass
    except BaseException:
        store.abandon()
        raise
    return store


def batch(*values: bytes, timestamp: int = 0) -> bytearray:
    builder = BatchBuilder()
    for value in values:
        builder.append(timestamp, b"k", value)
    return builder.build()


def append(
    store: LogStore, partition: TopicPartition, *values: bytes, now_ms: int = 0, epoch: int = 0
) -> None:
    log = store.get(partition)
    assert log is not None
    with store.directory_of(partition).writing_guard:
        log.append_as_leader(batch(*values, timestamp=now_ms), leader_epoch=epoch, now_ms=now_ms)


def run(work: Sequence[Work], now_ms: int) -> None:
    for item in work:
        try:
            item.run()
        except OSError as error:
            item.done(error, now_ms)
        else:
            item.done(None, now_ms)


def tick(store: LogStore, now_ms: int) -> list[Work]:
    """Tick, and do all the work, until nothing is due any more; return all of it."""
    done: list[Work] = []
    while True:
        work = store.tick(now_ms)
        run(work, now_ms)
        done += work
        if not work and store.next_deadline_ms() > now_ms:
            return done


def values(log: Log | None) -> list[bytes]:
    """Return the values of all records, segment by segment."""
    assert log is not None
    found: list[bytes] = []
    for segment in log.segments:
        buffer = segment.read(0, segment.size)
        for header in iter_batches(buffer):
            found += [bytes(r.value or b"") for r in read_records(buffer, header)]
    return found
