"""Metrics that clients push (KIP-714): who pushes, for which subscription, and the latest values.

A client asks what it shall push, pushes it in its interval, and says when it goes. Of each client
the values of the last push are kept, until it says goodbye or is silent for three intervals; they
are shown as ``kafka_client_<name>`` with the client's labels. Only metrics that a subscription asks
for are kept, so without one nobody can make this node remember anything.

All of it is limited: clients, values of one and of all together, lengths of names. What is over a
limit is dropped and counted. The clients are forgotten with the process; their ids are not in the
metadata log.

Not implemented: refusing GetTelemetrySubscriptions that come too often.
"""

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from odradek.broker.metrics.client_subscriptions import ClientSubscriptions, Subscription
from odradek.broker.metrics.family import Family, Kind, Sample, counter, gauge
from odradek.broker.metrics.otlp import Labels, Point
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import Uuid

if TYPE_CHECKING:
    from odradek.broker.broker_server import BrokerServer

CLIENTS_MAX: Final = 4096
SERIES_PER_CLIENT_MAX: Final = 1000
SERIES_MAX: Final = 20_000
LABELS_MAX: Final = 16
NAME_CHARACTERS_MAX: Final = 200
SILENT_INTERVALS_MAX: Final = 3
REMEMBERED_MS_MIN: Final = 10_000

_STANDARD_PREFIX: Final = "org.apache.kafka."
_PREFIX: Final = "kafka_client_"
_HELP: Final = "Pushed by clients (KIP-714)."
_NOT_IN_A_NAME: Final = re.compile(r"[^a-zA-Z0-9_]")

Key = tuple[str, tuple[tuple[str, str], ...]]
"""A series: its name and its labels, as they are shown."""


class ClientInstance:
    """One client: what it says about itself, what it was told, and its latest values."""

    def __init__(self, instance_id: Uuid, attributes: Labels) -> None:
        self.instance_id = instance_id
        self.attributes = attributes
        self.series: dict[Key, float] = {}
        self.is_gone = False
        self._seen_ms = self._pushed_ms = 0
        self._may_push_now = True  # a client waits for a random part of the interval at first
        self._subscriptions: ClientSubscriptions | None = None
        self._subscription: Subscription | None = None

    def subscription(self, subscriptions: ClientSubscriptions) -> Subscription:
        """Return what this client shall push by these subscriptions."""
        if self._subscription is None or self._subscriptions is not subscriptions:
            self._subscriptions = subscriptions
            self._subscription = subscriptions.subscription_of(self.instance_id, self.attributes)
        return self._subscription

    def on_asked(self, now_ms: int) -> None:
        self._seen_ms = now_ms
        self._may_push_now = True

    def check_may_push(self, interval_ms: int, now_ms: int, *, is_last: bool) -> None:
        """Take note of a push.

        Raises:
            ApiError: INVALID_REQUEST after goodbye, THROTTLING_QUOTA_EXCEEDED before its time. The
                first push after a question and the last one may come at any time.
        """
        self._seen_ms = now_ms
        if self.is_gone:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{self.instance_id} said that it goes")
        is_early = not self._may_push_now and now_ms - self._pushed_ms < interval_ms
        if is_early and not is_last:
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"{self.instance_id} is too early")
        self._pushed_ms, self._may_push_now = now_ms, False

    def is_silent(self, now_ms: int) -> bool:
        interval_ms = 0 if self._subscription is None else self._subscription.interval_ms
        remembered_ms = max(SILENT_INTERVALS_MAX * interval_ms, REMEMBERED_MS_MIN)
        return now_ms - self._seen_ms > remembered_ms


class ClientMetrics:
    def __init__(self, broker: "BrokerServer") -> None:
        self._broker = broker
        self._subscriptions = ClientSubscriptions({})
        self._clients: dict[Uuid, ClientInstance] = {}  # those heard of last come last
        self._series_count = 0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._clients)

    def current_subscriptions(self) -> ClientSubscriptions:
        """Return the subscriptions as the image has them now."""
        configs = self._broker.image.configs
        if self._subscriptions.configs is not configs:
            self._subscriptions = ClientSubscriptions(configs)
        return self._subscriptions

    def client(self, instance_id: Uuid, attributes: Labels) -> ClientInstance:
        """Return the client of this id; a new one if nobody knows it, or not any more."""
        found = self._clients.pop(instance_id, None)
        if found is None:
            self._make_room()
            found = ClientInstance(instance_id, attributes)
        self._clients[instance_id] = found
        return found

    def take(self, client: ClientInstance, wanted: Subscription, points: Iterable[Point]) -> None:
        """Keep the values of a push in place of those of the last one."""
        before = client.series
        room = min(SERIES_PER_CLIENT_MAX, SERIES_MAX - self._series_count + len(before))
        series: dict[Key, float] = {}
        dropped = 0
        for point in points:
            if not wanted.includes(point.name):
                continue
            key = _key(point, client)
            if key not in series and len(series) >= room:
                dropped += 1
                continue
            series[key] = point.value + (before.get(key, 0) if point.is_delta else 0)
        # Only now: a payload that turns out to be malformed half-way changes nothing.
        self.dropped += dropped
        self._replace(client, series)

    def forget_series(self, client: ClientInstance) -> None:
        self._replace(client, {})

    def collect(self) -> Iterator[Family]:
        now_ms = self._broker.clock.monotonic_ms()
        for client in [each for each in self._clients.values() if each.is_silent(now_ms)]:
            self._remove(client)
        instances, dropped = len(self._clients), self.dropped
        yield gauge("kafka_server_client_metrics_instance_count", "Clients known.", instances)
        yield counter("odradek_client_metrics_dropped", "Values over a limit.", dropped)
        by_name: dict[str, list[Sample]] = {}
        for client in self._clients.values():
            for (name, labels), value in client.series.items():
                by_name.setdefault(name, []).append(Sample(dict(labels), value))
        for name, samples in sorted(by_name.items()):
            yield Family(name, _HELP, Kind.UNKNOWN, samples)

    def _make_room(self) -> None:
        if len(self._clients) >= CLIENTS_MAX:
            longest_unheard_of = next(iter(self._clients.values()))
            self._remove(longest_unheard_of)

    def _remove(self, client: ClientInstance) -> None:
        self._replace(client, {})
        del self._clients[client.instance_id]

    def _replace(self, client: ClientInstance, series: dict[Key, float]) -> None:
        self._series_count += len(series) - len(client.series)
        client.series = series

    def check_invariants(self) -> None:
        assert self._series_count == sum(len(each.series) for each in self._clients.values())
        assert self._series_count <= SERIES_MAX
        assert len(self._clients) <= CLIENTS_MAX


def _key(point: Point, client: ClientInstance) -> Key:
    labels = {
        _clean(name): text[:NAME_CHARACTERS_MAX]
        for name, text in list(point.labels.items())[:LABELS_MAX]
        if name
    }
    for name in ("client_id", "client_software_name", "client_software_version"):
        labels[name] = client.attributes.get(name, "")[:NAME_CHARACTERS_MAX]
    # What makes series of two clients different can be set by neither.
    labels["client_instance_id"] = str(client.instance_id)
    return _PREFIX + _clean(point.name.removeprefix(_STANDARD_PREFIX)), tuple(
        sorted(labels.items())
    )


def _clean(name: str) -> str:
    cleaned = _NOT_IN_A_NAME.sub("_", name[:NAME_CHARACTERS_MAX])
    # Prometheus' own labels begin with two underscores, and no name begins with a digit.
    return f"_{cleaned}" if cleaned[:1].isdigit() else re.sub(r"^__+", "_", cleaned)
