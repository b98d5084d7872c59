"""The simulated disk: what may happen when the machine, or the disk, lets a program down.

What chance decides is tried with many seeds: a claim of "always" holds for each of them, a claim
of "may" for at least one.
"""

import errno
from collections.abc import Callable
from pathlib import Path, PurePath, PurePosixPath
from random import Random

import pytest

from odradek.storage.disk import Disk, OsDisk, write_atomically
from odradek.testing.disk import OPERATIONS, PAGE_BYTES, SECTOR_BYTES, SimulatedCrash, SimulatedDisk
from odradek.testing.disk_faults import Kind
from odradek.testing.simulation import World

SEEDS = range(60)
DATA = PurePosixPath("/data")
F = DATA / "f"


def simulated(
    seed: int, *, block_bytes: int = SECTOR_BYTES, write_back: float = 0.25
) -> SimulatedDisk:
    disk = SimulatedDisk(Random(seed), block_bytes=block_bytes, write_back=write_back)
    disk.make_folder(DATA)
    disk.sync_all()
    return disk


def put(disk: Disk, path: PurePath, data: bytes, *, sync: bool = False) -> None:
    file = disk.open(path, create=True)
    file.write(0, [data])
    if sync:
        file.sync()
    file.close()


def stored(disk: SimulatedDisk, data: bytes, path: PurePath = F) -> None:
    """Have a file that is durable with its name."""
    put(disk, path, data)
    disk.sync_all()


def content(disk: Disk, folder: PurePath) -> dict[str, bytes]:
    return {name: disk.read(folder / name) for name in disk.names(folder)}


def outcomes(scene: Callable[[SimulatedDisk], object], **settings: int) -> list[dict[str, bytes]]:
    """Return what is in the folder after a crash at the end of a scene, for each seed."""
    found = []
    for seed in SEEDS:
        disk = simulated(seed, **settings)
        scene(disk)
        disk.crash()
        found.append(content(disk, DATA))
    return found


# Without a crash. That it then is like the real one, test_any_disk shows.


def test_a_lock_holds_until_released() -> None:
    disk = simulated(0)
    lock = disk.lock(DATA / ".lock")
    with pytest.raises(BlockingIOError):
        disk.lock(DATA / ".lock")
    lock.release()
    disk.lock(DATA / ".lock")


def test_files_and_mappings_of_another_name_are_refused() -> None:
    disk = simulated(0)
    file = disk.open(F, create=True)
    file.write(0, [b"abc"])
    mapping = file.map(writable=True)
    disk.rename(F, DATA / "g")
    for use in (file.sync, lambda: file.read(0, 1), lambda: mapping.buffer, mapping.sync):
        with pytest.raises(FileNotFoundError):
            use()
    put(disk, F, b"another")
    with pytest.raises(FileNotFoundError, match="another file"):
        file.read(0, 1)
    file.path = DATA / "g"
    assert file.read(0, 3) == b"abc"


def test_a_mapping_of_another_size_is_refused() -> None:
    file = simulated(0).open(F, create=True)
    file.truncate(8)
    mapping = file.map(writable=True)
    file.truncate(9)
    with pytest.raises(ValueError, match="anew"):
        _ = mapping.buffer


def test_an_empty_write_past_the_end_writes_nothing() -> None:
    disk = simulated(0)
    file = disk.open(F, create=True)
    file.write(5, [b""])
    assert file.size == disk.size(F) == 0


def test_modified_is_the_time_of_the_last_change_of_content() -> None:
    disk = SimulatedDisk(Random(0), now_ms=5)
    file = disk.open(PurePath("/f"), create=True)
    assert disk.modified_ms(PurePath("/f")) == 5
    disk.now_ms = 6
    file.write(0, [b"abc"])
    disk.now_ms = 7
    file.sync()
    disk.rename(PurePath("/f"), PurePath("/g"))
    assert disk.modified_ms(PurePath("/g")) == 6
    file.path = PurePath("/g")
    file.truncate(1)
    assert disk.modified_ms(PurePath("/g")) == 7


