"""Snapshots of producer state: Kafka's bytes, what survives a restart, which files are kept."""

from collections.abc import Callable
from pathlib import PurePosixPath
from random import Random
from struct import pack
from typing import Final

import pytest
from crc32c import crc32c

from odradek.core.errors import CorruptionError
from odradek.protocol.generated.producer_snapshot import ProducerEntry, ProducerSnapshot
from odradek.protocol.versioned import decode_versioned, encode_versioned
from odradek.records.batch import CONTROL_FLAG, NO_SEQUENCE, TRANSACTIONAL_FLAG, BatchHeader
from odradek.records.control import ControlRecordType, EndTransactionMarker
from odradek.storage.producer_snapshot import SnapshotEntry, decode_snapshot, encode_snapshot
from odradek.storage.producer_state import BatchMetadata, ProducerStates
from odradek.testing.disk import SimulatedCrash, SimulatedDisk

FOLDER: Final = PurePosixPath("/log")
COMMIT: Final = EndTransactionMarker(ControlRecordType.COMMIT, 5)

# Written by Kafka 4.3.1: ProducerStateManager.writeSnapshot with these two producers.
ENTRIES: Final = [
    SnapshotEntry(0x0102030405060708, 9, 41, 100, 2, 1_700_000_000_000, 10, 90),
    SnapshotEntry(11, 12, -1, -1, 0, 123_456, 13, -1),
]
KAFKA: Final = bytes.fromhex(
    "0001"  # version
    "624169ef"  # crc
    "00000002"  # count
    "0102030405060708 0009 00000029 0000000000000064 00000002 0000018bcfe56800 0000000a"
    "000000000000005a"
    "000000000000000b 000c ffffffff ffffffffffffffff 00000000 000000000001e240 0000000d"
    "ffffffffffffffff"
)


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk(Random(0))
    disk.make_folder(FOLDER)
    disk.sync_all()
    return disk


def new_states(disk: SimulatedDisk) -> ProducerStates:
    return ProducerStates(
        disk, FOLDER, producer_id_expiration_ms=1000, transaction_timeout_ms_max=500
    )


def batch(
    offset: int, sequence: int, *, producer_id: int = 7, flags: int = 0, timestamp: int = 100
) -> BatchHeader:
    rest = (producer_id, 3, sequence, 1, 0)
    return BatchHeader(offset, 100, 0, 2, 0, flags, 0, timestamp, timestamp, *rest)


def add(states: ProducerStates, *headers: BatchHeader) -> None:
    for header in headers:
        completed = states.apply(header, 0, COMMIT if header.is_control else None)
        if completed is not None:
            states.complete(completed)
    states.check_invariants()


def snapshots_on(disk: SimulatedDisk) -> list[int]:
    return [int(name.removesuffix(".snapshot")) for name in disk.names(FOLDER)]


def write(disk: SimulatedDisk, offset: int, data: bytes) -> None:
    path = FOLDER / f"{offset:020d}.snapshot"
    disk.remove(path)
    disk.open(path, create=True).write(0, [data])


def sealed(body: bytes, version: int = 1) -> bytes:
    return pack(">hI", version, crc32c(body)) + body


@pytest.mark.seed_row("3.6")
def test_bytes_are_those_of_kafka() -> None:
    assert encode_snapshot(ENTRIES) == KAFKA
    assert decode_snapshot(KAFKA) == ENTRIES


def test_an_empty_snapshot_is_ten_bytes() -> None:
    assert encode_snapshot([]) == sealed(bytes(4))
    assert decode_snapshot(sealed(bytes(4))) == []


def test_the_layout_is_the_generated_one() -> None:
    generated = decode_versioned(ProducerSnapshot, KAFKA)
    fields = ProducerEntry.__slots__
    assert [tuple(getattr(e, f) for f in fields) for e in generated.producer_entries] == ENTRIES
    assert encode_versioned(generated, 1) == KAFKA
    assert generated.crc == crc32c(KAFKA[6:])


def test_a_snapshot_cut_anywhere_is_found_out() -> None:
    for size in range(len(KAFKA)):
        with pytest.raises(CorruptionError):
            decode_snapshot(KAFKA[:size])


