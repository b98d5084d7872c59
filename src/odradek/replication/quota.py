"""A bound on the bytes a second that some replicas may take: replication throttles.

The rate is Kafka's ``SimpleRate``: the bytes of the last samples over the time since the first of
them began, or over one sample if that is more. A quota is asked before bytes are read or asked for,
and hears afterwards how many they were. So it may be exceeded by one answer, and then nothing
passes until the rate is down again: over the length of all samples the bound holds.

Bytes of throttled partitions always count, those of replicas in sync too. But those are never held
back: a throttle must not make an ISR shrink.
"""

from collections import deque
from collections.abc import Collection, Mapping
from typing import Final

UNBOUNDED: Final = 2**63 - 1
RETRY_MS_MIN: Final = 10
"""The shortest wait for a rate to fall: what waits does not spin."""
RETRY_MS_MAX: Final = 1_000
"""The longest one: meanwhile the bound may have changed."""
ALL_REPLICAS: Final = "*"


class _Sample:
    __slots__ = ("count", "last_ms", "start_ms")

    def __init__(self, start_ms: int) -> None:
        self.start_ms = start_ms
        self.last_ms = start_ms
        self.count = 0


class WindowedRate:
    """Bytes a second over the last samples; ``now_ms`` never goes back."""

    def __init__(self, samples: int, sample_ms: int) -> None:
        assert samples >= 1
        assert sample_ms >= 1
        self._samples_max = samples + 1  # one may have begun before the time that is looked at
        self._sample_ms = sample_ms
        self._kept_ms = samples * sample_ms
        self._samples: deque[_Sample] = deque()
        self._total = 0

    def record(self, count: int, now_ms: int) -> None:
        samples = self._samples
        if not samples or now_ms - samples[-1].start_ms >= self._sample_ms:
            samples.append(_Sample(now_ms))
            if len(samples) > self._samples_max:
                self._drop_oldest()
        newest = samples[-1]
        newest.last_ms = now_ms
        newest.count += count
        self._total += count

    def per_second(self, now_ms: int) -> float:
        self._drop_expired(now_ms)
        if not self._samples:
            return 0.0
        elapsed_ms = max(now_ms - self._samples[0].start_ms, self._sample_ms)
        return self._total * 1000 / elapsed_ms

    def begin(self, now_ms: int) -> None:
        """Measure from now on, unless it is measured already."""
        self._drop_expired(now_ms)
        if not self._samples:
            self._samples.append(_Sample(now_ms))

    def falls_to_at_ms(self, bound: int, now_ms: int) -> int:
        """Return when the rate is down to ``bound``, if all samples last until then."""
        self._drop_expired(now_ms)
        if not self._samples or bound <= 0:
            return now_ms + self._kept_ms
        return self._samples[0].start_ms + -(-self._total * 1000 // bound)

    def _drop_expired(self, now_ms: int) -> None:
        while self._samples and now_ms - self._samples[0].last_ms >= self._kept_ms:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        self._total -= self._samples.popleft().count

    def check_invariants(self) -> None:
        assert self._total == sum(each.count for each in self._samples) >= 0
        assert len(self._samples) <= self._samples_max
        starts = [each.start_ms for each in self._samples]
        assert starts == sorted(starts)


class ReplicationQuota:
    """One side's throttle: its bound, the partitions that it is for, and the rate of these."""

    def __init__(self, samples: int, sample_ms: int) -> None:
        self.bound = UNBOUNDED
        self.rate = WindowedRate(samples, sample_ms)
        self._throttled: dict[str, frozenset[int] | None] = {}

    def throttle(self, topic: str, partitions: Collection[int] | None) -> None:
        """Throttle these partitions of a topic and no others; None is all of them."""
        if partitions is not None and not partitions:
            self._throttled.pop(topic, None)
        else:
            self._throttled[topic] = None if partitions is None else frozenset(partitions)

    @property
    def is_used(self) -> bool:
        """Whether any partition is throttled: if not, there is nothing else to ask."""
        return bool(self._throttled)

    @property
    def throttled(self) -> Mapping[str, frozenset[int] | None]:
        return self._throttled

    def is_throttled(self, topic: str, partition: int) -> bool:
        if topic not in self._throttled:
            return False
        partitions = self._throttled[topic]
        return partitions is None or partition in partitions

    def is_exceeded(self, now_ms: int) -> bool:
        """Return whether to hold back what is throttled; the rate is measured from then on."""
        if self.bound == UNBOUNDED:
            return False
        self.rate.begin(now_ms)
        return self.rate.per_second(now_ms) > self.bound

    def record(self, count: int, now_ms: int) -> None:
        """Count bytes of throttled partitions; they pass, whatever the rate is."""
        self.rate.record(count, now_ms)

    def retry_at_ms(self, now_ms: int) -> int:
        """Return when to ask again whether it is exceeded."""
        due_ms = self.rate.falls_to_at_ms(self.bound, now_ms)
        return min(max(due_ms, now_ms + RETRY_MS_MIN), now_ms + RETRY_MS_MAX)


def throttled_partitions(text: str, node_id: int) -> frozenset[int] | None:
    """Return which partitions of a topic are throttled here, from its config; None is all.

    The config is ``*`` or a list of ``partition:broker``; it was checked when it was set.
    """
    text = text.strip()
    if text == ALL_REPLICAS:
        return None
    pairs = [each.split(":") for each in text.split(",") if each.strip()]
    return frozenset(int(partition) for partition, broker in pairs if int(broker) == node_id)
