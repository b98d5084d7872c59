"""A replica moves between log directories while it is used, and whenever the power goes."""

import errno
from collections.abc import Iterator

import pytest

from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import TopicPartition
from odradek.storage import log_move
from odradek.storage.leader_epochs import EpochEntry
from odradek.storage.log import Log
from odradek.storage.log_store import LogStore
from odradek.testing.disk import SimulatedCrash, SimulatedDisk
from tests.unit.storage.test_log_store_support import (
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

PIECE = 150  # two or three batches


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_move, "PIECE_BYTES", PIECE)
    monkeypatch.setattr(log_move, "SWAP_BYTES_MAX", PIECE)


def store_with(disk: SimulatedDisk, count: int) -> LogStore:
    store = open_store(disk)
    store.create(T0, TOPIC_ID, now_ms=0)
    for number in range(count):
        add(store, number)
    return store


def add(store: LogStore, number: int, *, epoch: int = 0) -> None:
    append(store, T0, b"%d" % number, epoch=epoch)
    log = current(store)
    log.update_high_watermark(log.log_end_offset)


def current(store: LogStore) -> Log:
    log = store.get(T0)
    assert log is not None
    return log


def start(store: LogStore, slot: int = 1) -> None:
    store.moves.start(T0, store.directories[slot], 0)


def step(store: LogStore) -> None:
    run(store.moves.tick(0), 0)


def finish(store: LogStore) -> int:
    """Return how many ticks it took."""
    for ticks in range(1000):
        if not len(store.moves):
            return ticks
        step(store)
    raise AssertionError("it never ends")


def numbers(*ends: int) -> list[bytes]:
    return [b"%d" % number for number in range(*ends)]


def test_a_replica_moves_with_all_that_comes_meanwhile() -> None:
    disk = new_disk()
    store = store_with(disk, 20)
    moved: list[tuple[TopicPartition, Log]] = []
    store.moves.on_moved = lambda partition, log: moved.append((partition, log))
    start(store)
    for number in range(20, 30):
        step(store)
        add(store, number)
        assert store.directory_of(T0).path == A
    assert finish(store) > 1
    log = current(store)
    assert moved == [(T0, log)]
    assert (log.folder, values(log)) == (B / "t-0", numbers(30))
    assert (log.log_end_offset, log.high_watermark) == (30, 30)
    assert store.get_future(T0) is None
    add(store, 30)
    store.check_invariants()
    tick(store, SMALL.file_delete_delay_ms)
    assert [name for name in disk.names(A) if name.startswith("t-")] == []


def test_each_tick_copies_one_piece_of_one_move() -> None:
    store = store_with(new_disk(), 20)
    store.create(T1, TOPIC_ID, now_ms=0, directory_id=store.directories[0].directory_id)
    for _ in range(20):
        append(store, T1, b"x")
    start(store)
    store.moves.start(T1, store.directories[1], 0)
    ends = []
    for _ in range(4):
        step(store)
        futures = [store.get_future(at) for at in (T0, T1)]
        ends.append([log.log_end_offset for log in futures if log is not None])
    (a, _), (_, b), (c, _), (_, d) = ends
    assert 0 < a < c <= 5
    assert 0 < b < d <= 5


def test_what_is_left_to_sync_in_the_swap_is_little() -> None:
    store = store_with(new_disk(), 40)
    start(store)
    work = next(filter(None, (store.moves.tick(0) for _ in range(100))))
    future = store.get_future(T0)
    assert future is not None
    assert future.log_end_offset == 40
    assert future.recovery_point < 40
    assert store.moves.tick(0) == [], "nothing before that is done"
    assert store.moves.next_deadline_ms() > 10**15
    run(work, 0)
    assert future.recovery_point == 40
    step(store)
    assert len(store.moves) == 0


def test_epochs_and_producers_move_too() -> None:
    store = store_with(new_disk(), 3)
    add(store, 3, epoch=4)
    start(store)
    finish(store)
    assert current(store).leader_epochs.entries == [EpochEntry(0, 0), EpochEntry(4, 3)]