def test_a_snapshot_with_any_bit_changed_is_found_out() -> None:
    for bit in range(8 * len(KAFKA)):
        damaged = bytearray(KAFKA)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptionError):
            decode_snapshot(bytes(damaged))


def test_bytes_behind_the_end_are_found_out() -> None:
    with pytest.raises(CorruptionError):
        decode_snapshot(KAFKA + b"\0")


@pytest.mark.parametrize("count", [-1, 1, 2**31 - 1, -(2**31)])
def test_a_count_is_not_believed(count: int) -> None:
    with pytest.raises(CorruptionError):
        decode_snapshot(sealed(pack(">i", count)))


@pytest.mark.parametrize("version", [0, 2, -1])
def test_other_versions_are_refused(version: int) -> None:
    with pytest.raises(CorruptionError):
        decode_snapshot(sealed(bytes(4), version))


def test_a_snapshot_is_taken_once_for_an_offset(disk: SimulatedDisk) -> None:
    states = new_states(disk)
    assert states.take_snapshot() is None
    add(states, batch(0, 0))
    assert states.take_snapshot() == FOLDER / "00000000000000000001.snapshot"
    assert states.take_snapshot() is None
    states.update_map_end_offset(8)
    assert states.take_snapshot(sync=False) == FOLDER / "00000000000000000008.snapshot"
    assert snapshots_on(disk) == [1, 8]
    assert (states.snapshots.oldest, states.snapshots.latest) == (1, 8)


def test_nothing_is_written_at_the_start_of_the_log(disk: SimulatedDisk) -> None:
    states = new_states(disk)
    states.on_log_start_offset_incremented(9)
    assert states.take_snapshot() is None
    add(states, batch(9, 0))
    assert states.take_snapshot() is not None


def test_a_deleted_snapshot_can_be_taken_again(disk: SimulatedDisk) -> None:
    states = new_states(disk)
    add(states, batch(0, 0))
    states.take_snapshot()
    states.delete_snapshot_at(1)
    states.on_log_start_offset_incremented(0)
    assert states.take_snapshot() is not None


@pytest.mark.seed_row("3.6")
def test_a_snapshot_keeps_the_last_batch_and_the_open_transaction(disk: SimulatedDisk) -> None:
    states = new_states(disk)
    add(states, batch(0, 0, flags=TRANSACTIONAL_FLAG), batch(1, 1, flags=TRANSACTIONAL_FLAG))
    states.take_snapshot()

    reloaded = new_states(disk)
    reloaded.truncate_and_reload(0, 3, 100)
    assert reloaded.map_end_offset == 2
    state = reloaded.active_producers[7]
    assert state.batches == [BatchMetadata(1, 1, 1, 1, 100)]
    assert state.current_txn_first_offset == reloaded.first_unstable_offset == 0
    add(reloaded, batch(2, 2, flags=TRANSACTIONAL_FLAG))


def test_transactions_are_in_order_after_a_restart(disk: SimulatedDisk) -> None:
    """The snapshot lists producers as they first came, not as they opened their transactions."""
    states = new_states(disk)
    add(states, batch(0, 0, producer_id=1))
    add(states, batch(1, 0, producer_id=2, flags=TRANSACTIONAL_FLAG))
    add(states, batch(2, 1, producer_id=1, flags=TRANSACTIONAL_FLAG))
    states.take_snapshot()
    reloaded = new_states(disk)
    reloaded.truncate_and_reload(0, 3, 100)
    reloaded.check_invariants()
    assert reloaded.first_undecided_offset == 1


def test_a_batch_that_wraps_around_is_known_after_a_restart(disk: SimulatedDisk) -> None:
    states = new_states(disk)
    wrapped = batch(0, 2**31 - 3)._replace(last_offset_delta=4, records_count=5)
    add(states, wrapped)
    states.take_snapshot()
    reloaded = new_states(disk)
    reloaded.truncate_and_reload(0, 5, 100)
    assert reloaded.find_duplicate(wrapped) == BatchMetadata(2**31 - 3, 1, 0, 4, 100)


