"""Appending: offsets, epochs, times, refusals with Kafka's codes, and nothing half done."""

import errno
from collections.abc import Callable

import pytest

from odradek.core.errors import ApiError, CorruptionError, ErrorCode
from odradek.records import CompressionType, TimestampType, parse_header, read_all, verify_crc
from odradek.records.batch import seal
from odradek.records.legacy import build_message_set
from odradek.records.record import Record
from odradek.storage.config import CleanupPolicy
from odradek.storage.log import Log
from odradek.storage.producer_state import AppendOrigin
from odradek.testing.disk import SimulatedDisk
from tests.storage_batches import BASE_TIME_MS, make_batch, make_marker

NOW_MS = BASE_TIME_MS
MakeLog = Callable[..., Log]


def append(log: Log, batch: bytearray, epoch: int = 3) -> int:
    return log.append_as_leader(batch, leader_epoch=epoch, now_ms=NOW_MS).base_offset


def stored(log: Log) -> list[Record]:
    records = log.read(log.log_start_offset, bytes_max=1 << 20).records
    return list(read_all(records))


def refused(log: Log, batch: bytearray, **options: object) -> ErrorCode:
    """The code with which a batch is refused; the log must not have changed."""
    before = (log.log_end_offset, log.segments.bytes)
    with pytest.raises(ApiError) as refusal:
        log.append_as_leader(batch, leader_epoch=3, now_ms=NOW_MS, **options)  # type: ignore[arg-type]
    assert (log.log_end_offset, log.segments.bytes) == before
    return refusal.value.code


def test_offsets_and_epoch_are_stamped_and_the_checksum_stays_valid(make_log: MakeLog) -> None:
    log = make_log()
    assert append(log, make_batch([b"a", b"b"])) == 0
    assert append(log, make_batch([b"c"])) == 2
    assert log.log_end_offset == 3
    records = log.read(2, bytes_max=1000).records
    header = parse_header(records)
    assert (header.base_offset, header.partition_leader_epoch) == (2, 3)
    verify_crc(records, header)
    assert [(r.offset, r.value) for r in stored(log)] == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_log_append_time_replaces_the_producers_time(make_log: MakeLog) -> None:
    log = make_log(message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    batch = make_batch([b"a", b"b"], timestamp=5)
    result = log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS)
    assert result.log_append_time_ms == result.max_timestamp == NOW_MS
    assert {r.timestamp for r in stored(log)} == {NOW_MS}


def test_create_time_leaves_the_producers_time(make_log: MakeLog) -> None:
    log = make_log()
    result = log.append_as_leader(make_batch([b"a"], timestamp=5), leader_epoch=0, now_ms=NOW_MS)
    assert (result.log_append_time_ms, result.max_timestamp) == (-1, 5)


def test_wrong_checksum_is_corrupt(make_log: MakeLog) -> None:
    batch = make_batch([b"abc"])
    batch[-1] ^= 1
    assert refused(make_log(), batch) == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("size", [0, 10, 16, 40, 60, 65])
def test_a_batch_cut_short_is_corrupt(make_log: MakeLog, size: int) -> None:
    assert refused(make_log(), make_batch([b"abc"])[:size]) == ErrorCode.CORRUPT_MESSAGE


def test_two_batches_are_one_too_many(make_log: MakeLog) -> None:
    assert refused(make_log(), make_batch([b"a"]) * 2) == ErrorCode.INVALID_RECORD


def test_produced_batches_start_at_offset_zero(make_log: MakeLog) -> None:
    batch = make_batch([b"a"], base_offset=7)
    assert refused(make_log(), batch) == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(("position", "value"), [(57, 1), (23, 4)], ids=["count", "last offset"])
def test_count_and_offsets_must_agree(make_log: MakeLog, position: int, value: int) -> None:
    batch = make_batch([b"a", b"b"])
    batch[position : position + 4] = value.to_bytes(4, "big")
    seal(batch, parse_header(batch))
    assert refused(make_log(), batch) == ErrorCode.INVALID_RECORD


def test_clients_may_not_write_markers_but_coordinators_may(make_log: MakeLog) -> None:
    log = make_log()
    assert refused(log, make_marker(1, 0, commit=True)) == ErrorCode.INVALID_RECORD
    coordinator = AppendOrigin.COORDINATOR
    log.append_as_leader(
        make_marker(1, 0, commit=True), leader_epoch=0, now_ms=NOW_MS, origin=coordinator
    )
    assert log.log_end_offset == 1


