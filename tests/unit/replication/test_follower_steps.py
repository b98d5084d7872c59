"""What a follower asks, and what it does with an answer.

Of Kafka's AbstractFetcherThreadTest: testSimpleFetch, testDelay, testFencedFetch, testTruncation,
testUnknownLeaderEpochWhileFetching, testTruncateToHighWatermarkIfLeaderEpochInfoNotAvailable,
testTruncationSkippedIfNoEpochChange, testFollowerFetchOutOfRangeHigh and -Low, testDivergingEpochs,
testReplicateBatchesUpToLeaderEpoch, testFetcherThreadHandlingPartitionFailureDuringAppending,
testIgnoreFetchResponseWhenLeaderEpochChanged; of ReplicaFetcherThreadTest: shouldTruncateIfLeader-
RepliesWithDivergingEpochNotKnownToFollower, testTruncateOnFetchDoesNotUpdateHighWatermark.
"""

import pytest

from odradek.core.errors import ErrorCode
from odradek.replication.following import (
    NOTHING,
    Action,
    Append,
    Diverged,
    FindOffsets,
    Following,
    Progress,
    Truncate,
    TruncateFully,
    Wanted,
)
from odradek.replication.truncation import truncation_offset
from tests.simulation.replication.model_log import ModelLog, Record

BACKOFF_MS = 1_000


def log_of(*epochs: tuple[int, int], end: int, start: int = 0, high_watermark: int = 0) -> ModelLog:
    log = ModelLog()
    log.truncate_fully(start)
    starts = [at for _, at in epochs]
    for (epoch, at), next_at in zip(epochs, [*starts[1:], end], strict=True):
        log.begin_epoch(epoch)
        log.append(at, [Record(epoch, offset) for offset in range(at, next_at)], leader_epoch=epoch)
    log.high_watermark = high_watermark
    return log


def following(leader_epoch: int = 5) -> Following:
    """Follow broker 1 with epochs 1, 3 and 4, which begin at 0, 10 and 15; the log ends at 20."""
    log = log_of((1, 0), (3, 10), (4, 15), end=20, high_watermark=12)
    return Following(log, 1, leader_epoch, BACKOFF_MS)


ASKED = Wanted(5, 20, 4, 0)


def answer_all(follower: Following, asked: Wanted) -> list[Action]:
    return [
        follower.on_records(asked),
        follower.on_diverged(asked, Diverged(3, 12)),
        follower.on_offsets(asked, 0, 18),
        follower.on_error(asked, ErrorCode.OFFSET_OUT_OF_RANGE, 0),
    ]


def test_a_follower_asks_for_the_end_of_its_log_and_names_its_last_epoch() -> None:
    follower = following()
    assert follower.plan(0) == ASKED
    assert follower.on_records(ASKED) == Append(5)
    assert Following(ModelLog(), 1, 5).plan(0) == Wanted(5, 0, -1, 0)


def test_a_follower_without_a_leader_asks_nothing() -> None:
    assert Following(ModelLog(), -1, 5).plan(0) is None


def test_an_answer_counts_for_the_question_it_answers() -> None:
    follower = following()
    assert answer_all(follower, ASKED) == [Append(5), Truncate(12), Truncate(18), FindOffsets()]
    assert answer_all(follower, ASKED._replace(leader_epoch=4)) == [NOTHING] * 4
    assert answer_all(follower, ASKED._replace(offset=19)) == [NOTHING] * 4
    follower.follow(1, 6)
    assert answer_all(follower, ASKED) == [NOTHING] * 4


def test_the_same_leader_and_epoch_are_no_news() -> None:
    follower = following()
    follower.on_error(ASKED, ErrorCode.KAFKA_STORAGE_ERROR, 0)
    assert not follower.follow(1, 5)
    assert follower.plan(BACKOFF_MS - 1) is None
    assert follower.plan(BACKOFF_MS) == ASKED


def test_another_leader_or_epoch_is_asked_at_once() -> None:
    for leader_id, epoch in ((1, 6), (2, 6)):
        follower = following()
        follower.delay(0)
        assert follower.follow(leader_id, epoch)
        assert (follower.leader_id, follower.leader_epoch) == (leader_id, epoch)
        assert follower.plan(0) == ASKED._replace(leader_epoch=epoch)


