"""Offset checkpoints: Kafka's text, replaced whole, and what is wrong with a malformed one."""

from pathlib import Path, PurePosixPath
from random import Random

import pytest

from odradek.core.errors import CorruptionError
from odradek.core.ids import TopicPartition
from odradek.storage.checkpoints import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    parse_number,
    read_offset_checkpoint,
    write_checkpoint,
    write_offset_checkpoint,
)
from odradek.storage.disk import OsDisk
from odradek.testing.disk import SimulatedCrash, SimulatedDisk

OFFSETS = {
    TopicPartition("orders", 0): 123,
    TopicPartition("__consumer_offsets", 49): 0,
    TopicPartition("a.b-c_d", 2147483647): 9223372036854775807,
}
FILE = b"0\n3\norders 0 123\n__consumer_offsets 49 0\na.b-c_d 2147483647 9223372036854775807\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / RECOVERY_POINT_CHECKPOINT


@pytest.mark.seed_row("1.15")
def test_the_names_are_kafkas() -> None:
    assert [
        RECOVERY_POINT_CHECKPOINT,
        HIGH_WATERMARK_CHECKPOINT,
        LOG_START_CHECKPOINT,
        CLEANER_CHECKPOINT,
    ] == [
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "log-start-offset-checkpoint",
        "cleaner-offset-checkpoint",
    ]


@pytest.mark.seed_row("1.15")
def test_the_file_is_kafkas_and_read_back(path: Path) -> None:
    write_offset_checkpoint(OsDisk(), path, OFFSETS)
    assert path.read_bytes() == FILE
    assert read_offset_checkpoint(OsDisk(), path) == OFFSETS
    assert [p.name for p in path.parent.iterdir()] == [RECOVERY_POINT_CHECKPOINT]


def test_no_offsets_are_a_file_too(path: Path) -> None:
    write_offset_checkpoint(OsDisk(), path, {})
    assert path.read_bytes() == b"0\n0\n"
    assert read_offset_checkpoint(OsDisk(), path) == {}


@pytest.mark.parametrize("content", [None, b"", b"0\n", b"0"])
def test_a_missing_or_unfinished_file_is_empty(path: Path, content: bytes | None) -> None:
    if content is not None:
        path.write_bytes(content)
    assert read_offset_checkpoint(OsDisk(), path) == {}


def test_windows_line_ends_and_more_blanks_are_read(path: Path) -> None:
    path.write_bytes(b"0\r\n1\r\norders   0\t5\r\n")
    assert read_offset_checkpoint(OsDisk(), path) == {TopicPartition("orders", 0): 5}


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"1\n0\n", 1),
        (b"-0\n0\n", 1),
        (b"\n0\n", 1),
        (b"0\n\n", 2),
        (b"0\n-1\n", 2),
        (b"0\n99999999999\n", 2),
        (b"0\n2\na 0 5\n", 2),
        (b"0\n0\na 0 5\n", 2),
        (b"0\n1\na 0\n", 3),
        (b"0\n1\na 0 5 6\n", 3),
        (b"0\n1\n\n", 3),
        (b"0\n2\na 0 5\na x 5\n", 4),
        (b"0\n1\na 0 5x\n", 3),
        (b"0\n1\na 0 1_0\n", 3),
        (b"0\n1\na 0 -1\n", 3),
        (b"0\n1\na -1 0\n", 3),
        (b"0\n1\na 2147483648 0\n", 3),
        (b"0\n1\na 0 9223372036854775808\n", 3),
        (b"0\n1\n\xff 0 5\n", 3),
        ("0\n1\na 0 ٣\n".encode(), 3),
        (b"\0" * 40, 1),
    ],
)
def test_a_malformed_file_is_corruption_with_file_and_line(
    path: Path, content: bytes, line: int
) -> None:
    path.write_bytes(content)
    with pytest.raises(CorruptionError, match=rf"{RECOVERY_POINT_CHECKPOINT}, line {line}:"):
        read_offset_checkpoint(OsDisk(), path)


def test_a_line_is_a_line(path: Path) -> None:
    with pytest.raises(AssertionError):
        write_checkpoint(OsDisk(), path, ["a 0 5\nb 0 5"])


def test_numbers_are_bounded() -> None:
    assert parse_number("007", 7) == 7
    for text in ("8", "", "+1", " 1", "1\n", "9" * 5000):
        with pytest.raises(ValueError):
            parse_number(text, 7)


def test_after_a_crash_at_any_operation_it_is_the_old_file_or_the_new() -> None:
    path = PurePosixPath("/") / RECOVERY_POINT_CHECKPOINT
    old, new = {TopicPartition("t", 0): 1}, {TopicPartition("t", i): i for i in range(100)}
    seen = []
    for stop_at in range(1, 20):
        disk = SimulatedDisk(Random(stop_at))
        write_offset_checkpoint(disk, path, old)
        disk.stop_at = disk.operations + stop_at
        try:
            write_offset_checkpoint(disk, path, new)
        except SimulatedCrash:
            done = False
        else:
            done = True
        disk.crash()
        found = read_offset_checkpoint(disk, path)
        assert found == new if done else found in (old, new)
        seen.append(done)
    assert not seen[0]
    assert seen[-1]
