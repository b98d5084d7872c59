"""How many bytes a second throttled replicas may take; the first story is a test of Kafka's."""

import pytest

from odradek.replication.quota import (
    RETRY_MS_MAX,
    RETRY_MS_MIN,
    ReplicationQuota,
    WindowedRate,
    throttled_partitions,
)


def quota_of(bound: int, samples: int = 10) -> ReplicationQuota:
    quota = ReplicationQuota(samples, 1_000)
    quota.bound = bound
    return quota


def test_the_rate_is_over_the_time_since_it_is_measured() -> None:
    quota = quota_of(100)
    assert not quota.is_exceeded(0)
    quota.record(150, 1_500)
    assert not quota.is_exceeded(1_500), "150 bytes in 1.5 s"
    quota.record(1, 1_500)
    assert quota.is_exceeded(1_500)
    assert quota.rate.per_second(1_500) == 151 / 1.5
    assert not quota.is_exceeded(2_000)
    assert quota.rate.per_second(2_000) == 151 / 2
    quota.record(99, 2_500)
    assert not quota.is_exceeded(2_500), "250 bytes in 2.5 s"
    quota.record(1, 2_500)
    assert quota.is_exceeded(2_500)
    assert quota.rate.per_second(4_500) == 251 / 4.5


def test_in_the_first_sample_the_time_is_that_of_a_sample() -> None:
    quota = quota_of(100)
    quota.record(100, 7)
    assert not quota.is_exceeded(7)
    quota.record(1, 8)
    assert quota.is_exceeded(8)
    assert quota.rate.per_second(8) == 101


def test_samples_that_are_too_old_count_no_more() -> None:
    rate = WindowedRate(3, 1_000)
    for second in range(10):
        rate.record(1_000, second * 1_000)
        rate.check_invariants()
        assert rate.per_second(second * 1_000 + 999) <= 1_400
    rate.record(0, 11_000)
    assert rate.per_second(11_999) == pytest.approx(1_000 * 1_000 / 2_999)
    assert rate.per_second(20_000) == 0


def test_over_all_samples_the_bound_is_kept_to() -> None:
    """A reader that takes 64 KB whenever it may gets what the bound says, within two percent."""
    quota, taken, now_ms = quota_of(200_000, samples=11), 0, 5_000
    while now_ms < 65_000:
        if quota.is_exceeded(now_ms):
            now_ms = max(quota.retry_at_ms(now_ms), now_ms + 1)
        else:
            quota.record(64_000, now_ms)
            taken += 64_000
    assert taken / 60 == pytest.approx(200_000, rel=0.02)


def test_what_waits_is_called_when_the_rate_is_down() -> None:
    quota = quota_of(1_000)
    quota.is_exceeded(0)
    quota.record(1_500, 100)
    assert quota.retry_at_ms(1_000) == 1_500
    assert quota.is_exceeded(1_499)
    assert not quota.is_exceeded(1_500)


def test_what_waits_neither_spins_nor_sleeps_for_long() -> None:
    quota = quota_of(1_000)
    quota.record(1_000, 0)
    assert quota.retry_at_ms(1_000) == 1_000 + RETRY_MS_MIN
    quota.record(1_000_000, 1_000)
    assert quota.retry_at_ms(1_000) == 1_000 + RETRY_MS_MAX
    quota.bound = 0
    assert quota.retry_at_ms(1_000) == 1_000 + RETRY_MS_MAX


def test_without_a_bound_nothing_is_exceeded() -> None:
    quota = ReplicationQuota(10, 1_000)
    quota.record(1 << 50, 0)
    assert not quota.is_exceeded(0)


def test_only_what_is_named_is_throttled() -> None:
    quota = quota_of(1)
    is_used = [quota.is_used]
    quota.throttle("some", {1, 3})
    quota.throttle("all", None)
    is_used.append(quota.is_used)
    found = {each: [quota.is_throttled(each, n) for n in range(4)] for each in ("some", "all", "x")}
    assert found == {
        "some": [False, True, False, True],
        "all": [True] * 4,
        "x": [False] * 4,
    }
    quota.throttle("some", set())
    quota.throttle("all", set())
    assert [*is_used, quota.is_used] == [False, True, False]


@pytest.mark.parametrize(
    ("text", "partitions"),
    [
        ("", set()),
        ("*", None),
        (" * ", None),
        ("0:7,1:8,2:7", {0, 2}),
        ("0:8", set()),
        ("0:7,", {0}),
    ],
)
def test_the_config_names_partitions_by_broker(text: str, partitions: set[int] | None) -> None:
    assert throttled_partitions(text, 7) == partitions
