"""Figures of a client under Kafka's names: what went over its connections, and how to keep others.

A ``Meter`` keeps totals, and sums over a window of 30 to 60 seconds for rates, averages and maxima,
as Kafka's clients do by default. Recording costs the same however much it stands for, so it is
done once per request, batch or fetch. As with Kafka's clients, what has no value yet is NaN.

Not there: Kafka's figures about threads and selectors, which asyncio has no counterpart of.
"""

from collections.abc import Callable, Iterable, Mapping
from math import nan
from typing import Final, NamedTuple

WINDOW_MS: Final = 30_000
NODES_MAX: Final = 1000
"""Brokers with figures of their own; those of others count for the whole only."""

Clock = Callable[[], float]
"""Milliseconds since whenever."""


class MetricName(NamedTuple):
    group: str
    name: str
    tags: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        """Return it as Kafka's tools print it."""
        tags = ", ".join(f"{name}={value}" for name, value in self.tags)
        return f"{self.group}:{self.name}:{{{tags}}}"


Metrics = Mapping[MetricName, float]


class Meter:
    """Values of one kind, as they come."""

    __slots__ = ("_before", "_count", "_max", "_start_ms", "_sum", "count", "last_ms", "total")

    def __init__(self, now_ms: float) -> None:
        self.total = 0.0
        self.count = 0
        self.last_ms = nan
        self._start_ms = now_ms
        self._sum, self._count, self._max = 0.0, 0, nan
        self._before = (0.0, 0, nan)

    def record(self, value: float, now_ms: float) -> None:
        if now_ms - self._start_ms >= WINDOW_MS:
            self._roll(now_ms)
        self.total += value
        self.count += 1
        self.last_ms = now_ms
        self._sum += value
        self._count += 1
        if not value <= self._max:
            self._max = value

    def _roll(self, now_ms: float) -> None:
        """Begin another window; the one before is kept if it is not too old."""
        windows = (now_ms - self._start_ms) // WINDOW_MS
        self._before = (self._sum, self._count, self._max) if windows == 1 else (0.0, 0, nan)
        self._sum, self._count, self._max = 0.0, 0, nan
        self._start_ms += windows * WINDOW_MS

    def rate(self, now_ms: float) -> float:
        """Return how much came in a second."""
        return (self._before[0] + self._sum) / self._seconds(now_ms)

    def frequency(self, now_ms: float) -> float:
        """Return how often something came in a second."""
        return (self._before[1] + self._count) / self._seconds(now_ms)

    def _seconds(self, now_ms: float) -> float:
        # At the beginning the window before counts as an empty one, as in Kafka.
        if now_ms - self._start_ms >= WINDOW_MS:
            self._roll(now_ms)
        return (now_ms - self._start_ms + WINDOW_MS) / 1000

    def window(self, now_ms: float) -> tuple[float, int]:
        """Return how much and how often it was lately."""
        self._seconds(now_ms)
        return self._before[0] + self._sum, self._before[1] + self._count

    def average(self, now_ms: float) -> float:
        amount, count = self.window(now_ms)
        return amount / count if count else nan

    def maximum(self, now_ms: float) -> float:
        self._seconds(now_ms)
        return max((each for each in (self._before[2], self._max) if each == each), default=nan)

    def seconds_ago(self, now_ms: float) -> float:
        """Return how long ago the last one came; -1 if none did."""
        return (now_ms - self.last_ms) / 1000 if self.count else -1.0


class Meters:
    """Several meters as one: so that nothing has to be recorded twice."""

    def __init__(self, meters: Iterable[Meter]) -> None:
        self._meters = list(meters)

    @property
    def total(self) -> float:
        return sum(each.total for each in self._meters)

    @property
    def count(self) -> int:
        return sum(each.count for each in self._meters)

    def rate(self, now_ms: float) -> float:
        return sum(each.rate(now_ms) for each in self._meters)

    def frequency(self, now_ms: float) -> float:
        return sum(each.frequency(now_ms) for each in self._meters)

    def average(self, now_ms: float) -> float:
        windows = [each.window(now_ms) for each in self._meters]
        count = sum(count for _, count in windows)
        return sum(amount for amount, _ in windows) / count if count else nan

    def maximum(self, now_ms: float) -> float:
        found = [each.maximum(now_ms) for each in self._meters]
        return max((each for each in found if each == each), default=nan)


