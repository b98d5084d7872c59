"""A broker without files, and its limit. What any disk must do is in tests/property/testing."""

import errno
import mmap
import tempfile
import time
from pathlib import Path, PurePath, PurePosixPath

import pytest

from odradek.broker.clock import SystemClock
from odradek.core.errors import ErrorCode
from odradek.protocol.generated.produce import ProduceResponse
from odradek.testing.broker import Broker
from odradek.testing.memory_disk import MemoryDisk
from tests.broker_connection import BrokerConnection
from tests.record_requests import earliest_offset, fetched, produce_request

DATA = PurePosixPath("/data")


def memory_disk(bytes_max: int = 1000) -> MemoryDisk:
    disk = MemoryDisk(SystemClock(), bytes_max)
    disk.make_folder(DATA)
    return disk


def test_it_works_and_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with Broker(topics=["t"], memory=True) as broker, BrokerConnection(broker.port) as connection:
        connection.ask(produce_request("t", b"a", b"b"), ProduceResponse, 8)
        assert fetched(connection, "t") == [b"a", b"b"]
        assert list(tmp_path.iterdir()) == []


def test_segments_roll_and_are_gone_when_their_time_has_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def remove_slowly(disk: MemoryDisk, path: PurePath) -> None:
        time.sleep(0.02)  # a slow disk: `advance` waits for it
        remove(disk, path)

    remove = MemoryDisk.remove
    monkeypatch.setattr(MemoryDisk, "remove", remove_slowly)
    with Broker(memory=True) as broker, BrokerConnection(broker.port) as connection:
        broker.create_topic("t", segment_bytes="300", retention_ms="1000")
        for _ in range(30):
            connection.ask(produce_request("t", b"x" * 150), ProduceResponse, 8)
        disk = broker.node.broker.store.directories[0].disk
        assert isinstance(disk, MemoryDisk)
        full = disk.used_bytes
        broker.clock.advance(3600)  # out of the log
        broker.clock.advance(3600)  # and off the disk
        assert earliest_offset(connection, "t") == 30
        assert disk.used_bytes < full - 30 * 150


def test_past_its_limit_a_produce_is_refused_and_told_why() -> None:
    broker = Broker(topics=["t"], memory=True, memory_bytes_max=200_000)
    with broker, BrokerConnection(broker.port) as connection:
        codes = []
        for _ in range(4):
            answer = connection.ask(produce_request("t", b"x" * 100_000), ProduceResponse, 8)
            partition = answer.responses[0].partition_responses[0]
            codes.append(partition.error_code)
        assert codes[0] == 0
        assert codes[-1] == ErrorCode.KAFKA_STORAGE_ERROR
        assert "raise memory_bytes_max" in (partition.error_message or "")


def test_what_counts_is_what_was_written() -> None:
    disk = memory_disk()
    file = disk.open(DATA / "f", create=True)
    file.truncate(1_000_000)
    assert disk.used_bytes == 0
    file.write(0, [b"x" * 600])
    file.write(100, [b"y" * 100])
    other = disk.open(DATA / "g", create=True)
    with pytest.raises(OSError, match="memory is full") as caught:
        other.write(0, [b"x" * 401])
    assert caught.value.errno == errno.ENOSPC
    assert disk.read(DATA / "g") == b""
    file.truncate(10)
    other.write(0, [b"x" * 990])
    assert disk.used_bytes == 1000
    disk.rename(DATA / "g", DATA / "f")
    assert disk.used_bytes == 990
    disk.remove_folder(DATA)
    file.truncate(0)  # whoever has it open may go on
    other.truncate(0)
    assert disk.used_bytes == 0


def test_a_preallocated_index_takes_no_memory() -> None:
    disk = memory_disk()
    file = disk.open(DATA / "i", create=True)
    file.truncate(1 << 34)  # would be felt
    buffer = file.map(writable=True).buffer
    assert isinstance(buffer, mmap.mmap)
    buffer[5] = 1
    file.truncate(8)
    assert disk.read(DATA / "i") == b"\0\0\0\0\0\1\0\0"


def test_memory_and_files_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="data_dir"):
        Broker(memory=True, data_dir="d")
    with pytest.raises(ValueError, match="cleaner"):
        Broker(memory=True, config={"log.cleaner.enable": "true"})
