"""How long a follower that was refused asks nothing."""

import pytest

from odradek.core.errors import ErrorCode
from odradek.replication.following import Following, Wanted

BACKOFF_MS = 1_000


class Epochs:
    latest_epoch: int | None = None

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        return -1, -1


class EmptyLog:
    log_start_offset = log_end_offset = high_watermark = 0
    leader_epochs = Epochs()


def refuse(following: Following, code: ErrorCode, now_ms: int) -> int:
    """Return how long nothing is asked after a refusal."""
    wanted = following.plan(now_ms)
    assert isinstance(wanted, Wanted)
    following.on_error(wanted, code, now_ms)
    assert following.retry_at_ms is not None
    return following.retry_at_ms - now_ms


@pytest.fixture
def following() -> Following:
    return Following(EmptyLog(), 1, 5, BACKOFF_MS)


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH])
def test_a_leader_that_does_not_know_it_yet_is_soon_asked_again(
    following: Following, code: ErrorCode
) -> None:
    waits, now_ms = [], 0
    for _ in range(10):
        waits.append(refuse(following, code, now_ms))
        now_ms += waits[-1]
    assert waits == [10, 20, 40, 80, 160, 320, 640, 1_000, 1_000, 1_000]


def test_each_epoch_begins_with_short_waits(following: Following) -> None:
    for now_ms in range(0, 9 * BACKOFF_MS, BACKOFF_MS):
        refuse(following, ErrorCode.UNKNOWN_LEADER_EPOCH, now_ms)
    following.follow(2, 6)
    assert refuse(following, ErrorCode.UNKNOWN_LEADER_EPOCH, 9 * BACKOFF_MS) == 10


def test_other_errors_cost_the_whole_backoff(following: Following) -> None:
    assert refuse(following, ErrorCode.KAFKA_STORAGE_ERROR, 0) == BACKOFF_MS


def test_a_short_backoff_is_never_exceeded() -> None:
    following = Following(EmptyLog(), 1, 5, 15)
    waits = [refuse(following, ErrorCode.NOT_LEADER_OR_FOLLOWER, at) for at in (0, 100, 200)]
    assert waits == [10, 15, 15]
