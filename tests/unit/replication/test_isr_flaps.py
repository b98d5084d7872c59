"""Replicas that leave an ISR again and again are told from those that leave once."""

from odradek.core.ids import TopicPartition
from odradek.replication.isr_flaps import REPLICAS_MAX, SPAN_MS, Flapping, IsrFlaps

A = TopicPartition("a", 0)
B = TopicPartition("b", 0)
MINUTE_MS = 60_000


def leave_and_rejoin(flaps: IsrFlaps, key: TopicPartition, at_ms: int) -> None:
    flaps.on_isr(key, (1, 2, 3), (1, 2), at_ms)
    flaps.on_isr(key, (1, 2), (1, 2, 3), at_ms + 1_000)


def test_three_departures_in_ten_minutes_are_flapping() -> None:
    flaps = IsrFlaps()
    for minute in (0, 2):
        leave_and_rejoin(flaps, A, minute * MINUTE_MS)
    assert flaps.find(4 * MINUTE_MS) == []
    flaps.on_isr(A, (1, 2, 3), (1, 2), 4 * MINUTE_MS)
    assert flaps.find(5 * MINUTE_MS) == [Flapping(3, (A,), 3, 5 * MINUTE_MS)]


def test_departures_from_different_isrs_are_not_added_up() -> None:
    flaps = IsrFlaps()
    for number in range(50):  # the broker was restarted
        flaps.on_isr(TopicPartition("t", number), (1, 2, 3), (1, 2), number)
    assert flaps.find(100) == []


def test_old_departures_do_not_count() -> None:
    flaps = IsrFlaps()
    for minute in (0, 6, 12):
        leave_and_rejoin(flaps, A, minute * MINUTE_MS)
    assert flaps.find(12 * MINUTE_MS) == []
    leave_and_rejoin(flaps, A, 15 * MINUTE_MS)
    assert [each.span_ms for each in flaps.find(15 * MINUTE_MS)] == [9 * MINUTE_MS]


def test_a_broker_is_news_once_in_ten_minutes_with_all_its_partitions() -> None:
    flaps = IsrFlaps()
    for minute in range(3):
        leave_and_rejoin(flaps, B, minute * MINUTE_MS)
        leave_and_rejoin(flaps, A, minute * MINUTE_MS)
    (news,) = flaps.take_news(3 * MINUTE_MS)
    assert news == Flapping(3, (A, B), 3, 3 * MINUTE_MS)
    for minute in range(3, 12):
        leave_and_rejoin(flaps, A, minute * MINUTE_MS)
        assert flaps.take_news(minute * MINUTE_MS) == []
    later_ms = 3 * MINUTE_MS + SPAN_MS
    leave_and_rejoin(flaps, A, later_ms)
    assert [each.broker_id for each in flaps.take_news(later_ms)] == [3]


def test_what_is_remembered_has_a_limit() -> None:
    flaps = IsrFlaps(times_min=1)
    for number in range(REPLICAS_MAX + 5):
        flaps.on_isr(TopicPartition("t", number), (1, 2), (1,), number)
    (found,) = flaps.find(REPLICAS_MAX + 5)
    assert len(found.partitions) == REPLICAS_MAX
    assert TopicPartition("t", 4) not in found.partitions