@pytest.mark.seed_row("3.6")
def test_fencing_survives_a_restart(disk: SimulatedDisk) -> None:
    states = new_states(disk)
    add(states, batch(0, NO_SEQUENCE, flags=TRANSACTIONAL_FLAG | CONTROL_FLAG))
    states.take_snapshot()
    reloaded = new_states(disk)
    reloaded.truncate_and_reload(0, 1, 100)
    state = reloaded.active_producers[7]
    assert (state.producer_epoch, state.coordinator_epoch, state.last_timestamp) == (3, 5, 100)
    assert state.batches == []


def test_idle_producers_are_not_loaded(disk: SimulatedDisk) -> None:
    states = new_states(disk)
    add(states, batch(0, 0), batch(1, 0, producer_id=8, timestamp=500))
    add(states, batch(2, 0, producer_id=9, flags=TRANSACTIONAL_FLAG))
    states.take_snapshot()
    reloaded = new_states(disk)
    reloaded.truncate_and_reload(0, 3, 1100)
    assert sorted(reloaded.active_producers) == [8, 9]
    reloaded.check_invariants()


def test_truncation_goes_back_to_the_snapshot_before(disk: SimulatedDisk) -> None:
    states = new_states(disk)
    for number in range(5):
        add(states, batch(number, number))
        states.take_snapshot()
    states.truncate_and_reload(1, 3, 100)
    assert snapshots_on(disk) == [2, 3]
    assert states.map_end_offset == 3
    assert states.active_producers[7].last_sequence == 2


def test_a_state_that_is_already_there_is_kept(disk: SimulatedDisk) -> None:
    states = new_states(disk)
    add(states, batch(0, 0, flags=TRANSACTIONAL_FLAG), batch(1, 0, producer_id=8))
    add(states, batch(2, NO_SEQUENCE, flags=TRANSACTIONAL_FLAG | CONTROL_FLAG))
    states.take_snapshot()
    states.truncate_and_reload(1, 3, 100)
    assert sorted(states.active_producers) == [7, 8]
    assert states.first_unstable_offset == 0


def test_without_a_snapshot_the_log_is_read_from_its_start(disk: SimulatedDisk) -> None:
    states = new_states(disk)
    add(states, batch(5, 0))
    states.truncate_and_reload(2, 5, 100)
    assert states.is_empty
    assert states.map_end_offset == 2
    assert states.take_snapshot() is None


def test_full_truncation_removes_everything(disk: SimulatedDisk) -> None:
    states = new_states(disk)
    add(states, batch(0, 0, flags=TRANSACTIONAL_FLAG))
    states.take_snapshot()
    states.truncate_fully_and_start_at(10)
    assert snapshots_on(disk) == []
    assert states.is_empty
    assert states.first_unstable_offset is None
    assert states.map_end_offset == 10
    assert states.take_snapshot() is not None


DAMAGES: Final[list[Callable[[bytes], bytes]]] = [
    lambda data: b"",
    lambda data: data[:-1],
    lambda data: bytes(len(data)),
    lambda data: data[:20] + bytes([data[20] ^ 1]) + data[21:],
    lambda data: encode_snapshot([ENTRIES[1], ENTRIES[1]]),
    lambda data: encode_snapshot(
        [SnapshotEntry(i, 1, 0, 0, 0, 100, 0, current_txn_first_offset=1) for i in (1, 2)]
    ),
    lambda data: encode_snapshot([SnapshotEntry(1, 1, 0, 2, 0, 100, 0, -1)]),
    lambda data: encode_snapshot([SnapshotEntry(1, 1, 0, 1, 0, 100, 0, 2)]),
    lambda data: encode_snapshot([SnapshotEntry(1, 1, 0, 1, -1, 100, 0, -1)]),
    lambda data: encode_snapshot([SnapshotEntry(1, 1, -2, 1, 0, 100, 0, -1)]),
    lambda data: encode_snapshot([SnapshotEntry(-1, 1, 0, 1, 0, 100, 0, -1)]),
]