@pytest.mark.parametrize("seed", range(5))
def test_deleted_records_do_not_come_back_though_they_are_in_a_batch_that_stays(seed: int) -> None:
    disk = new_disk(seed)
    store = open_store(disk)
    log = store.create(T0, TOPIC_ID, now_ms=0)
    with store.guard(T0):
        log.append_as_leader(batch(b"0", b"1", b"2"), leader_epoch=0, now_ms=0)
    add(store, 3)
    log.advance_log_start_offset(1)
    start(store)
    finish(store)
    assert (current(store).log_start_offset, current(store).log_end_offset) == (1, 4)
    disk.crash()
    store = open_store(disk)
    assert (current(store).log_start_offset, current(store).log_end_offset) == (1, 4)


def test_records_that_are_deleted_meanwhile_are_gone() -> None:
    store = store_with(new_disk(), 20)
    start(store)
    step(store)
    current(store).advance_log_start_offset(15)
    finish(store)
    log = current(store)
    assert (log.log_start_offset, log.log_end_offset) == (15, 20)
    assert values(log) == numbers(15, 20)


def test_records_that_are_cut_off_meanwhile_are_gone() -> None:
    store = store_with(new_disk(), 6)
    start(store)
    step(store)
    store.truncate_to(T0, 1, 0)
    for number in (101, 102, 103):
        add(store, number, epoch=1)
    finish(store)
    assert values(current(store)) == [b"0", b"101", b"102", b"103"]


@pytest.mark.parametrize("offset", [0, 50])
def test_a_log_that_starts_anew_meanwhile_does_so_in_the_other_directory(offset: int) -> None:
    store = store_with(new_disk(), 6)
    start(store)
    step(store)
    store.truncate_fully_and_start_at(T0, offset, 0)
    for number in (101, 102, 103):
        add(store, number, epoch=1)
    finish(store)
    log = current(store)
    assert (log.log_start_offset, log.log_end_offset) == (offset, offset + 3)
    assert values(log) == [b"101", b"102", b"103"]


@pytest.mark.parametrize("seed", range(5))
def test_offsets_that_compaction_emptied_are_not_given_out_again(seed: int) -> None:
    disk = new_disk(seed)
    store = store_with(disk, 4)
    log = current(store)
    log.roll(0)
    log.segments[0].truncate_to(2)  # as the cleaner leaves a log whose last records were tombstones
    start(store)
    finish(store)
    assert current(store).log_end_offset == 4
    disk.crash()
    assert current(open_store(disk)).log_end_offset == 4


def test_a_move_back_ends_the_move_and_one_elsewhere_begins_another() -> None:
    disk = new_disk()
    c = A.with_name("c")
    store = open_store(disk, (A, B, c))
    store.create(T0, TOPIC_ID, now_ms=0)
    add(store, 0)
    start(store, 1)
    start(store, 1)
    start(store, 2)
    assert store.directory_of(T0, is_future=True).path == c
    assert len(store.moves) == 1
    start(store, 0)
    assert store.get_future(T0) is None
    assert len(store.moves) == 0
    assert current(store).folder == A / "t-0"
    store.check_invariants()


def test_a_topic_that_is_deleted_ends_its_move() -> None:
    store = store_with(new_disk(), 9)
    start(store)
    step(store)
    store.delete(T0)
    assert finish(store) == 1
    assert store.get(T0) is None
    store.check_invariants()


def refusal(store: LogStore, partition: TopicPartition = T0) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        store.moves.start(partition, store.directories[1], 0)
    return caught.value.code


def test_a_replica_that_is_not_here_will_be_made_where_it_was_wanted() -> None:
    store = open_store(new_disk())
    store.create(T1, TOPIC_ID, now_ms=0, directory_id=store.directories[1].directory_id)
    assert refusal(store) == ErrorCode.REPLICA_NOT_AVAILABLE
    assert store.create(T0, TOPIC_ID, now_ms=0).folder == B / "t-0", "though A has fewer logs"


