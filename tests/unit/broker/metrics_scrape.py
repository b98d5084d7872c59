"""A scrape as a test reads it: parsed by prometheus_client, which is strict, and by name."""

import asyncio
from collections.abc import Iterator

from prometheus_client.parser import text_string_to_metric_families

from odradek.testing.broker import Broker

SECONDS_MAX = 120


class Scrape:
    def __init__(self, text: bytes) -> None:
        self.types: dict[str, str] = {}
        self._samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        for family in text_string_to_metric_families(text.decode()):
            assert family.documentation, f"{family.name} does not say what it is"
            self.types[family.name] = family.type
            for sample in family.samples:
                key = sample.name, frozenset(sample.labels.items())
                assert key not in self._samples, f"{key} is there twice: Prometheus refuses that"
                self._samples[key] = sample.value

    def value(self, name: str, **labels: str) -> float:
        return self._samples[name, frozenset(labels.items())]

    def labels(self, name: str) -> list[dict[str, str]]:
        return [dict(labels) for key, labels in self._samples if key == name]

    def names(self) -> Iterator[str]:
        return (name for name, _ in self._samples)

    def __contains__(self, name: str) -> bool:
        return name in set(self.names())


def scrape(broker: Broker) -> Scrape:
    """Ask on the broker's own loop: behind what it is at, and while nothing else changes."""

    async def text() -> bytes:
        broker.node.broker.metrics.clients.check_invariants()
        return broker.node.broker.metrics.text()

    assert broker._loop is not None
    return Scrape(asyncio.run_coroutine_threadsafe(text(), broker._loop).result(SECONDS_MAX))