@pytest.mark.parametrize(
    "damage",
    DAMAGES,
    ids="empty cut zeros flipped twice two-open last-late open-late delta sequence id".split(),
)
def test_a_damaged_snapshot_is_deleted_and_the_one_before_is_used(
    disk: SimulatedDisk, damage: Callable[[bytes], bytes]
) -> None:
    states = new_states(disk)
    for number in range(2):
        add(states, batch(number, number))
        states.take_snapshot()
    write(disk, 2, damage(disk.read(FOLDER / "00000000000000000002.snapshot")))

    reloaded = new_states(disk)
    reloaded.truncate_and_reload(0, 2, 100)
    assert snapshots_on(disk) == [1]
    assert reloaded.map_end_offset == 1
    assert reloaded.active_producers[7].last_sequence == 0
    add(reloaded, batch(1, 1))
    assert reloaded.take_snapshot() is not None


def test_when_every_snapshot_is_damaged_none_is_left(disk: SimulatedDisk) -> None:
    write(disk, 1, b"")
    write(disk, 2, b"x")
    states = new_states(disk)
    states.truncate_and_reload(0, 2, 100)
    assert snapshots_on(disk) == []
    assert states.map_end_offset == 0


def test_a_producer_of_which_kafka_knew_nothing_is_left_out(disk: SimulatedDisk) -> None:
    """It writes one when compaction has emptied a marker."""
    write(disk, 9, encode_snapshot([SnapshotEntry(1, -1, -1, -1, 0, -1, -1, -1)]))
    states = new_states(disk)
    states.truncate_and_reload(0, 9, 100)
    assert states.is_empty
    assert states.map_end_offset == 9


def test_a_removed_snapshot_does_not_come_back_with_another_history(disk: SimulatedDisk) -> None:
    """A power loss undoes what was not synced; then the log has grown past the snapshot again."""
    states = new_states(disk)
    add(states, batch(0, 0, producer_id=8))
    states.take_snapshot()
    states.truncate_and_reload(0, 0, 100)
    add(states, batch(0, 0, producer_id=9))
    disk.crash()
    reloaded = new_states(disk)
    reloaded.truncate_and_reload(0, 1, 100)
    assert reloaded.map_end_offset == 0
    assert reloaded.is_empty


def test_a_removed_snapshot_does_not_come_back_after_full_truncation(disk: SimulatedDisk) -> None:
    states = new_states(disk)
    add(states, batch(0, 0))
    states.take_snapshot()
    states.truncate_fully_and_start_at(0)
    disk.crash()
    assert new_states(disk).snapshots.latest is None


@pytest.mark.parametrize("seed", range(20))
def test_a_marked_snapshot_does_not_come_back_after_truncation(seed: int) -> None:
    disk = SimulatedDisk(Random(seed))
    disk.make_folder(FOLDER)
    disk.sync_all()
    states = new_states(disk)
    add(states, batch(0, 0))
    states.take_snapshot()
    states.snapshots.mark_for_deletion(1)
    states.truncate_and_reload(0, 0, 100)
    disk.crash()
    assert new_states(disk).snapshots.latest is None


def test_snapshots_before_an_offset_are_deleted(disk: SimulatedDisk) -> None:
    states = new_states(disk)
    for number in range(3):
        add(states, batch(number, number))
        states.take_snapshot()
    states.snapshots.delete_before(3)
    assert snapshots_on(disk) == [3]
    assert states.snapshots.oldest == 3
    states.delete_snapshot_at(3)
    states.delete_snapshot_at(3)
    assert snapshots_on(disk) == []


def test_a_snapshot_marked_for_deletion_is_out_of_use(disk: SimulatedDisk) -> None:
    states = new_states(disk)
    add(states, batch(0, 0))
    path = states.take_snapshot()
    assert path is not None
    assert states.snapshots.mark_for_deletion(5) is None
    renamed = states.snapshots.mark_for_deletion(1)
    assert renamed == path.with_name(path.name + ".deleted")
    assert disk.names(FOLDER) == [renamed.name]
    assert states.snapshots.latest is None
    assert new_states(disk).snapshots.latest is None