def test_a_producer_id_needs_a_sequence(make_log: MakeLog) -> None:
    batch = make_batch([b"a"], producer_id=4, producer_epoch=0)
    assert refused(make_log(), batch) == ErrorCode.INVALID_RECORD


def test_too_large_for_the_topic_or_for_a_segment(make_log: MakeLog) -> None:
    batch = make_batch([bytes(500)])
    assert refused(make_log(max_message_bytes=400), batch) == ErrorCode.MESSAGE_TOO_LARGE
    assert refused(make_log(segment_bytes=400), batch) == ErrorCode.RECORD_LIST_TOO_LARGE


def test_timestamps_too_far_off_are_refused(make_log: MakeLog) -> None:
    future = make_batch([b"a"], timestamp=NOW_MS + 3_600_001)
    assert refused(make_log(), future) == ErrorCode.INVALID_TIMESTAMP
    log = make_log(message_timestamp_before_max_ms=1000)
    past = make_batch([b"a", b"b"], timestamp=NOW_MS - 1001)
    assert refused(log, past) == ErrorCode.INVALID_TIMESTAMP
    append(log, make_batch([b"a"], timestamp=NOW_MS - 1000))
    append(make_log(), make_batch([b"a"], timestamp=NOW_MS + 3_600_000))


def test_producers_may_not_set_log_append_time(make_log: MakeLog) -> None:
    batch = make_batch([b"a"])
    batch[22] |= 8
    seal(batch, parse_header(batch))
    assert refused(make_log(), batch) == ErrorCode.INVALID_TIMESTAMP


def test_a_compacted_log_needs_keys(make_log: MakeLog) -> None:
    log = make_log(cleanup_policy=frozenset({CleanupPolicy.COMPACT}))
    batch = make_batch([b"a", b"b"], keys=[b"k", None])
    assert refused(log, batch) == ErrorCode.INVALID_RECORD
    append(log, make_batch([b"a", b"b"], keys=[b"k", b""]))


@pytest.mark.seed_row("0.6")
def test_sequence_gaps_and_old_epochs_are_refused(make_log: MakeLog) -> None:
    log = make_log()
    append(log, make_batch([b"a"], producer_id=1, producer_epoch=2, base_sequence=0))
    gap = make_batch([b"b"], producer_id=1, producer_epoch=2, base_sequence=5)
    assert refused(log, gap) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    old = make_batch([b"b"], producer_id=1, producer_epoch=1, base_sequence=1)
    assert refused(log, old) == ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.seed_row("0.6")
def test_a_batch_sent_twice_is_answered_with_its_old_offset(make_log: MakeLog) -> None:
    log = make_log()
    append(log, make_batch([b"x"]))
    batch = make_batch([b"a", b"b"], producer_id=1, producer_epoch=0, base_sequence=0)
    first = log.append_as_leader(bytearray(batch), leader_epoch=0, now_ms=NOW_MS)
    again = log.append_as_leader(bytearray(batch), leader_epoch=0, now_ms=NOW_MS)
    assert (again.base_offset, again.last_offset) == (first.base_offset, first.last_offset)
    assert again.is_duplicate
    assert log.log_end_offset == 3


