"""A client's metrics as Kafka's tools print them: one a line, in the order of their names."""

from collections.abc import Iterator
from math import isnan

from odradek.client.metrics import Metrics


def metric_lines(metrics: Metrics) -> Iterator[str]:
    named = sorted((str(name), value) for name, value in metrics.items())
    width = max((len(name) for name, _ in named), default=0)
    yield ""
    yield f"{'Metric Name':{width}}   Value"
    for name, value in named:
        yield f"{name:{width}} : {'NaN' if isnan(value) else f'{value:.3f}'}"
