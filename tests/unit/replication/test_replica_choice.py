"""To which follower a leader sends consumers (KIP-392): Kafka's rack-aware selector, by example."""

from odradek.replication.replica_choice import choose_follower
from tests.unit.replication.leading import Leading


def choose(leading: Leading, near: set[int], offset: int = 10) -> int | None:
    return choose_follower(leading.leadership, offset, near.__contains__)


def test_a_follower_in_the_rack_is_chosen() -> None:
    leading = Leading()
    leading.fetch(2, 10)
    assert choose(leading, {2}) == 2


def test_the_leader_serves_its_own_rack_and_those_without_replicas() -> None:
    leading = Leading()
    leading.fetch(2, 10)
    assert choose(leading, {1, 2}) is None
    assert choose(leading, {9}) is None
    assert choose(leading, set()) is None


def test_of_several_the_one_with_most_records_is_chosen() -> None:
    leading = Leading()
    leading.fetch(2, 9)
    leading.fetch(3, 8)
    assert choose(leading, {2, 3}, offset=5) == 2
    leading.fetch(3, 10)
    assert choose(leading, {2, 3}, offset=5) == 3


def test_of_equals_the_one_that_caught_up_last_is_chosen_and_then_the_greater_id() -> None:
    leading = Leading()
    leading.fetch(2, 10)
    leading.fetch(3, 10)
    assert choose(leading, {2, 3}) == 3
    leading.now_ms += 100
    leading.fetch(2, 10)
    assert choose(leading, {2, 3}) == 2


def test_a_follower_that_lags_or_lacks_the_offset_is_not_chosen() -> None:
    leading = Leading(isr=(1, 2))
    leading.fetch(2, 8)
    assert choose(leading, {2}, offset=8) == 2
    assert choose(leading, {2}, offset=9) is None, "the follower would refuse it"
    out_of_sync = Leading(isr=(1, 2), end=20, high_watermark=20)
    out_of_sync.fetch(3, 15)
    assert choose(out_of_sync, {3}, offset=15) is None, "it is not in sync"


def test_a_follower_of_which_nothing_is_known_is_not_chosen() -> None:
    assert choose(Leading(), {2, 3}, offset=0) is None


def test_a_follower_whose_log_begins_later_is_not_chosen() -> None:
    leading = Leading()
    follower = leading.leadership.followers[2]
    follower.on_fetch(10, 4, 10, 102, leading.now_ms)
    assert choose(leading, {2}, offset=4) == 2
    assert choose(leading, {2}, offset=3) is None
