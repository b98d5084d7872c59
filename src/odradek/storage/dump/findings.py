"""What the checks of a run found, kept until all files are dumped and then told file by file."""

from collections.abc import Iterator, Mapping
from typing import TypeAlias

Pairs: TypeAlias = list[tuple[int, int]]


class Findings:
    """Keys are absolute paths, in the order in which the files were named.

    Kafka tells files in the order of a hash map. Within a file the order is Kafka's.
    """

    def __init__(self) -> None:
        self._index_mismatches: dict[str, dict[int, int]] = {}
        self._timestamp_mismatches: dict[str, Pairs] = {}
        self._timestamps_out_of_order: dict[str, Pairs] = {}
        self._offsets_not_found: dict[str, Pairs] = {}
        self._gaps: dict[str, dict[int, int]] = {}

    def index_mismatch(self, path: str, index_offset: int, log_offset: int) -> None:
        self._index_mismatches.setdefault(path, {})[index_offset] = log_offset

    def timestamp_mismatch(self, path: str, indexed: int, in_log: int) -> None:
        self._timestamp_mismatches.setdefault(path, []).append((indexed, in_log))

    def timestamp_out_of_order(self, path: str, indexed: int, before: int) -> None:
        self._timestamps_out_of_order.setdefault(path, []).append((indexed, before))

    def offset_not_found(self, path: str, indexed: int, in_log: int) -> None:
        self._offsets_not_found.setdefault(path, []).append((indexed, in_log))

    def gap(self, path: str, offset: int, next_offset: int) -> None:
        self._gaps.setdefault(path, {})[offset] = next_offset

    def lines(self) -> Iterator[str]:
        mismatches = {
            path: sorted(found.items(), reverse=True)
            for path, found in self._index_mismatches.items()
        }
        gaps = {path: sorted(found.items()) for path, found in self._gaps.items()}
        yield from _told("Mismatches in :", "  Index offset: {}, log offset: {}", mismatches)
        yield from _told(
            "Found timestamp mismatch in :",
            "  Index timestamp: {}, log timestamp: {}",
            self._timestamp_mismatches,
        )
        yield from _told(
            "Found out of order timestamp in :",
            "  Index timestamp: {}, Previously indexed timestamp: {}",
            self._timestamps_out_of_order,
        )
        yield from _told(
            "The following indexed offsets are not found in :",
            "Indexed offset: {}, found log offset: {}",
            self._offsets_not_found,
        )
        yield from _told("Non-consecutive offsets in ", "  {} is followed by {}", gaps)


def _told(head: str, form: str, found: Mapping[str, Pairs]) -> Iterator[str]:
    for path, pairs in found.items():
        yield f"{head}{path}"
        for pair in pairs:
            yield form.format(*pair)