def test_with_a_clock_the_disk_goes_by_it() -> None:
    with World(1) as world:
        node = world.add_node("a")
        disk = SimulatedDisk(Random(0), clock=node.clock)
        file = disk.open(PurePath("/f"), create=True)
        world.run_for(10)
        file.write(0, [b"abc"])
        assert disk.modified_ms(PurePath("/f")) == node.clock.now_ms()


# Power loss: content.


@pytest.mark.parametrize("block_bytes", [SECTOR_BYTES, PAGE_BYTES])
@pytest.mark.parametrize("by_name", [False, True])
def test_what_was_synced_survives_always(block_bytes: int, by_name: bool) -> None:
    data = bytes(range(256)) * 40

    def scene(disk: SimulatedDisk) -> None:
        file = disk.open(F, create=True)
        file.write(0, [data[:5000]])
        file.write(5000, [data[5000:]])
        disk.sync_file(F) if by_name else file.sync()
        disk.sync_folder(DATA)

    assert outcomes(scene, block_bytes=block_bytes) == [{"f": data}] * len(SEEDS)


def test_what_was_synced_through_a_mapping_survives_always() -> None:
    def scene(disk: SimulatedDisk) -> None:
        stored(disk, bytes(2000))
        mapping = disk.open(F).map(writable=True)
        mapping.buffer[100:103] = b"abc"
        mapping.sync()

    assert all(found["f"][100:103] == b"abc" for found in outcomes(scene))


def test_an_overwrite_that_was_not_synced_leaves_each_block_old_or_new() -> None:
    def scene(disk: SimulatedDisk) -> None:
        stored(disk, b"o" * 3 * SECTOR_BYTES)
        put(disk, F, b"n" * 3 * SECTOR_BYTES)

    def shape(data: bytes) -> str:
        blocks = [data[i : i + SECTOR_BYTES] for i in range(0, len(data), SECTOR_BYTES)]
        assert all(block == block[:1] * SECTOR_BYTES for block in blocks)
        return "".join(chr(block[0]) for block in blocks)

    shapes = {shape(found["f"]) for found in outcomes(scene)}
    assert shapes == {"ooo", "oon", "ono", "onn", "noo", "non", "nno", "nnn"}


def test_an_append_that_was_not_synced_leaves_any_size_and_data_or_zeros() -> None:
    old, new = b"o" * 700, b"n" * 1500

    def scene(disk: SimulatedDisk) -> None:
        stored(disk, old)
        disk.open(F).write(len(old), [new])

    results = [found["f"] for found in outcomes(scene)]
    assert all(result.startswith(old) and len(result) <= 2200 for result in results)
    tails = [result[700:] for result in results]
    assert all(not tail.strip(b"n\0") for tail in tails)
    assert b"" in tails
    assert new in tails
    assert bytes(1500) in tails
    assert any(b"\0n" in tail for tail in tails)
    assert len({len(tail) for tail in tails}) > 10
    in_one_block = [found["f"][700:] for found in outcomes(scene, block_bytes=PAGE_BYTES)]
    assert any(0 < len(tail) < 1500 and tail == new[: len(tail)] for tail in in_one_block)


def test_a_truncate_that_was_not_synced_may_be_undone() -> None:
    def scene(disk: SimulatedDisk) -> None:
        stored(disk, b"o" * 1000)
        disk.open(F).truncate(10)

    sizes = {len(found["f"]) for found in outcomes(scene)}
    assert {10, 1000} < sizes
    assert min(sizes) == 10
    assert max(sizes) == 1000


def test_what_was_cut_off_again_may_be_there_and_what_came_after_may_not() -> None:
    """The system may write back at any moment, not only at the last."""

    def scene(disk: SimulatedDisk) -> None:
        stored(disk, b"")
        file = disk.open(F)
        file.write(0, [b"a" * 600])
        file.truncate(0)
        file.write(0, [b"b" * 600])

    results = {found["f"] for found in outcomes(scene, write_back=1)}
    assert any(b"a" in result for result in results)
    assert b"b" * 600 in results
    assert b"" in results


def test_a_write_through_a_mapping_that_was_not_synced_may_be_lost() -> None:
    def scene(disk: SimulatedDisk) -> None:
        stored(disk, b"old")
        disk.open(F).map(writable=True).buffer[0:3] = b"new"

    assert {found["f"] for found in outcomes(scene)} == {b"old", b"new"}


