"""Bars made of characters: a plot for whoever has nothing but a terminal."""

from collections.abc import Mapping
from typing import Final

_EIGHTHS: Final = " ▏▎▍▌▋▊▉"
_FULL: Final = "█"


def bar(share: float, width: int) -> str:
    """Return a bar that fills such a share of the width, to an eighth of a character."""
    eighths = round(max(0.0, min(share, 1.0)) * width * 8)
    full, part = divmod(eighths, 8)
    return (_FULL * full + (_EIGHTHS[part] if part else "")).ljust(width)


def bar_chart(title: str, values: Mapping[str, float], width: int = 50) -> list[str]:
    """Return the lines of a chart: a bar for each value, the longest for the largest."""
    largest = max(values.values(), default=0.0)
    labels = max((len(label) for label in values), default=0)
    lines = [title]
    for label, value in values.items():
        share = value / largest if largest > 0 else 0.0
        lines.append(f"{label.rjust(labels)} │{bar(share, width)} {value:.2f}")
    return lines
