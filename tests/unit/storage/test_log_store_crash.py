"""Crash-point sweep: the power goes, or the process dies, at every file operation of a story.

Whatever the moment: starting again raises nothing and fails no log, each log is a prefix of what
was appended to it, all that was synced is there, and the store goes on working.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest

from odradek.core.ids import TopicPartition
from odradek.storage.log_store import LogStore
from odradek.testing.disk import SimulatedCrash, SimulatedDisk
from tests.unit.storage.test_log_store_support import (
    OTHER_ID,
    SMALL,
    T0,
    T1,
    TOPIC_ID,
    append,
    new_disk,
    open_store,
    run,
    tick,
    values,
)

CONFIG = replace(SMALL, file_delete_delay_ms=1000)
U0 = TopicPartition("u", 0)


@dataclass
class Story:
    """What happened so far: which logs may be there, with what in them."""

    # Generations of each partition, oldest first: a deletion begins a new one. After a crash
    # any from the last one that is known to be durable on may be there.
    written: dict[TopicPartition, list[list[bytes]]] = field(default_factory=dict)
    synced: dict[TopicPartition, int] = field(default_factory=dict)
    kept: dict[TopicPartition, int] = field(default_factory=dict)  # if only the process dies
    durable_generation: dict[TopicPartition, int] = field(default_factory=dict)
    is_clean: bool = False

    def create(self, store: LogStore, partition: TopicPartition, topic_id: object) -> None:
        generations = self.written.setdefault(partition, [])
        generations.append([])
        store.create(partition, topic_id, now_ms=0)  # type: ignore[arg-type]
        self.durable_generation[partition] = len(generations) - 1
        self.synced[partition] = 0

    def append(self, store: LogStore, partition: TopicPartition, count: int) -> None:
        for _ in range(count):
            generation = self.written[partition][-1]
            value = f"{len(self.written[partition])}.{len(generation)}".encode()
            generation.append(value)
            append(store, partition, value)
            self.kept[partition] = len(generation)

    def flush(self, store: LogStore, partition: TopicPartition) -> None:
        work = store.plan_flush(partition)
        assert work is not None
        run([work], 0)
        self.synced[partition] = len(self.written[partition][-1])

    def delete(self, store: LogStore, partition: TopicPartition) -> None:
        self.synced[partition] = self.kept[partition] = 0
        self.written[partition].append([])
        store.delete(partition)

    def truncate(self, store: LogStore, partition: TopicPartition, offset: int) -> None:
        """Cut the log; when that is done, what was cut off cannot come back."""
        generations = self.written[partition]
        self.synced[partition] = min(self.synced[partition], offset)
        self.kept[partition] = offset
        store.truncate_to(partition, offset, 0)
        generations.append(generations[-1][:offset])
        self.durable_generation[partition] = len(generations) - 1

    def check(self, store: LogStore) -> None:
        assert [directory.failed for directory in store.directories] == [{}, {}]
        assert all(directory.is_online for directory in store.directories)
        store.check_invariants()
        for partition, generations in self.written.items():
            log = store.get(partition)
            durable = self.durable_generation.get(partition, -1)
            if log is None:
                assert durable < 0 or len(generations) > durable + 1, "a log is gone"
                continue
            log.check_invariants()
            found = values(log)
            possible = generations[max(durable, 0) :]
            assert any(found == generation[: len(found)] for generation in possible), found
            assert len(found) >= self.synced.get(partition, 0)
            if self.is_clean:
                assert found == generations[-1]


def tell(disk: SimulatedDisk, story: Story) -> Iterator[None]:
    """Do a bit of everything; yields only to be one expression in callers."""
    store = open_store(disk, config=CONFIG)
    yield
    story.create(store, T0, TOPIC_ID)
    story.append(store, T0, 6)
    story.flush(store, T0)
    story.create(store, T1, TOPIC_ID)
    story.append(store, T1, 3)
    log = store.get(T0)
    assert log is not None
    log.update_high_watermark(6)
    log.advance_log_start_offset(1)
    tick(store, 60_000)
    yield
    story.append(store, T0, 3)
    story.delete(store, T1)
    story.create(store, T1, OTHER_ID)
    story.append(store, T1, 1)
    story.flush(store, T1)
    tick(store, 62_000)
    story.create(store, U0, TOPIC_ID)
    story.append(store, U0, 2)
    yield
    story.delete(store, U0)
    tick(store, 125_000)
    story.append(store, T0, 1)
    store.close(3)
    for partition in story.written:
        story.synced[partition] = len(story.written[partition][-1])
    story.is_clean = True
    yield
    store = open_store(disk, config=CONFIG)
    tick(store, 0)
    story.is_clean = False
    story.append(store, T0, 3)
    tick(store, 60_000)


def move(disk: SimulatedDisk, story: Story) -> Iterator[None]:
    """Move a replica from one directory to the other, and cut it."""
    store = open_store(disk, config=CONFIG)
    story.create(store, T0, TOPIC_ID)
    story.append(store, T0, 6)
    story.flush(store, T0)
    current = store.get(T0)
    assert current is not None
    target = store.directories[1].directory_id
    assert target is not None
    yield
    future = store.create_future(T0, target, 0)
    for offset in range(6):
        future.append_as_follower(bytes(current.read(offset, bytes_max=1).records), now_ms=0)
    future.flush()
    tick(store, 60_000)
    yield
    moved = store.replace_current_with_future(T0, 60_000)
    assert values(moved) == story.written[T0][-1]
    story.append(store, T0, 2)
    tick(store, 125_000)
    story.truncate(store, T0, 3)
    yield
    story.append(store, T0, 4)
    story.flush(store, T0)
    tick(store, 200_000)
    store.close(1)


STORIES = [tell, move]


def operations_of(script: object) -> int:
    disk = new_disk()
    story = Story()
    for _ in script(disk, story):  # type: ignore[operator]
        pass
    return disk.operations


@pytest.mark.parametrize("script", STORIES)
def test_the_story_without_a_crash(script: object) -> None:
    disk = new_disk()
    story = Story()
    for _ in script(disk, story):  # type: ignore[operator]
        pass
    disk.kill()
    store = open_store(disk, config=CONFIG)
    for partition, generations in story.written.items():
        log = store.get(partition)
        assert (values(log) if log else []) == generations[-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "seed"),
    [
        ("kill", 0),  # which leaves nothing to chance
        *(("crash", seed) for seed in range(4)),
    ],
)
@pytest.mark.parametrize("script", STORIES)
def test_every_crash_point(script: object, how: str, seed: int) -> None:
    for stop_at in range(1, operations_of(script) + 1):
        disk = new_disk(seed * 10_000 + stop_at)
        disk.stop_at = stop_at
        story = Story()
        with pytest.raises(SimulatedCrash):
            for _ in script(disk, story):  # type: ignore[operator]
                pass
        try:
            getattr(disk, how)()
            check_after(disk, story, how)
        except BaseException as error:
            error.add_note(f"seed {seed}, {how} at operation {stop_at}: {list(disk.trace)[-12:]}")
            raise


def check_after(disk: SimulatedDisk, story: Story, how: str) -> None:
    store = open_store(disk, config=CONFIG, seed=1)
    story.check(store)
    if how == "kill":
        for partition, count in story.kept.items():
            log = store.get(partition)
            assert len(values(log) if log else []) >= count
    for partition in (T0, T1, U0):
        log = store.get(partition)
        if log is not None:
            store.create(partition, store.topic_id(partition) or TOPIC_ID, now_ms=0)
            before = values(log)
            append(store, partition, b"after", epoch=9)
            assert values(log) == [*before, b"after"]
    tick(store, 10**7)
    assert not [name for d in store.directories for name in disk.names(d.path) if "-delete" in name]
    store.close(4)
    disk.crash()
    assert open_store(disk, config=CONFIG, seed=2).previous_broker_epoch == 4