def test_small_blocks_tear_small_files() -> None:
    def scene(disk: SimulatedDisk) -> None:
        stored(disk, b"oooooooo")
        put(disk, F, b"nnnnnnnn")

    assert len({found["f"] for found in outcomes(scene, block_bytes=1)}) > 10


# Power loss: names.


def test_a_name_that_was_not_synced_may_be_lost_though_its_bytes_were() -> None:
    results = outcomes(lambda disk: put(disk, F, b"abc", sync=True))
    assert {tuple(found.items()) for found in results} == {(), (("f", b"abc"),)}


def test_a_name_may_survive_without_the_bytes() -> None:
    results = outcomes(lambda disk: put(disk, F, b"abc"))
    assert {} in results
    assert {"f": b""} in results
    assert {"f": b"abc"} in results


def test_names_survive_in_the_order_in_which_they_were_changed() -> None:
    def scene(disk: SimulatedDisk) -> None:
        put(disk, DATA / "a", b"")
        put(disk, DATA / "b", b"")
        disk.rename(DATA / "a", DATA / "c")
        disk.remove(DATA / "b")
        put(disk, DATA / "d", b"")

    names = {"".join(found) for found in outcomes(scene)}
    assert names == {"", "a", "ab", "bc", "c", "cd"}


def test_a_removed_file_may_come_back_with_its_content() -> None:
    def scene(disk: SimulatedDisk) -> None:
        stored(disk, b"abc")
        disk.remove(F)

    assert {tuple(found.items()) for found in outcomes(scene)} == {(), (("f", b"abc"),)}


def test_a_removal_is_final_once_the_folder_was_synced() -> None:
    def scene(disk: SimulatedDisk) -> None:
        stored(disk, b"abc")
        disk.remove(F)
        disk.sync_folder(DATA)

    assert outcomes(scene) == [{}] * len(SEEDS)


def test_a_synced_folder_is_as_it_was_last() -> None:
    def scene(disk: SimulatedDisk) -> None:
        put(disk, DATA / "a", b"")
        disk.remove(DATA / "a")
        put(disk, DATA / "b", b"")
        disk.rename(DATA / "b", DATA / "c")
        disk.sync_folder(DATA)

    assert outcomes(scene) == [{"c": b""}] * len(SEEDS)


def test_the_sync_of_one_folder_leaves_the_order_in_another() -> None:
    kept = set()
    for seed in SEEDS:
        disk = simulated(seed)
        disk.make_folder(DATA / "a")
        disk.make_folder(DATA / "b")
        disk.sync_folder(DATA)
        for name in "xyz":
            put(disk, DATA / "a" / name, b"")
        disk.sync_folder(DATA / "b")
        disk.crash()
        kept.add("".join(disk.names(DATA / "a")))
    assert kept == {"", "x", "xy", "xyz"}


def test_folders_are_synced_each_for_itself() -> None:
    kept = set()
    for seed in SEEDS:
        disk = simulated(seed)
        for name in "ab":
            disk.make_folder(DATA / name)
        disk.sync_folder(DATA)
        for name in "ab":
            put(disk, DATA / name / "f", b"")
        disk.sync_folder(DATA / "a")
        disk.crash()
        kept.add((disk.exists(DATA / "a" / "f"), disk.exists(DATA / "b" / "f")))
    assert kept == {(True, True), (True, False)}


def test_a_folder_whose_name_was_not_synced_takes_its_synced_files_with_it() -> None:
    kept = set()
    for seed in SEEDS:
        disk = simulated(seed)
        disk.make_folder(DATA / "a")
        put(disk, DATA / "a" / "f", b"abc", sync=True)
        disk.sync_folder(DATA / "a")
        disk.crash()
        kept.add((disk.exists(DATA / "a"), disk.exists(DATA / "a" / "f")))
    assert kept == {(True, True), (False, False)}


