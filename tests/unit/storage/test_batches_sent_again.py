"""A batch that is sent again after a restart is a duplicate, as it would be without the restart.

Snapshots of producers, Kafka's and ours, have only the last batch of each.
"""

from collections.abc import Iterator
from pathlib import PurePosixPath
from random import Random

import pytest

from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import TopicPartition
from odradek.records import BatchHeader
from odradek.storage import producer_replay
from odradek.storage.config import LogConfig
from odradek.storage.disk import Buffer
from odradek.storage.log import Log
from odradek.storage.recovery import LogSettings, create_log, open_log
from odradek.storage.segments import Segments
from odradek.testing.disk import SimulatedDisk
from tests.storage_batches import BASE_TIME_MS, make_batch

PARTITION = TopicPartition("t", 0)
FOLDER = PurePosixPath("/data/t-0")
SETTINGS = LogSettings(LogConfig(segment_bytes=400, index_interval_bytes=100))


def new_log() -> Log:
    disk = SimulatedDisk(Random(1))
    return create_log(PARTITION, disk, FOLDER, SETTINGS, now_ms=BASE_TIME_MS, random=Random(1))


def restarted(log: Log) -> Log:
    log.close()
    again, _ = open_log(
        *(PARTITION, log.disk, FOLDER, SETTINGS),
        now_ms=BASE_TIME_MS,
        random=Random(1),
        clean=True,
        recovery_point=log.recovery_point,
    )
    return again


def send(log: Log, sequence: int, *, epoch: int = 0, producer_id: int = 7) -> tuple[int, bool]:
    batch = make_batch(
        [b"%d" % sequence, b"x"],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    result = log.append_as_leader(batch, leader_epoch=0, now_ms=BASE_TIME_MS)
    return result.base_offset, result.is_duplicate


def refusal(log: Log, sequence: int, *, epoch: int = 0) -> ErrorCode:
    with pytest.raises(ApiError) as refused:
        send(log, sequence, epoch=epoch)
    return refused.value.code


@pytest.mark.seed_row("3.6")
def test_the_last_five_batches_are_known_after_a_restart() -> None:
    log = new_log()
    for number in range(8):
        send(log, 2 * number)
        send(log, 2 * number, producer_id=8)  # lies between them
    assert len(log.segments) > 2
    log = restarted(log)
    for number in range(3, 8):
        assert send(log, 2 * number) == (4 * number, True)
    assert refusal(log, 4) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 16) == (32, False)
    log.producer_states.check_invariants()


def test_what_was_never_written_is_refused() -> None:
    log = new_log()
    send(log, 0)
    send(log, 2)
    log = restarted(log)
    assert refusal(log, 6) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(log, 1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_batches_of_an_earlier_epoch_are_not_those_of_this_one() -> None:
    log = new_log()
    for sequence in (0, 2, 4):
        send(log, sequence)
    send(log, 0, epoch=1)
    send(log, 2, epoch=1)
    log = restarted(log)
    assert send(log, 0, epoch=1) == (6, True)
    assert send(log, 4, epoch=1) == (10, False)


def test_the_log_is_walked_once_for_a_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    log = new_log()
    for number in range(3):
        send(log, 2 * number)
    log = restarted(log)
    walks = []
    walk = producer_replay._iter_produced

    def count(
        segments: Segments, start_offset: int, end_offset: int
    ) -> Iterator[tuple[Buffer, BatchHeader]]:
        walks.append((start_offset, end_offset))
        return walk(segments, start_offset, end_offset)

    monkeypatch.setattr(producer_replay, "_iter_produced", count)
    for _ in range(3):
        refusal(log, 100)
    assert walks == [(0, 4)]
