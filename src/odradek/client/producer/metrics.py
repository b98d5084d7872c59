"""Figures of a producer, under the names of Kafka's: told of once per batch or request.

Sizes and times of batches count when a batch is sent, each time it is; records that fail or are
sent again count then. Not there: how well batches are compressed, sizes of single records, and the
time that calls of transactions take.
"""

from collections.abc import Sequence
from typing import Final

from odradek.client.metrics import Clock, Meter, Meters, NetworkMetrics, Report
from odradek.client.producer.batch import ProducerBatch
from odradek.client.producer.buffer_pool import BufferPool

TOPICS_MAX: Final = 10_000
"""Topics with figures of their own; those of others count for the whole only."""
_NS_PER_MS: Final = 1_000_000


class _TopicMetrics:
    __slots__ = ("bytes", "errors", "records", "retries")

    def __init__(self, now_ms: float) -> None:
        self.records = Meter(now_ms)
        self.bytes = Meter(now_ms)
        self.retries = Meter(now_ms)
        self.errors = Meter(now_ms)


def _collect_records(
    records: Meter | Meters, retries: Meter | Meters, errors: Meter | Meters, into: Report
) -> None:
    into.add_amounts("record-send", records)
    into.add_amounts("record-retry", retries)
    into.add_amounts("record-error", errors)


class ProducerMetrics:
    def __init__(self, clock: Clock, pool: BufferPool) -> None:
        now_ms = clock()
        self._clock = clock
        self._pool = pool
        self._topics: dict[str, _TopicMetrics] = {}
        self._others = _TopicMetrics(now_ms)
        self._batch_sizes = Meter(now_ms)
        self._queue_times = Meter(now_ms)
        self._records_per_request = Meter(now_ms)
        self._splits = Meter(now_ms)
        self._waits = Meter(now_ms)
        self._exhausted = Meter(now_ms)

    def on_sent(self, batches: Sequence[ProducerBatch]) -> None:
        """Batches go out in one request."""
        now_ms = self._clock()
        records = 0
        for batch in batches:
            size = len(batch.build())
            records += batch.count
            self._batch_sizes.record(size, now_ms)
            self._queue_times.record(now_ms - batch.created_ms, now_ms)
            topic = self._topic(batch)
            topic.records.record(batch.count, now_ms)
            topic.bytes.record(size, now_ms)
        self._records_per_request.record(records, now_ms)

    def on_retry(self, batch: ProducerBatch) -> None:
        self._topic(batch).retries.record(batch.count, self._clock())

    def on_split(self) -> None:
        self._splits.record(1, self._clock())

    def on_failed(self, batch: ProducerBatch) -> None:
        self._topic(batch).errors.record(batch.count, self._clock())

    def on_memory_wait(self, began_ms: float, *, is_granted: bool) -> None:
        """Somebody waited for memory, and got it or not."""
        now_ms = self._clock()
        self._waits.record((now_ms - began_ms) * _NS_PER_MS, now_ms)
        if not is_granted:
            self._exhausted.record(1, now_ms)

    def _topic(self, batch: ProducerBatch) -> _TopicMetrics:
        topic = batch.partition.topic
        found = self._topics.get(topic)
        if found is None:
            if len(self._topics) >= TOPICS_MAX:
                return self._others
            found = self._topics[topic] = _TopicMetrics(self._clock())
        return found

    def collect(self, into: Report, network: NetworkMetrics, requests_in_flight: int) -> None:
        into.group("producer-metrics")
        everything = [*self._topics.values(), self._others]
        retries = Meters(each.retries for each in everything)
        errors = Meters(each.errors for each in everything)
        _collect_records(self._records_per_request, retries, errors, into)
        into.add_spread("batch-size", self._batch_sizes)
        into.add_spread("record-queue-time", self._queue_times)
        into.add_spread("request-latency", network.latency("Produce"))
        into.add_average("records-per-request", self._records_per_request)
        into.add_events("batch-split", self._splits)
        into.add("requests-in-flight", requests_in_flight)
        into.add("buffer-total-bytes", self._pool.total_bytes)
        into.add("buffer-available-bytes", self._pool.free_bytes)
        into.add("waiting-threads", self._pool.waiting)
        into.add("bufferpool-wait-time-ns-total", self._waits.total)
        into.add_events("buffer-exhausted", self._exhausted)
        for topic, metrics in self._topics.items():
            into.group("producer-topic-metrics", topic=topic)
            _collect_records(metrics.records, metrics.retries, metrics.errors, into)
            into.add_amounts("byte", metrics.bytes)
