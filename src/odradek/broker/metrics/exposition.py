"""Families as Prometheus' text. The only module that knows prometheus_client, and imported late."""

from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric

from odradek.broker.metrics.family import Family, Kind, Sample

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

SAMPLES_PER_CHUNK_MAX: Final = 500
"""A few milliseconds' worth."""

_SUFFIXES: Final = {Kind.COUNTER: "_total"}


class _One:
    """A registry of a single metric, which is all that the writer needs."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        return [self._metric]


def text_of(family: Family) -> Iterator[bytes]:
    """Return the lines of a family, in chunks; none if it has no samples."""
    for start in range(0, len(family.samples), SAMPLES_PER_CHUNK_MAX):
        text = _lines(family, family.samples[start : start + SAMPLES_PER_CHUNK_MAX])
        # The two lines of comment stand once, before the first sample.
        yield text if start == 0 else text.split(b"\n", 2)[2]


def _lines(family: Family, samples: list[Sample]) -> bytes:
    metric = Metric(family.name, family.help, family.kind.value)
    suffix = _SUFFIXES.get(family.kind, "")
    for sample in samples:
        name = family.name + (sample.suffix or suffix)
        metric.add_sample(name, dict(sample.labels), sample.value)
    return generate_latest(_One(metric))
