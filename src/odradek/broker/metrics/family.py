"""A metric as collectors give it: a name, a kind, and samples with their labels."""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

NO_LABELS: Final[Mapping[str, str]] = {}


class Kind(StrEnum):
    """The types of the text format; samples of a COUNTER are named ``…_total``."""

    COUNTER = "counter"
    GAUGE = "gauge"
    SUMMARY = "summary"
    UNKNOWN = "unknown"


class Sample(NamedTuple):
    labels: Mapping[str, str]
    value: float
    suffix: str = ""
    """What stands behind the family's name: ``_count`` and ``_sum`` of a summary."""


class Family(NamedTuple):
    name: str
    """Without the ``_total`` of a counter."""
    help: str
    kind: Kind
    samples: list[Sample]
    """No two with the same labels: a scrape that holds such a pair is refused as a whole."""


Collector = Callable[[], Iterable[Family]]
"""Called on the event loop at every scrape. It may be suspended between two families."""


def gauge(name: str, help_text: str, value: float) -> Family:
    """Return a family of one sample without labels."""
    return Family(name, help_text, Kind.GAUGE, [Sample(NO_LABELS, value)])


def counter(name: str, help_text: str, value: float) -> Family:
    """Return a family of one sample without labels; ``name`` is without ``_total``."""
    return Family(name, help_text, Kind.COUNTER, [Sample(NO_LABELS, value)])
