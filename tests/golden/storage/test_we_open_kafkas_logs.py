"""Data directories that real Kafkas wrote, opened by our storage engine.

After a clean stop, after a crash, with damage that Kafka itself recovered from, and in the message
formats of Kafka 0.9 and 0.10: every partition has the records that a real consumer read from it.
"""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from odradek.core.ids import TopicPartition
from odradek.records import Record, read_records
from odradek.records.legacy import read_legacy
from odradek.storage.checkpoints import (
    CLEANER_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    read_offset_checkpoint,
)
from odradek.storage.config import LogConfig
from odradek.storage.disk import OsDisk
from odradek.storage.log import Isolation, Log
from odradek.storage.recovery import LogSettings, RecoveryReport, open_log
from odradek.storage.scan import iter_batches
from odradek.storage.timestamps import find_offset_at
from tests.interop.kafka_peer.golden import GoldenPartition, read_manifest, unpack

NOW_MS = 1_800_000_000_000
ARCHIVES = ["clean", "crashed", "damaged", "magic0", "magic1", "recovered"]
UNCLEAN = {"crashed", "damaged"}


_opened: list[Log] = []


@pytest.fixture(autouse=True)
def close_logs() -> Iterator[None]:
    """Hundreds of descriptors otherwise; py4j's select takes none above 1,023."""
    yield
    while _opened:
        _opened.pop().close()


def manifest(name: str) -> dict[str, GoldenPartition]:
    return read_manifest("recovered" if name == "damaged" else name)


def open_partition(name: str, data_dir: Path, folder: str) -> tuple[Log, RecoveryReport]:
    topic, _, number = folder.rpartition("-")
    partition = TopicPartition(topic, int(number))
    disk = OsDisk()

    def checkpoint(file: str) -> int:
        return read_offset_checkpoint(disk, data_dir / file).get(partition, 0)

    log, report = open_log(
        partition,
        disk,
        data_dir / folder,
        LogSettings(LogConfig()),
        now_ms=NOW_MS,
        random=Random(1),
        clean=name not in UNCLEAN,
        log_start_offset=checkpoint(LOG_START_CHECKPOINT),
        recovery_point=checkpoint(RECOVERY_POINT_CHECKPOINT),
        first_dirty_offset=checkpoint(CLEANER_CHECKPOINT),
    )
    _opened.append(log)
    return log, report


def data_records(log: Log) -> Iterator[Record]:
    """Read the log through its front door, batch by batch, without control records."""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        records = log.read(offset, bytes_max=1 << 20).records
        if not records:
            return  # compaction left nothing up to the end
        for header in iter_batches(records):
            if header.magic == 2:
                batch = [] if header.is_control else list(read_records(records, header))
            else:
                batch = read_legacy(records, header.position).records
            yield from (record for record in batch if record.offset >= log.log_start_offset)
            offset = header.next_offset


@pytest.mark.seed_row("1.1")
@pytest.mark.parametrize("name", ARCHIVES)
def test_every_partition_has_the_records_a_real_consumer_read(name: str, tmp_path: Path) -> None:
    data_dir = unpack(name, tmp_path)
    partitions = manifest(name)
    assert len(partitions) > 3
    for folder, golden in partitions.items():
        log, _ = open_partition(name, data_dir, folder)
        log.update_high_watermark(log.log_end_offset)
        log.check_invariants()
        assert (log.log_start_offset, log.log_end_offset) == (
            golden.log_start_offset,
            golden.log_end_offset,
        ), folder
        assert log.last_stable_offset == golden.last_stable_offset, folder
        seen = [tuple(record) for record in data_records(log)]
        assert seen == [tuple(record)[:5] for record in golden.records], folder


@pytest.mark.parametrize("name", ["clean", "crashed", "damaged", "recovered"])
def test_aborted_records_are_those_kafka_hid(name: str, tmp_path: Path) -> None:
    data_dir = unpack(name, tmp_path)
    hidden_in_all = 0
    for folder, golden in manifest(name).items():
        log, _ = open_partition(name, data_dir, folder)
        log.update_high_watermark(log.log_end_offset)
        producers = _producer_ids(log)
        for record in golden.records:
            if record.offset >= log.last_stable_offset:
                continue
            result = log.read(record.offset, bytes_max=1, isolation=Isolation.LAST_STABLE_OFFSET)
            assert result.aborted_transactions is not None
            hidden = any(
                a.producer_id == producers.get(record.offset)
                and a.first_offset <= record.offset <= a.last_offset
                for a in result.aborted_transactions
            )
            assert hidden == (record.state == "aborted"), (folder, record)
            hidden_in_all += hidden
    assert hidden_in_all >= 9


def _producer_ids(log: Log) -> dict[int, int]:
    """Return the producer of each transactional record."""
    found: dict[int, int] = {}
    for segment in log.segments:
        for header in segment.batches():
            if header.magic == 2 and header.is_transactional and not header.is_control:
                offsets = range(header.base_offset, header.next_offset)
                found |= dict.fromkeys(offsets, header.producer_id)
    return found


def test_a_clean_directory_needs_no_mending(tmp_path: Path) -> None:
    data_dir = unpack("clean", tmp_path)
    for folder in manifest("clean"):
        _, report = open_partition("clean", data_dir, folder)
        assert report == RecoveryReport(), folder


def test_damage_is_found_and_mended(tmp_path: Path) -> None:
    data_dir = unpack("damaged", tmp_path)
    reports = [open_partition("damaged", data_dir, folder)[1] for folder in manifest("damaged")]
    assert sum(report.cut_bytes for report in reports) > 0
    assert sum(report.rebuilt_indexes for report in reports) > 0


def test_offsets_are_found_by_time_in_kafkas_logs(tmp_path: Path) -> None:
    data_dir = unpack("clean", tmp_path)
    for folder, golden in manifest("clean").items():
        log, _ = open_partition("clean", data_dir, folder)
        for timestamp in sorted({record.timestamp for record in golden.records}):
            found = find_offset_at(log, timestamp)
            first = next(r for r in golden.records if r.timestamp >= timestamp)
            assert found is not None
            assert found.offset <= first.offset, folder  # a control record may come first