def test_offline_directories_and_long_names_are_refused() -> None:
    store = store_with(new_disk(), 1)
    long = TopicPartition("x" * 240, 0)
    store.create(long, TOPIC_ID, now_ms=0, directory_id=store.directories[0].directory_id)
    assert refusal(store, long) == ErrorCode.INVALID_TOPIC_EXCEPTION
    store.directories[1].on_io_error(OSError(errno.EIO, "broken"))
    assert refusal(store) == ErrorCode.KAFKA_STORAGE_ERROR


def test_while_any_directory_is_offline_no_move_begins() -> None:
    store = open_store(new_disk(), (A, B, A.with_name("c")))
    store.create(T0, TOPIC_ID, now_ms=0)
    store.directories[2].on_io_error(OSError(errno.EIO, "broken"))
    assert refusal(store) == ErrorCode.KAFKA_STORAGE_ERROR
    assert store.get_future(T0) is None


def test_if_the_new_directory_fails_the_replica_stays_where_it_is() -> None:
    disk = new_disk()
    store = store_with(disk, 20)
    start(store)
    step(store)
    disk.fail("write", errno.EIO, path="/b/t-0.*/*.log")
    assert finish(store) == 1
    assert current(store).folder == A / "t-0"
    add(store, 20)
    assert values(current(store)) == numbers(21)


def test_if_the_old_directory_fails_in_the_swap_the_replica_is_in_the_new_one() -> None:
    disk = new_disk()
    store = store_with(disk, 2)
    moved: list[Log] = []
    store.moves.on_moved = lambda _partition, log: moved.append(log)
    start(store)
    disk.fail("rename", errno.EIO, path="/a/t-0")
    finish(store)
    assert moved == [current(store)]
    add(store, 2)
    assert values(current(store)) == numbers(3)


def test_bad_bytes_end_a_move_and_are_reported() -> None:
    disk = new_disk()
    store = store_with(disk, 9)
    file = disk.open(A / "t-0" / f"{0:020d}.log")
    file.write(65, [b"\xff"])
    start(store)
    finish(store)
    assert current(store).folder == A / "t-0"
    assert store.get_future(T0) is None
    (problem,) = store.problems
    assert "t-0 cannot be moved" in problem


def test_a_move_goes_on_after_a_clean_stop() -> None:
    disk = new_disk()
    store = store_with(disk, 20)
    start(store)
    step(store)
    store.close(1)
    store = open_store(disk)
    store.moves.resume(T0, 0)
    future = store.get_future(T0)
    assert future is not None
    assert 0 < future.log_end_offset < 20
    finish(store)
    assert (current(store).folder, values(current(store))) == (B / "t-0", numbers(20))


def test_a_move_starts_over_after_a_crash_as_the_future_log_may_have_more() -> None:
    disk = new_disk()
    store = store_with(disk, 6)
    start(store)
    step(store)
    future = store.get_future(T0)
    assert future is not None
    future.flush()
    disk.crash()
    store = open_store(disk)
    lost = values(current(store))
    add(store, 100, epoch=1)
    store.moves.resume(T0, 0)
    finish(store)
    assert values(current(store)) == [*lost, b"100"]


# The power goes at every operation.


def story(disk: SimulatedDisk, flushed: list[int]) -> Iterator[None]:
    """Move a replica there and back while it is used; ``flushed`` says how much must be there."""
    store = store_with(disk, 8)
    current(store).flush()
    flushed[0] = 8
    start(store)
    yield
    for number in range(8, 12):
        step(store)
        add(store, number)
    finish(store)
    flushed[0] = 12  # a swap syncs
    yield
    add(store, 12)
    start(store, 0)
    step(store)
    tick(store, 60_000)
    finish(store)
    flushed[0] = 13
    add(store, 13)
    tick(store, 120_000)


