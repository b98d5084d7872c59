"""Figures of a consumer, under the names of Kafka's: told of once per fetch, list or table.

Records count as consumed when they are handed over, their bytes when their fetch is used up. Lags
are those of the moment, where Kafka's have a window. Not there: leads, and the time that rebalances
and their listeners take.
"""

from typing import Final

from odradek.client.consumer.subscription import PartitionState, Subscription
from odradek.client.metrics import Clock, Meter, Meters, NetworkMetrics, Report

TOPICS_MAX: Final = 10_000
"""Topics with figures of their own; those of others count for the whole only."""
_HEARTBEATS: Final = {"classic": "Heartbeat", "consumer": "ConsumerGroupHeartbeat"}


class _Consumed:
    __slots__ = ("bytes", "records")

    def __init__(self, now_ms: float) -> None:
        self.records = Meter(now_ms)
        self.bytes = Meter(now_ms)


def _collect_consumed(records: Meter | Meters, size: Meter | Meters, into: Report) -> None:
    into.add_amounts("records-consumed", records)
    into.add_amounts("bytes-consumed", size)


class ConsumerMetrics:
    def __init__(self, clock: Clock, subscription: Subscription, *, is_committed: bool) -> None:
        now_ms = clock()
        self._clock = clock
        self._subscription = subscription
        self._is_committed = is_committed
        self._topics: dict[str, _Consumed] = {}
        self._others = _Consumed(now_ms)
        self._fetch_sizes = Meter(now_ms)
        self._between_polls = Meter(now_ms)
        self._polled_ms: float | None = None

    def on_poll(self) -> None:
        now_ms = self._clock()
        if self._polled_ms is not None:
            self._between_polls.record(now_ms - self._polled_ms, now_ms)
        self._polled_ms = now_ms

    def on_fetched(self, size: int) -> None:
        """A fetch has brought so many bytes of records."""
        self._fetch_sizes.record(size, self._clock())

    def on_consumed(self, topic: str, records: int, size: int) -> None:
        """Records were handed over; with the last of a fetch, its bytes."""
        now_ms = self._clock()
        consumed = self._topic(topic)
        consumed.records.record(records, now_ms)
        if size:
            consumed.bytes.record(size, now_ms)

    def _topic(self, topic: str) -> _Consumed:
        found = self._topics.get(topic)
        if found is None:
            if len(self._topics) >= TOPICS_MAX:
                return self._others
            found = self._topics[topic] = _Consumed(self._clock())
        return found

    def lag_of(self, state: PartitionState) -> int | None:
        """Return how many offsets are behind the position; None while that is not known."""
        end = state.last_stable_offset if self._is_committed else state.high_watermark
        if end is None or state.position is None:
            return None
        return max(0, end - state.position.offset)

    def collect(self, into: Report, network: NetworkMetrics, protocol: str) -> None:
        self._collect_fetches(into.group("consumer-fetch-manager-metrics"), network)
        for topic, consumed in self._topics.items():
            into.group("consumer-fetch-manager-metrics", topic=topic)
            _collect_consumed(consumed.records, consumed.bytes, into)
        self._collect_lags(into)
        self._collect_coordinator(into.group("consumer-coordinator-metrics"), network, protocol)
        into.group("consumer-metrics")
        into.add_spread("time-between-poll", self._between_polls)
        ago = -1.0 if self._polled_ms is None else (self._clock() - self._polled_ms) / 1000
        into.add("last-poll-seconds-ago", ago)

    def _collect_fetches(self, into: Report, network: NetworkMetrics) -> None:
        fetches = network.latency("Fetch")
        everything = [*self._topics.values(), self._others]
        records = Meters(each.records for each in everything)
        _collect_consumed(records, Meters(each.bytes for each in everything), into)
        into.add_spread("fetch-size", self._fetch_sizes)
        into.add_spread("fetch-latency", fetches)
        into.add_events("fetch", fetches)
        per_request = records.total / fetches.count if fetches.count else 0.0
        into.add("records-per-request-avg", per_request)

    def _collect_lags(self, into: Report) -> None:
        lags = []
        for partition, state in self._subscription.partitions.items():
            lag = self.lag_of(state)
            if lag is not None:
                lags.append(lag)
                number = str(partition.partition)
                into.group(
                    "consumer-fetch-manager-metrics", topic=partition.topic, partition=number
                )
                into.add("records-lag", lag)
        into.group("consumer-fetch-manager-metrics")
        into.add("records-lag-max", max(lags, default=float("nan")))

    def _collect_coordinator(self, into: Report, network: NetworkMetrics, protocol: str) -> None:
        now_ms = self._clock()
        commits, heartbeats = (
            network.latency("OffsetCommit"),
            network.latency(_HEARTBEATS[protocol]),
        )
        into.add("assigned-partitions", len(self._subscription.partitions))
        into.add_spread("commit-latency", commits)
        into.add_events("commit", commits)
        into.add_events("heartbeat", heartbeats)
        into.add("heartbeat-response-time-max", heartbeats.maximum(now_ms))
        into.add("last-heartbeat-seconds-ago", heartbeats.seconds_ago(now_ms))
        for name, api in (("join", "JoinGroup"), ("sync", "SyncGroup")):
            into.add_spread(f"{name}-time", network.latency(api))
            into.add_events(name, network.latency(api))