def test_a_file_that_moves_to_another_folder_is_always_in_exactly_one() -> None:
    places = set()
    for seed in range(300):
        disk = simulated(seed)
        disk.make_folder(DATA / "a")
        disk.make_folder(DATA / "b")
        stored(disk, b"abc", DATA / "a" / "f")
        put(disk, DATA / "b" / "g", b"")
        disk.rename(DATA / "a" / "f", DATA / "b" / "f")
        if seed % 2:
            disk.sync_folder(DATA / "a")  # makes the rename durable, and in b what was before it
        put(disk, DATA / "a" / "h", b"")
        disk.crash()
        places.add((seed % 2, "".join(disk.names(DATA / "a")), "".join(disk.names(DATA / "b"))))
    assert places == {
        (0, "f", ""),
        (0, "f", "g"),
        (0, "", "fg"),
        (0, "h", "fg"),  # never with f, whose move came before
        (1, "", "fg"),
        (1, "h", "fg"),
    }


def test_a_folder_may_be_removed_in_part_and_in_any_order() -> None:
    left = set()
    for seed in SEEDS:
        disk = simulated(seed)
        disk.make_folder(DATA / "a")
        for name in "xyz":
            stored(disk, b"", DATA / "a" / name)
        disk.stop_at = disk.operations + 3
        with pytest.raises(SimulatedCrash):
            disk.remove_folder(DATA / "a")
        disk.kill()
        left.add("".join(disk.names(DATA / "a")))
    assert left == {"x", "y", "z"}


# The end of the process, and of the machine at an operation.


def test_a_killed_process_leaves_all_it_wrote() -> None:
    for seed in SEEDS:
        disk = simulated(seed)
        put(disk, F, b"abc")
        disk.open(F).map(writable=True).buffer[1:2] = b"X"
        disk.rename(F, DATA / "g")
        disk.kill()
        assert content(disk, DATA) == {"g": b"aXc"}


def test_what_a_killed_process_left_is_no_more_durable_than_before() -> None:
    def scene(disk: SimulatedDisk) -> None:
        put(disk, F, b"abc")
        disk.kill()

    assert {} in outcomes(scene)
    assert {"f": b""} in outcomes(scene)


@pytest.mark.parametrize("end", [SimulatedDisk.crash, SimulatedDisk.kill])
def test_files_mappings_and_locks_of_before_are_dead(end: Callable[[SimulatedDisk], None]) -> None:
    disk = simulated(0)
    stored(disk, b"abc")
    lock = disk.lock(DATA / ".lock")
    file = disk.open(F)
    mapping = file.map(writable=True)
    view = mapping.buffer
    disk.sync_all()
    end(disk)
    for use in (
        lambda: file.read(0, 1),
        lambda: file.write(0, [b"X"]),
        lambda: file.truncate(1),
        file.sync,
        lambda: file.map(writable=False),
        lambda: mapping.buffer,
        mapping.sync,
    ):
        with pytest.raises(SimulatedCrash):
            use()
    view[0:3] = b"XYZ"
    assert disk.read(F) == b"abc"
    file.close()
    mapping.close()
    held = disk.lock(DATA / ".lock")
    lock.release()
    with pytest.raises(BlockingIOError):
        disk.lock(DATA / ".lock")
    held.release()


def test_after_the_stop_nothing_works_until_the_machine_is_on_again() -> None:
    disk = simulated(0)
    stored(disk, b"abc")
    file = disk.open(F)
    disk.stop_at = disk.operations + 1
    with pytest.raises(SimulatedCrash):
        disk.remove(F)
    for use in (
        lambda: disk.read(F),
        lambda: disk.exists(F),
        lambda: disk.names(DATA),
        lambda: disk.open(F),
        lambda: disk.make_folder(DATA),
        lambda: disk.lock(DATA / ".lock"),
        lambda: file.read(0, 1),
        lambda: file.write(0, [b"X"]),
    ):
        with pytest.raises(SimulatedCrash):
            use()
    file.close()
    disk.crash()
    assert content(disk, DATA) == {"f": b"abc"}
    assert disk.stop_at is None


def script(disk: SimulatedDisk) -> None:
    """Do each kind of operation; looking, and removing what is not there, count for nothing."""
    disk.make_folder(DATA / "a" / "b")  # 1 2
    file = disk.open(DATA / "a" / "f", create=True)  # 3
    file.write(0, [b"abc"])  # 4
    file.truncate(2)  # 5
    file.sync()  # 6
    file.map(writable=True).sync()  # 7
    disk.sync_folder(DATA / "a")  # 8
    disk.rename(DATA / "a" / "f", DATA / "a" / "g")  # 9
    disk.lock(DATA / ".lock")  # 10
    disk.open(DATA / "a" / "g", create=True).read(0, 1)
    disk.names(DATA)
    disk.remove(DATA / "none")
    disk.make_folder(DATA / "a")
    disk.remove_folder(DATA / "a")  # 11 to 13
    disk.remove(DATA / ".lock")  # 14


