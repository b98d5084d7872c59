"""Which replicas leave ISRs and rejoin them again and again.

A replica that leaves an ISR once has failed or was restarted. One that leaves the same ISR several
times in ``SPAN_MS`` must have rejoined in between: it is too slow for ``replica.lag.time.max.ms``,
or its broker stands still now and then. Each change looks like any other, so it takes a memory to
see it. Whoever sees ISRs change may keep one: a leader, or a client that looks at them.
"""

from collections import OrderedDict, deque
from collections.abc import Collection
from typing import Final, NamedTuple

from odradek.core.ids import TopicPartition

SPAN_MS: Final = 600_000
TIMES_MIN: Final = 3
REPLICAS_MAX: Final = 20_000
"""Replicas that are remembered; of more, those that left longest ago are forgotten."""


class Flapping(NamedTuple):
    """A broker whose replicas flap."""

    broker_id: int
    partitions: tuple[TopicPartition, ...]
    times: int
    """How often each of them left its ISR ..."""
    span_ms: int
    """... in so long, or less."""


class IsrFlaps:
    def __init__(self, times_min: int = TIMES_MIN, span_ms: int = SPAN_MS) -> None:
        """``times_min`` departures from one ISR within ``span_ms`` are flapping."""
        self._times_min = times_min
        self._span_ms = span_ms
        self._departures: OrderedDict[tuple[TopicPartition, int], deque[int]] = OrderedDict()
        self._told_ms: dict[int, int] = {}
        self._may_have_news = False

    def on_isr(
        self, key: TopicPartition, before: Collection[int], now: Collection[int], now_ms: int
    ) -> None:
        """Take note that the ISR of a partition has changed."""
        for broker_id in before:
            if broker_id not in now:
                self._on_left((key, broker_id), now_ms)

    def _on_left(self, replica: tuple[TopicPartition, int], now_ms: int) -> None:
        times = self._departures.setdefault(replica, deque(maxlen=self._times_min))
        times.append(now_ms)
        self._departures.move_to_end(replica)
        if len(self._departures) > REPLICAS_MAX:
            self._departures.popitem(last=False)
        if self._flaps(times, now_ms) and not self._was_told(replica[1], now_ms):
            self._may_have_news = True

    def _flaps(self, times: deque[int], now_ms: int) -> bool:
        return len(times) >= self._times_min and now_ms - times[0] <= self._span_ms

    def _was_told(self, broker_id: int, now_ms: int) -> bool:
        told_ms = self._told_ms.get(broker_id)
        return told_ms is not None and now_ms - told_ms < self._span_ms

    def find(self, now_ms: int) -> list[Flapping]:
        """Return the brokers whose replicas flap."""
        found: dict[int, list[tuple[TopicPartition, deque[int]]]] = {}
        for (key, broker_id), times in self._departures.items():
            if self._flaps(times, now_ms):
                found.setdefault(broker_id, []).append((key, times))
        return [
            Flapping(
                broker_id,
                tuple(sorted(key for key, _ in replicas)),
                self._times_min,
                now_ms - min(times[0] for _, times in replicas),
            )
            for broker_id, replicas in sorted(found.items())
        ]

    def take_news(self, now_ms: int) -> list[Flapping]:
        """Return those that were not returned in the last ``span_ms``."""
        if not self._may_have_news:  # the usual case, and thousands of ISRs may change at once
            return []
        self._may_have_news = False
        news = [each for each in self.find(now_ms) if not self._was_told(each.broker_id, now_ms)]
        self._told_ms.update({each.broker_id: now_ms for each in news})
        return news
