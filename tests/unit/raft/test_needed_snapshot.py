"""A follower behind the start of the leader's log is sent for a snapshot."""

import pytest

from odradek.core.errors import ErrorCode
from odradek.raft.log_view import find_needed_snapshot
from odradek.raft.messages import FetchRequest, FetchResponse, OffsetAndEpoch
from tests.unit.raft.epoch_log import KEYS, EpochLog, make_node

EARLIEST, LATEST = OffsetAndEpoch(4, 2), OffsetAndEpoch(6, 3)


def cut_log() -> EpochLog:
    """Ten records, of which the first four are in a snapshot alone."""
    return EpochLog([1, 1, 2, 2, 2, 3, 3, 3, 3, 3], 4, EARLIEST, LATEST)


@pytest.mark.parametrize(
    ("fetch_offset", "last_fetched_epoch", "needed"),
    [
        (0, 0, LATEST),
        (3, 2, LATEST),
        (4, 2, None),  # where the earliest snapshot ends
        (4, 1, LATEST),  # as long as that, but of another history
        (4, 3, LATEST),
        (5, 1, LATEST),  # in an epoch that the log has nothing of
        (5, 2, None),
        (10, 3, None),
    ],
)
def test_who_needs_a_snapshot(
    fetch_offset: int, last_fetched_epoch: int, needed: OffsetAndEpoch | None
) -> None:
    assert find_needed_snapshot(cut_log(), fetch_offset, last_fetched_epoch) == needed


def test_a_log_from_the_start_needs_one_only_where_the_follower_has_nothing() -> None:
    log = EpochLog([1, 1, 2, 2], 0, OffsetAndEpoch(0, 0), OffsetAndEpoch(2, 1))
    assert find_needed_snapshot(log, 0, 0) == OffsetAndEpoch(2, 1)
    assert find_needed_snapshot(log, 2, 1) is None
    assert find_needed_snapshot(EpochLog([1, 1]), 0, 0) is None


def test_the_snapshot_that_formatting_leaves_is_never_offered() -> None:
    log = EpochLog([1, 1], 0, OffsetAndEpoch(0, 0), OffsetAndEpoch(0, 0))
    assert find_needed_snapshot(log, 0, 0) is None


def test_a_leader_answers_such_a_fetch_with_the_snapshot_and_no_records() -> None:
    log = cut_log()
    node = make_node(log, size=1)
    instruction = node.take_ready().log_instruction
    assert instruction is not None
    log.epochs.append(node.epoch)
    node.on_appended(0)
    node.on_flushed(log.log_end_offset, 0)
    node.take_ready()
    node.step(FetchRequest(1, KEYS[1], node.epoch, 0, 0, None, 500), 0)
    ready = node.take_ready()
    assert ready.reads == ()
    (sent,) = ready.replies
    assert isinstance(sent, FetchResponse)
    assert sent.error is ErrorCode.NONE
    assert sent.snapshot_id == LATEST
    assert sent.records is None