def test_every_operation_can_be_the_last() -> None:
    whole = simulated(0)
    start = whole.operations
    script(whole)
    assert whole.operations - start == 14
    kinds = [line.split()[1] for line in whole.trace][start:]
    assert set(kinds) == set(OPERATIONS)
    for count in range(1, 15):
        disk = simulated(0)
        disk.stop_at = start + count
        with pytest.raises(SimulatedCrash, match=kinds[count - 1]):
            script(disk)
        assert disk.operations == start + count
    disk = simulated(0)
    disk.stop_at = start + 15
    script(disk)


def test_no_handler_of_exceptions_survives_the_stop() -> None:
    assert not issubclass(SimulatedCrash, Exception)


def test_the_last_write_may_be_torn_and_other_operations_do_not_happen() -> None:
    written, others = set(), set()
    for seed in SEEDS:
        disk = simulated(seed)
        stored(disk, b"old")
        file = disk.open(F)
        disk.stop_at = disk.operations + 1
        with pytest.raises(SimulatedCrash):
            file.write(0, [b"ne", b"wer"])
        disk.kill()
        written.add(disk.read(F))
        disk.stop_at = disk.operations + 1
        with pytest.raises(SimulatedCrash):
            disk.rename(F, DATA / "g")
        disk.kill()
        others.update(disk.names(DATA))
    assert written == {b"old", b"nld", b"ned", b"new", b"newe", b"newer"}
    assert others == {"f"}


@pytest.mark.parametrize("end", [SimulatedDisk.crash, SimulatedDisk.kill])
def test_write_atomically_leaves_the_old_or_the_new_content_at_every_stop(
    end: Callable[[SimulatedDisk], None],
) -> None:
    old, new = b"o" * 1500, b"n" * 2500
    seen = set()
    for seed in SEEDS:
        for count in range(1, 7):
            disk = simulated(seed)
            write_atomically(disk, F, old)
            disk.stop_at = disk.operations + count
            finished = False
            try:
                write_atomically(disk, F, new)
                finished = True
            except SimulatedCrash:
                pass
            end(disk)
            assert disk.read(F) in ([new] if finished else [old, new]), f"seed {seed} at {count}"
            seen.add((finished, disk.read(F)))
            write_atomically(disk, F, b"next")  # whatever was left over is not in the way
            assert disk.read(F) == b"next"
    assert {content for finished, content in seen if not finished} == {old, new}
    assert {finished for finished, _ in seen} == {False, True}


@pytest.mark.parametrize("omitted", ["sync", "sync_folder"])
def test_an_atomic_write_without_one_of_its_syncs_is_found_out(omitted: str) -> None:
    def scene(disk: SimulatedDisk) -> None:
        stored(disk, b"old")
        put(disk, DATA / "f.tmp", b"new", sync=omitted != "sync")
        disk.rename(DATA / "f.tmp", F)
        if omitted != "sync_folder":
            disk.sync_folder(DATA)

    assert any(found["f"] != b"new" for found in outcomes(scene))


# Faults.


def strike(disk: SimulatedDisk, kind: Kind) -> None:
    file = disk.open(F)
    attempts: dict[Kind, Callable[[], object]] = {
        "create": lambda: disk.open(DATA / "g", create=True),
        "open": lambda: disk.open(F),
        "read": lambda: file.read(0, 1),
        "map": lambda: file.map(writable=True),
        "write": lambda: file.write(0, [b"X"]),
        "truncate": lambda: file.truncate(1),
        "sync": lambda: file.map(writable=True).sync(),
        "rename": lambda: disk.rename(F, DATA / "g"),
        "remove": lambda: disk.remove(F),
        "make_folder": lambda: disk.make_folder(DATA / "b"),
        "remove_folder": lambda: disk.remove_folder(DATA / "a"),
        "sync_folder": lambda: disk.sync_folder(DATA),
    }
    attempts[kind]()