def test_a_follower_asks_on_when_what_it_waited_for_has_come() -> None:
    follower = following()
    follower.delay(0)
    waits = [(follower.retry_at_ms, follower.plan(1))]
    follower.resume()
    waits.append((follower.retry_at_ms, follower.plan(1)))
    assert waits == [(BACKOFF_MS, None), (None, ASKED)]


def test_a_fenced_follower_waits_for_metadata() -> None:
    follower = following()
    assert follower.on_error(ASKED, ErrorCode.FENCED_LEADER_EPOCH, 0) == NOTHING
    assert (follower.plan(100 * BACKOFF_MS), follower.retry_at_ms) == (None, None)
    follower.follow(1, 6)
    assert follower.plan(0) == ASKED._replace(leader_epoch=6)


def test_a_follower_whose_disk_failed_asks_nothing_more_in_this_epoch() -> None:
    follower = following()
    follower.fail()
    assert follower.plan(100 * BACKOFF_MS) is None
    assert answer_all(follower, ASKED) == [NOTHING] * 4
    follower.follow(1, 6)
    assert follower.plan(0) == ASKED._replace(leader_epoch=6)


@pytest.mark.parametrize(
    ("start", "end", "action"),
    [
        (0, 19, Truncate(19)),  # an unclean leader with a shorter log
        (0, 20, NOTHING),
        (20, 30, NOTHING),
        (21, 30, TruncateFully(21)),  # deleted records
        (19, 19, Truncate(19)),
    ],
)
def test_offsets_out_of_range_are_found_in_the_leaders_log(
    start: int, end: int, action: Action
) -> None:
    assert following().on_offsets(ASKED, start, end) == action


@pytest.mark.seed_row("3.5")
@pytest.mark.parametrize(
    ("epoch", "end_offset", "cut"),
    [
        (4, 17, 17),  # both have it, the leader less
        (4, 25, 20),
        (3, 12, 12),
        (3, 18, 15),  # both have it, the leader more: what follows is of an epoch it has not
        (2, 14, 10),  # unknown here: cut at the end of the greatest one below
        (0, 3, 0),  # older than all of ours: our log begins behind it
        (9, 18, 18),
        (9, 25, 20),
        (-1, -1, 12),  # the leader knows no epochs
    ],
)
def test_a_log_is_cut_where_it_parts_from_its_leaders(
    epoch: int, end_offset: int, cut: int
) -> None:
    assert following().on_diverged(ASKED, Diverged(epoch, end_offset)) == Truncate(cut)


def test_a_log_is_never_cut_behind_its_end() -> None:
    log = log_of((1, 0), end=4, high_watermark=9)
    assert [truncation_offset(log, epoch, 9) for epoch in (-1, 0, 1, 2)] == [4, 0, 4, 4]


def test_a_log_without_epochs_is_cut_at_its_high_watermark_once_per_epoch() -> None:
    log = ModelLog()
    log.log_end_offset, log.high_watermark = 5, 3
    follower = Following(log, 1, 5)
    assert follower.plan(0) == Truncate(3)
    log.log_end_offset = 3
    assert follower.plan(0) == Wanted(5, 3, -1, 0)
    log.log_end_offset = 6  # fetched, and not committed yet
    assert follower.plan(0) == Wanted(5, 6, -1, 0)
    follower.follow(2, 6)
    assert follower.plan(0) == Truncate(3)


def test_a_log_without_epochs_that_is_committed_is_not_cut() -> None:
    log = ModelLog()
    log.log_end_offset = log.high_watermark = 5
    assert Following(log, 1, 5).plan(0) == Wanted(5, 5, -1, 0)


@pytest.mark.parametrize(("leaders", "own"), [(8, 8), (15, 15), (20, 20), (25, 20), (2, 4)])
def test_the_high_watermark_is_the_leaders_within_the_own_log(leaders: int, own: int) -> None:
    log = log_of((1, 4), start=4, end=20, high_watermark=12)
    assert Following(log, 1, 5).high_watermark_after(Progress(leaders, 0)) == own