def test_marking_a_file_that_is_gone_is_fine(disk: SimulatedDisk) -> None:
    states = new_states(disk)
    add(states, batch(0, 0))
    path = states.take_snapshot()
    assert path is not None
    disk.remove(path)
    assert states.snapshots.mark_for_deletion(1) is None


@pytest.mark.parametrize(
    ("bases", "kept"),
    [
        ([], [42]),
        ([5, 2], [2, 5, 42]),
        ([0, 42], [42]),
        ([50], []),
        ([1, 5, 41], [1, 5, 42]),
    ],
)
def test_strays_are_removed_but_not_that_of_a_clean_shutdown(
    disk: SimulatedDisk, bases: list[int], kept: list[int]
) -> None:
    states = new_states(disk)
    for offset in (1, 2, 5, 42):
        write(disk, offset, KAFKA)
    disk.open(FOLDER / "00000000000000000009.snapshot.tmp", create=True)
    states.remove_stray_snapshots(bases)
    assert snapshots_on(disk) == kept
    assert list(states.snapshots.offsets) == kept


def test_files_of_others_are_left_alone(disk: SimulatedDisk) -> None:
    for name in ("00000000000000000000.log", "x.snapshot", "00000000000000000003.snapshot.deleted"):
        disk.open(FOLDER / name, create=True)
    states = new_states(disk)
    states.remove_stray_snapshots([])
    states.truncate_fully_and_start_at(0)
    assert len(disk.names(FOLDER)) == 3


def test_snapshots_move_with_their_log(disk: SimulatedDisk) -> None:
    states = new_states(disk)
    add(states, batch(0, 0))
    states.take_snapshot()
    disk.rename(FOLDER, PurePosixPath("/log-delete"))
    states.move_to(PurePosixPath("/log-delete"))
    states.truncate_fully_and_start_at(0)
    assert disk.names(PurePosixPath("/log-delete")) == []


def test_a_write_that_fails_leaves_no_snapshot_in_use(disk: SimulatedDisk) -> None:
    states = new_states(disk)
    add(states, batch(0, 0))
    disk.capacity_bytes = 20
    with pytest.raises(OSError, match="No space"):
        states.take_snapshot(sync=False)
    assert states.snapshots.latest is None
    disk.capacity_bytes = None
    assert states.take_snapshot() is not None


class Story:
    """A log that is written, truncated and written differently, with snapshots on the way."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        self.log: list[BatchHeader] = []

    def tell(self) -> None:
        states = new_states(self.disk)
        self.append(states, producer_id=8, until=2)
        states.take_snapshot(sync=False)
        self.append(states, producer_id=8, until=4)
        states.take_snapshot()
        del self.log[1:]
        states.truncate_and_reload(0, 1, 100)
        self.append(states, producer_id=9, until=5)
        states.take_snapshot()
        states.snapshots.mark_for_deletion(5)
        self.log.clear()
        states.truncate_fully_and_start_at(0)
        self.append(states, producer_id=10, until=6)
        states.take_snapshot(sync=False)

    def append(self, states: ProducerStates, producer_id: int, until: int) -> None:
        for offset in range(len(self.log), until):
            header = batch(offset, offset, producer_id=producer_id, flags=TRANSACTIONAL_FLAG)
            self.log.append(header)
        add(states, *self.log[states.map_end_offset :])


def test_after_a_crash_at_any_operation_the_state_is_that_of_the_log(disk: SimulatedDisk) -> None:
    empty = disk.snapshot()
    Story(disk).tell()
    operations = disk.operations - empty.operations
    assert operations > 15
    for stop in range(1, operations + 1):
        disk.restore(empty)
        disk.stop_at = empty.operations + stop
        story = Story(disk)
        with pytest.raises(SimulatedCrash):
            story.tell()
        disk.stop_at = None
        disk.crash()

        states = new_states(disk)
        states.truncate_and_reload(0, len(story.log), 100)
        add(states, *story.log[states.map_end_offset :])
        open_at: dict[int, int] = {}
        for header in story.log:
            open_at.setdefault(header.producer_id, header.base_offset)
        found = {i: s.current_txn_first_offset for i, s in states.active_producers.items()}
        assert found == open_at