@pytest.mark.seed_row("1.11")
@pytest.mark.parametrize("target", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
@pytest.mark.parametrize("source", [CompressionType.NONE, CompressionType.LZ4])
def test_the_topics_codec_wins_over_the_producers(
    make_log: MakeLog, source: CompressionType, target: str
) -> None:
    log = make_log(compression_type=target)
    values = [b"value %d" % i for i in range(20)]
    batch = make_batch(
        values, codec=source, producer_id=1, producer_epoch=2, base_sequence=3, transactional=True
    )
    append(log, batch)
    header = parse_header(log.read(0, bytes_max=10_000).records)
    wanted = "NONE" if target == "uncompressed" else target.upper()
    assert CompressionType(header.codec).name == wanted
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (1, 2, 3)
    assert header.is_transactional
    assert [r.value for r in stored(log)] == values


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_old_formats_are_refused(make_log: MakeLog, magic: int) -> None:
    """As by Kafka, whose clients have sent none since Produce v3."""
    log = make_log()
    old = [Record(i, NOW_MS, b"k%d" % i, b"v%d" % i) for i in range(3)]
    with pytest.raises(ApiError, match="newer client") as raised:
        append(log, bytearray(build_message_set(old, magic=magic)))
    assert raised.value.code is ErrorCode.INVALID_RECORD
    assert log.log_end_offset == 0


def test_a_failed_write_leaves_the_log_as_it_was(make_log: MakeLog) -> None:
    log = make_log()
    append(log, make_batch([b"before"]))
    disk = log.disk
    assert isinstance(disk, SimulatedDisk)
    disk.fail("write", errno.EIO, times=1)
    with pytest.raises(OSError, match="Input/output"):
        append(log, make_batch([b"lost"]))
    assert log.log_end_offset == 1
    assert append(log, make_batch([b"after"])) == 1
    assert [r.value for r in stored(log)] == [b"before", b"after"]


def test_followers_keep_the_leaders_offsets_and_epochs(make_log: MakeLog) -> None:
    log = make_log()
    first = make_batch([b"a", b"b"], base_offset=0, leader_epoch=1)
    second = make_batch([b"c"], base_offset=5, leader_epoch=2)  # a gap that compaction left
    result = log.append_as_follower(bytes(first + second), now_ms=NOW_MS)
    assert result is not None
    assert (result.base_offset, result.last_offset, log.log_end_offset) == (0, 5, 6)
    assert [tuple(e) for e in log.leader_epochs.entries] == [(1, 0), (2, 5)]


def test_followers_refuse_what_does_not_follow_on(make_log: MakeLog) -> None:
    log = make_log()
    log.append_as_follower(bytes(make_batch([b"a"], leader_epoch=1)), now_ms=NOW_MS)
    for wrong in (
        make_batch([b"b"], base_offset=0, leader_epoch=1),
        make_batch([b"b"], base_offset=1, leader_epoch=1)[:-1] + b"!",
    ):
        with pytest.raises(CorruptionError):
            log.append_as_follower(bytes(wrong), now_ms=NOW_MS)
        assert log.log_end_offset == 1


def test_followers_leave_batches_of_an_epoch_they_do_not_know(make_log: MakeLog) -> None:
    log = make_log()
    known = make_batch([b"a"], leader_epoch=1)
    unknown = make_batch([b"b"], base_offset=1, leader_epoch=2)
    log.append_as_follower(bytes(known + unknown), now_ms=NOW_MS, leader_epoch=1)
    assert log.log_end_offset == 1
    assert log.append_as_follower(b"", now_ms=NOW_MS) is None


def test_flush_is_due_after_flush_messages(make_log: MakeLog) -> None:
    log = make_log(flush_messages=3)
    append(log, make_batch([b"a", b"b"]))
    result = log.append_as_leader(make_batch([b"c"]), leader_epoch=3, now_ms=NOW_MS)
    assert result.is_flush_due
    log.flush()
    assert log.recovery_point == 3
    result = log.append_as_leader(make_batch([b"d"]), leader_epoch=3, now_ms=NOW_MS)
    assert not result.is_flush_due


def test_a_flush_that_a_truncation_overtook_promises_nothing(make_log: MakeLog) -> None:
    log = make_log()
    append(log, make_batch([b"a"]))
    append(log, make_batch([b"b"]))
    plan = log.plan_flush()
    log.truncate_to(1, NOW_MS)
    append(log, make_batch([b"not synced"]), epoch=4)
    plan.run()
    log.on_flushed(plan)
    assert log.recovery_point == 0


def test_a_flush_syncs_the_indexes_that_were_changed(make_log: MakeLog) -> None:
    log = make_log(index_interval_bytes=1_000)

    def synced() -> list[str]:
        plan = log.plan_flush()
        log.flush()
        return [path.suffix for path in plan.paths]

    append(log, make_batch([b"a"]))
    assert synced() == [".log", ".index", ".timeindex", ""]  # they were made, and the epochs
    append(log, make_batch([bytes(2_000)]))
    assert synced() == [".log"]
    append(log, make_batch([b"with an entry before it"]))
    assert synced() == [".log", ".index", ".timeindex"]
    append(log, make_batch([b"b"]))
    assert synced() == [".log"]


def test_an_index_that_changed_during_a_flush_is_synced_by_the_next(make_log: MakeLog) -> None:
    log = make_log(index_interval_bytes=1_000)
    append(log, make_batch([bytes(2_000)]))
    plan = log.plan_flush()
    assert len(plan.indexes) == 2
    append(log, make_batch([b"with an entry before it"]))
    plan.run()
    log.on_flushed(plan)
    assert len(log.plan_flush().indexes) == 2


def test_an_index_whose_flush_failed_is_synced_by_the_next(make_log: MakeLog) -> None:
    log = make_log()
    append(log, make_batch([b"a"]))
    assert isinstance(log.disk, SimulatedDisk)
    log.disk.fail("sync", errno.EIO, path="*.index")
    with pytest.raises(OSError, match="Input/output"):
        log.flush()
    assert len(log.plan_flush().indexes) == 2
