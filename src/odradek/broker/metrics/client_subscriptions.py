"""Which metrics which clients shall push, and how often: ``client-metrics`` resources (KIP-714).

A client gets the union of all subscriptions that match it, at the shortest of their intervals.
The id of the outcome depends on nothing else, and on the client, so another broker, or this one
after a restart, gives the same; a client that pushes for an old one is told so and asks again.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from crc32c import crc32c

from odradek.core.config import CLIENT_METRICS_CONFIGS
from odradek.core.config.client_match import ClientMatch, is_match, parse_client_match
from odradek.core.config.values import ConfigError, ConfigValue
from odradek.core.errors import ApiError
from odradek.core.ids import Uuid
from odradek.metadata.config_resource import ConfigResource, ResourceType

Configs = Mapping[ConfigResource, Mapping[str, str]]

ALL_METRICS: Final = "*"
INTERVAL_MS_MAX: Final = 300_000
"""Kafka's default, and the most: what no subscription matches comes back that often to ask."""


class Subscription(NamedTuple):
    """What one client is told."""

    id: int
    metrics: tuple[str, ...]
    """Prefixes of names; ``*`` alone is everything, empty is nothing."""
    interval_ms: int

    def includes(self, metric: str) -> bool:
        return self.metrics == (ALL_METRICS,) or metric.startswith(self.metrics)


class _Resource(NamedTuple):
    metrics: tuple[str, ...]
    interval_ms: int
    match: ClientMatch


class ClientSubscriptions:
    """The subscriptions of an image; ``configs`` is the image's, and never changes."""

    def __init__(self, configs: Configs) -> None:
        self.configs = configs
        self._resources = [
            found
            for resource, resource_configs in sorted(configs.items())
            if resource.type is ResourceType.CLIENT_METRICS
            and (found := _read(resource_configs)) is not None
        ]

    def subscription_of(self, instance_id: Uuid, client: Mapping[str, str]) -> Subscription:
        """Return what a client that says this about itself shall push."""
        metrics: set[str] = set()
        interval_ms = INTERVAL_MS_MAX
        for resource in self._resources:
            if is_match(resource.match, client):
                metrics.update(resource.metrics)
                interval_ms = min(interval_ms, resource.interval_ms)
        wanted = (ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics))
        number = crc32c(f"{','.join(wanted)} {interval_ms}".encode()) ^ crc32c(instance_id)
        return Subscription(_signed_32(number), wanted, interval_ms)


def _read(configs: Mapping[str, str]) -> _Resource | None:
    """Return a resource; None if it cannot be used, as a pattern that only Java understands."""
    try:
        values: dict[str, ConfigValue | None] = {
            name: definition.parse(configs[name]) if name in configs else definition.default
            for name, definition in CLIENT_METRICS_CONFIGS.items()
        }
        metrics, interval_ms, match = values["metrics"], values["interval.ms"], values["match"]
        assert isinstance(metrics, tuple)
        assert isinstance(interval_ms, int)
        assert isinstance(match, tuple)
        return _Resource(metrics, interval_ms, parse_client_match(match))
    except (ApiError, ConfigError):
        return None


def _signed_32(number: int) -> int:
    return number - (1 << 32) if number >= 1 << 31 else number