def operations() -> int:
    disk = new_disk()
    for _ in story(disk, [0]):
        pass
    return disk.operations


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "seed"),
    [
        ("kill", 0),
        *(("crash", seed) for seed in range(3)),
    ],
)
def test_nothing_that_was_synced_is_lost_whenever_the_power_goes(how: str, seed: int) -> None:
    for stop_at in range(1, operations() + 1):
        disk = new_disk(seed * 10_000 + stop_at)
        disk.stop_at = stop_at
        flushed = [0]
        with pytest.raises(SimulatedCrash):
            for _ in story(disk, flushed):
                pass
        try:
            getattr(disk, how)()
            check_after(disk, flushed[0])
        except BaseException as error:
            error.add_note(f"seed {seed}, {how} at operation {stop_at}: {list(disk.trace)[-12:]}")
            raise


def check_after(disk: SimulatedDisk, flushed: int) -> None:
    store = open_store(disk, seed=1)
    store.check_invariants()
    assert [directory.failed for directory in store.directories] == [{}, {}]
    if store.get(T0) is None:
        assert flushed == 0
        return
    found = values(current(store))
    assert found == numbers(len(found))
    assert len(found) >= flushed
    append(store, T0, b"after", epoch=9)
    store.moves.resume(T0, 0)  # and whatever was left of the move is brought to an end
    finish(store)
    assert values(current(store)) == [*found, b"after"]
    store.close(1)
    disk.crash()
    assert values(current(open_store(disk, seed=2))) == [*found, b"after"]


def test_a_log_swaps_when_it_may_with_what_came_meanwhile() -> None:
    store = store_with(new_disk(), 20)
    asked: list[tuple[TopicPartition, object]] = []

    def may_swap(partition: TopicPartition, directory_id: object) -> bool:
        asked.append((partition, directory_id))
        return len(asked) > 1

    store.moves.may_swap = may_swap
    start(store)
    for _ in range(100):
        step(store)
    assert asked == [(T0, store.directories[1].directory_id)], "it is asked once"
    assert store.moves.next_deadline_ms() > 10**15, "and nobody polls"
    assert store.moves.target_of(T0) is store.directories[1]
    for number in range(20, 40):
        add(store, number)
    assert current(store).folder == A / "t-0"
    assert store.moves.go_on(T0)
    finish(store)
    assert (current(store).folder, values(current(store))) == (B / "t-0", numbers(40))
    assert not store.moves.go_on(T0)


def test_a_log_moves_where_another_one_could_not_be_made_for_want_of_space() -> None:
    disk = new_disk()
    store = open_store(disk)
    disk.fail("create", errno.ENOSPC, path="/a/t-0/*.index")
    with store.creating():
        assert store.create(T0, TOPIC_ID, now_ms=0).folder == B / "t-0"
    assert not disk.exists(A / "t-0")
    add(store, 0)
    tick(store, 1_000)  # there is space again
    start(store, 0)
    finish(store)
    assert (current(store).folder, values(current(store))) == (A / "t-0", numbers(1))


def test_a_folder_in_the_way_of_a_move_is_taken_aside() -> None:
    disk = new_disk()
    store = store_with(disk, 3)
    disk.make_folder(B / "t-0")
    disk.open(B / "t-0" / "mine", create=True).close()
    start(store)
    finish(store)
    assert (current(store).folder, values(current(store))) == (B / "t-0", numbers(3))
    (aside,) = (each for each in disk.names(B) if each.endswith("-stray"))
    assert disk.exists(B / aside / "mine")


@pytest.mark.parametrize("how", ["the directory fails", "it is deleted", "it goes back"])
def test_a_move_that_waits_ends_when_it_cannot_go_on(how: str) -> None:
    store = store_with(new_disk(), 20)
    given_up: list[TopicPartition] = []
    store.moves.may_swap = lambda _partition, _directory: False
    store.moves.on_given_up = given_up.append
    start(store)
    for _ in range(100):
        step(store)
    if how == "it is deleted":
        store.delete(T0)
    elif how == "it goes back":
        start(store, slot=0)
    else:
        store.directories[1].fail(OSError(errno.EIO, "Input/output error"))
    step(store)
    assert (given_up, len(store.moves)) == ([T0], 0)
