"""CPU, memory and descriptors of this process (``process_…``), as prometheus_client reads them."""

from collections.abc import Iterator

from prometheus_client.process_collector import ProcessCollector

from odradek.broker.metrics.family import Family, Kind, Sample


def process_families() -> Iterator[Family]:
    for metric in ProcessCollector(registry=None).collect():
        samples = [Sample(sample.labels, sample.value) for sample in metric.samples]
        yield Family(metric.name, metric.documentation, Kind(metric.type), samples)
