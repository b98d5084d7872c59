"""Throughput by number of partitions as a picture, by matplotlib: the extra ``plot``."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from odradek.cli.partition_sweep import Measured

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_INCHES: Final = (8.0, 5.0)
_DOTS_PER_INCH: Final = 120


def can_draw() -> bool:
    return find_spec("matplotlib") is not None


def sweep_figure(found: Sequence[Measured], title: str) -> "Figure":
    """Draw both curves over a scale on which twice as many partitions are one step."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=_INCHES, dpi=_DOTS_PER_INCH, layout="constrained")
    axes = figure.subplots()
    counts = [each.partitions for each in found]
    axes.plot(counts, [each.producer_mb_sec for each in found], "o-", label="producer")
    axes.plot(counts, [each.consumer_mb_sec for each in found], "s--", label="consumer")
    axes.set_xscale("log", base=2)
    axes.set_xticks(counts, labels=[str(each) for each in counts], minor=False)
    axes.set_xticks([], minor=True)
    axes.set_xlabel("partitions")
    axes.set_ylabel("throughput in MB/sec (MB = 2²⁰ bytes)")
    axes.set_ylim(bottom=0)
    axes.set_title(title)
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    return figure


def draw_png(found: Sequence[Measured], title: str, path: Path) -> None:
    sweep_figure(found, title).savefig(path, format="png")