class Report:
    """Metrics in the making: one group with its tags at a time."""

    def __init__(self, client_id: str, now_ms: float) -> None:
        self.values: dict[MetricName, float] = {}
        self._client = ("client-id", client_id)
        self._now_ms = now_ms
        self._group = ""
        self._tags: tuple[tuple[str, str], ...] = ()

    def group(self, name: str, **tags: str) -> "Report":
        """Go on with a group; tags have underscores for dashes."""
        self._group = name
        others = tuple((tag.replace("_", "-"), value) for tag, value in tags.items())
        self._tags = (self._client, *others)
        return self

    def add(self, name: str, value: float) -> None:
        self.values[MetricName(self._group, name, self._tags)] = value

    def add_amounts(self, name: str, meter: Meter | Meters) -> None:
        """Add rate and total of what was recorded."""
        self.add(f"{name}-rate", meter.rate(self._now_ms))
        self.add(f"{name}-total", meter.total)

    def add_events(self, name: str, meter: Meter | Meters) -> None:
        """Add rate and total of how often something was recorded."""
        self.add(f"{name}-rate", meter.frequency(self._now_ms))
        self.add(f"{name}-total", meter.count)

    def add_spread(self, name: str, meter: Meter | Meters) -> None:
        """Add average and maximum."""
        self.add(f"{name}-avg", meter.average(self._now_ms))
        self.add(f"{name}-max", meter.maximum(self._now_ms))

    def add_average(self, name: str, meter: Meter) -> None:
        self.add(f"{name}-avg", meter.average(self._now_ms))


class Traffic:
    """Requests and responses of a broker."""

    __slots__ = ("latency", "requests", "responses")

    def __init__(self, now_ms: float) -> None:
        self.requests = Meter(now_ms)
        self.responses = Meter(now_ms)
        self.latency = Meter(now_ms)


def _collect_traffic(requests: Meter | Meters, responses: Meter | Meters, into: Report) -> None:
    into.add_amounts("outgoing-byte", requests)
    into.add_events("request", requests)
    into.add_spread("request-size", requests)
    into.add_amounts("incoming-byte", responses)
    into.add_events("response", responses)


class NetworkMetrics:
    """What all connections of a client do."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        now_ms = clock()
        self.closed = Meter(now_ms)
        self.created = Meter(now_ms)
        self.logins = Meter(now_ms)
        self.failed_logins = Meter(now_ms)
        self._nodes: dict[int, Traffic] = {}
        self._others = Traffic(now_ms)
        self._apis: dict[str, Meter] = {}

    def connection(self, node_id: int) -> "ConnectionMetrics":
        """Return where a connection to a broker tells what it does."""
        if node_id not in self._nodes and len(self._nodes) < NODES_MAX:
            self._nodes[node_id] = Traffic(self.clock())
        return ConnectionMetrics(self, self._nodes.get(node_id, self._others))

    def latency(self, api: str) -> Meter:
        """Return how long requests of an API took, in milliseconds."""
        found = self._apis.get(api)
        if found is None:
            found = self._apis[api] = Meter(self.clock())
        return found

    def collect(self, kind: str, into: Report) -> None:
        """Add it all; ``kind`` is what names of groups begin with."""
        into.group(f"{kind}-metrics")
        everything = [*self._nodes.values(), self._others]
        requests = Meters(each.requests for each in everything)
        _collect_traffic(requests, Meters(each.responses for each in everything), into)
        into.add("connection-count", self.created.count - self.closed.count)
        into.add_events("connection-creation", self.created)
        into.add_events("connection-close", self.closed)
        into.add_events("successful-authentication", self.logins)
        into.add_events("failed-authentication", self.failed_logins)
        for node_id, traffic in self._nodes.items():
            into.group(f"{kind}-node-metrics", node_id=f"node-{node_id}")
            _collect_traffic(traffic.requests, traffic.responses, into)
            into.add_spread("request-latency", traffic.latency)


class ConnectionMetrics:
    """What one connection does."""

    __slots__ = ("_network", "_node", "clock")

    def __init__(self, network: NetworkMetrics, node: Traffic) -> None:
        self.clock = network.clock
        self._network = network
        self._node = node

    def on_request(self, size: int, now_ms: float) -> None:
        self._node.requests.record(size, now_ms)

    def on_response(self, api: str, size: int, sent_ms: float) -> None:
        now_ms = self.clock()
        self._node.responses.record(size, now_ms)
        self._node.latency.record(now_ms - sent_ms, now_ms)
        self._network.latency(api).record(now_ms - sent_ms, now_ms)

    def on_connected(self) -> None:
        self._network.created.record(1, self.clock())

    def on_closed(self) -> None:
        self._network.closed.record(1, self.clock())

    def on_login(self, *, is_good: bool) -> None:
        network = self._network
        (network.logins if is_good else network.failed_logins).record(1, self.clock())