@pytest.mark.parametrize("kind", [*OPERATIONS, "open", "read", "map"])
def test_every_operation_can_fail(kind: Kind) -> None:
    disk = simulated(0)
    stored(disk, b"abc")
    disk.make_folder(DATA / "a")
    disk.fail(kind, errno.EIO, after=1 if kind == "open" else 0)
    with pytest.raises(OSError) as caught:
        strike(disk, kind)
    assert caught.value.errno == errno.EIO
    assert disk.names(DATA) == ["a", "f"]
    assert disk.size(F) == 3
    strike(disk, kind)


def test_a_fault_chooses_its_files_and_its_time() -> None:
    disk = simulated(0)
    disk.fail("write", errno.EIO, path="*.index", after=1, times=2)
    log, index = (disk.open(DATA / name, create=True) for name in ("0.log", "0.index"))
    went_well = []
    for _ in range(5):
        log.write(0, [b"x"])
        try:
            index.write(0, [b"x"])
            went_well.append(True)
        except OSError:
            went_well.append(False)
    assert went_well == [True, False, False, True, True]


def test_a_fault_can_stay_and_be_lifted() -> None:
    disk = simulated(0)
    stored(disk, b"abc")
    disk.fail("*", errno.EROFS, times=None)
    for kind in ("read", "write", "sync"):
        with pytest.raises(OSError, match="Read-only"):
            strike(disk, kind)  # opening it fails already
    disk.faults.clear()
    strike(disk, "write")


def test_a_write_that_fails_may_get_part_of_the_way() -> None:
    contents = set()
    for seed in SEEDS:
        disk = simulated(seed)
        file = disk.open(F, create=True)
        disk.fail("write", errno.EIO)
        with pytest.raises(OSError):
            file.write(0, [b"abc"])
        assert file.size == 0
        contents.add(disk.read(F))
    assert contents == {b"", b"a", b"ab", b"abc"}


def test_a_sync_that_failed_lost_the_data_though_the_next_succeeds() -> None:
    for seed in SEEDS:
        disk = simulated(seed, write_back=0)
        stored(disk, b"o" * 2 * SECTOR_BYTES)
        file = disk.open(F)
        file.write(0, [b"n" * 4 * SECTOR_BYTES])
        disk.fail("sync", errno.EIO)
        with pytest.raises(OSError):
            file.sync()
        file.write(SECTOR_BYTES, [b"again"])  # this block is dirty anew, and written whole
        file.sync()
        assert disk.read(F)[:1] == b"n"  # as long as the machine runs
        disk.crash()
        assert disk.read(F) == b"".join(
            [
                b"o" * SECTOR_BYTES,
                b"again".ljust(SECTOR_BYTES, b"n"),
                bytes(2 * SECTOR_BYTES),
            ]
        )


# Through a mapping the same bytes again are not seen as a change; on a real machine they are.
@pytest.mark.parametrize(
    ("mapped", "contents"),
    [(False, [b"new--"]), (False, [b"newer"]), (True, [b"newer"]), (True, [b"newer", b"new--"])],
)
def test_data_that_a_failed_sync_lost_can_be_written_again(
    mapped: bool, contents: list[bytes]
) -> None:
    disk = simulated(0, write_back=0)
    stored(disk, b"-----")
    file = disk.open(F)
    mapping = file.map(writable=True)
    file.write(0, [b"new"])
    disk.fail("sync", errno.EIO)
    with pytest.raises(OSError):
        mapping.sync()
    for data in contents:
        if mapped:
            mapping.buffer[: len(data)] = data
        else:
            file.write(0, [data])
        file.sync()
    expected = disk.read(F)
    disk.crash()
    assert disk.read(F) == expected


def test_a_full_disk_takes_what_fits_and_more_after_a_removal() -> None:
    disk = simulated(0)
    disk.capacity_bytes = 10
    put(disk, DATA / "other", b"123456")
    file = disk.open(F, create=True)
    with pytest.raises(OSError) as caught:
        file.write(0, [b"abc", b"def"])
    assert caught.value.errno == errno.ENOSPC
    assert disk.read(F) == b"abcd"
    assert disk.used_bytes() == 10
    assert file.size == 0
    file.write(0, [b"ABCD"])  # needs no more space
    disk.remove(DATA / "other")
    file.write(4, [b"efghij"])
    assert disk.read(F) == b"ABCDefghij"
    file.truncate(1)
    assert disk.used_bytes() == 1


def test_what_a_truncate_adds_takes_no_space_until_it_is_written() -> None:
    disk = simulated(0)
    disk.capacity_bytes = 10
    file = disk.open(F, create=True)
    file.truncate(1000)
    assert disk.used_bytes() == 0
    file.write(0, [b"0123456789"])
    assert disk.used_bytes() == 10
    with pytest.raises(OSError) as caught:
        file.write(10, [b"x"])
    assert caught.value.errno == errno.ENOSPC
    assert disk.size(F) == 1000


def test_a_flipped_bit_is_on_the_platter_too() -> None:
    for seed in SEEDS:
        disk = simulated(seed)
        stored(disk, b"abc")
        disk.flip_bit(F, 1)
        damaged = disk.read(F)
        assert (damaged[0], damaged[2]) == (ord("a"), ord("c"))
        assert (damaged[1] ^ ord("b")).bit_count() == 1
        disk.crash()
        assert disk.read(F) == damaged


# Looking at it.


def test_the_same_seed_gives_the_same_outcome() -> None:
    def story(seed: int) -> object:
        disk = simulated(seed)
        for name in "abc":
            put(disk, DATA / name, name.encode() * 3000)
            disk.open(DATA / name).truncate(2000)
        disk.crash()
        return content(disk, DATA), list(disk.trace)

    assert [story(seed) for seed in SEEDS] == [story(seed) for seed in SEEDS]


def test_one_moment_can_have_several_outcomes() -> None:
    disk = simulated(0)
    disk.now_ms = 3
    file = disk.open(F, create=True)
    disk.stop_at = disk.operations + 1
    with pytest.raises(SimulatedCrash):
        file.write(0, [b"x" * 2000])
    moment = disk.snapshot()
    found = set()
    for _ in range(30):
        disk.restore(moment)
        with pytest.raises(SimulatedCrash):
            disk.names(DATA)  # still off
        disk.crash()
        found.add(tuple(content(disk, DATA).items()))
        put(disk, F, b"later")
    assert len(found) > 3
    disk.restore(moment)
    disk.kill()
    assert disk.modified_ms(F) == 3


def test_old_handles_do_not_reach_a_restored_disk() -> None:
    disk = simulated(0)
    file = disk.open(F, create=True)
    moment = disk.snapshot()
    file.write(0, [b"after that"])
    disk.restore(moment)
    with pytest.raises(SimulatedCrash):
        file.write(0, [b"x"])
    assert disk.read(F) == b""


def test_it_can_be_copied_to_the_real_disk_and_back(tmp_path: Path) -> None:
    disk = simulated(0)
    disk.now_ms = 1_700_000_000_123
    disk.make_folder(DATA / "a" / "empty")
    put(disk, DATA / "a" / "f", b"abc")
    put(disk, DATA / "g", b"")
    disk.export(tmp_path / "out", DATA)
    real = OsDisk()
    assert real.read(tmp_path / "out" / "a" / "f") == b"abc"
    assert real.modified_ms(tmp_path / "out" / "a" / "f") == disk.now_ms

    copy = SimulatedDisk(Random(1))
    copy.load(tmp_path / "out", PurePath("/copy"))
    copy.crash()
    assert copy.names(PurePath("/copy")) == ["a", "g"]
    assert copy.is_folder(PurePath("/copy/a/empty"))
    assert copy.read(PurePath("/copy/a/f")) == b"abc"
    assert copy.modified_ms(PurePath("/copy/g")) == disk.now_ms


def test_the_trace_tells_what_happened() -> None:
    disk = simulated(0)
    start = disk.operations
    put(disk, F, b"abc")
    disk.rename(F, DATA / "g")
    disk.crash()
    assert list(disk.trace)[start:] == [
        "2 create /data/f",
        "3 write /data/f 0+3",
        "4 rename /data/f to /data/g",
        "crash",
    ]
