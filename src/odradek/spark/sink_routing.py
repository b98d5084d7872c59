"""Which rows go to which partition of which topic, a column at a time. Pure; hot path.

A row's partition is what its column says, else that of its key as Java's client chooses it, else
one that is stuck to until a batch is full. The first one of a task depends on the task and on the
micro-batch, so that many small ones do not all meet on one partition.

Benchmark: ``bench/spark_sink.py``.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import pyarrow.compute as pc

from odradek.core.ids import TopicPartition
from odradek.records.arrow import partitions_of_keys
from odradek.spark.sink_rows import BadRow, Numbers, Rows

_UNKNOWN: Final = -1


class TopicPartitions(NamedTuple):
    """What routing has to know of a topic; ``available`` are those with a leader, or all."""

    total: int
    available: Sequence[int]


class Routed(NamedTuple):
    parts: list[tuple[TopicPartition, Rows]]
    bad: list[BadRow]
    size: int
    """Bytes of all parts."""


class Router:
    """Routes the rows of one task."""

    def __init__(
        self,
        topic: str | None,
        *,
        first: int,
        stick_bytes: int,
        row_bytes_max: int,
        ignore_keys: bool = False,
    ) -> None:
        self._topic = topic
        self._first = first
        self._stick_bytes = max(1, stick_bytes)
        self._row_bytes_max = row_bytes_max
        self._ignore_keys = ignore_keys
        self._stuck_bytes: dict[str, int] = {}

    def topics_of(self, rows: Rows) -> list[str]:
        """Return the topics that rows want to go to."""
        if self._topic is not None:
            return [self._topic]
        column = rows.find("topic")
        assert column is not None, "the schema was checked"
        return [each for each in pc.unique(column).to_pylist() if each is not None]

    def route(self, rows: Rows, topics: Mapping[str, TopicPartitions | str]) -> Routed:
        """Tell where rows go; a topic that is a text in ``topics`` cannot be used, and why."""
        bad: list[BadRow] = []
        parts: list[tuple[TopicPartition, Rows]] = []
        size = 0
        for topic, some in self._by_topic(rows, bad):
            known = topics[topic]
            if isinstance(known, str):
                bad += [some.bad(i, known, topic, None) for i in range(len(some))]
                continue
            sizes = some.sizes()
            fit = self._sort_out(some, sizes, topic, bad)
            if fit is not None:
                some, sizes = some.take(fit), sizes[fit]
            size += int(sizes.sum())
            parts += self._by_partition(some, sizes, topic, known, bad)
        bad.sort()
        return Routed(parts, bad, size)

    def _by_topic(self, rows: Rows, bad: list[BadRow]) -> Iterator[tuple[str, Rows]]:
        if self._topic is not None:
            yield self._topic, rows
            return
        encoded = pc.dictionary_encode(rows.find("topic"))
        codes = np.asarray(pc.fill_null(encoded.indices, _UNKNOWN))
        reason = "null topic present in the data. Use the topic option for setting a topic."
        bad += [rows.bad(int(i), reason, None, None) for i in np.flatnonzero(codes == _UNKNOWN)]
        for code, topic in enumerate(encoded.dictionary.to_pylist()):
            chosen = np.flatnonzero(codes == code)
            yield topic, rows if len(chosen) == len(rows) else rows.take(chosen)

    def _sort_out(
        self, rows: Rows, sizes: Numbers, topic: str, bad: list[BadRow]
    ) -> Numbers | None:
        """Put rows aside that no partition could take; return the others, None if that is all."""
        large = np.flatnonzero(sizes > self._row_bytes_max)
        nameless = rows.rows_with_null_header_keys()
        if not len(large) and not len(nameless):
            return None
        for index in large:
            reason = (
                f"a record of {sizes[index]} bytes is larger than max.request.size, "
                f"{self._row_bytes_max}"
            )
            bad.append(rows.bad(int(index), reason, topic, None, is_too_large=True))
        nameless = np.setdiff1d(nameless, large)
        bad += [rows.bad(int(i), "a header has no key", topic, None) for i in nameless]
        kept = np.ones(len(rows), bool)
        kept[large] = kept[nameless] = False
        return np.flatnonzero(kept)

    def _by_partition(
        self, rows: Rows, sizes: Numbers, topic: str, known: TopicPartitions, bad: list[BadRow]
    ) -> list[tuple[TopicPartition, Rows]]:
        if not len(rows):
            return []
        numbers = self._partitions(rows, sizes, topic, known)
        wrong = (numbers < 0) | (numbers >= known.total)
        for index in np.flatnonzero(wrong):
            reason = f"{topic} has no partition {numbers[index]}: it has {known.total}"
            bad.append(rows.bad(int(index), reason, topic, int(numbers[index])))
        if wrong.any():
            rows, numbers = rows.take(np.flatnonzero(~wrong)), numbers[~wrong]
        if (numbers == numbers[:1]).all():
            return [(TopicPartition(topic, int(n)), rows) for n in numbers[:1]]
        order = np.argsort(numbers, kind="stable")
        rows, numbers = rows.take(order), numbers[order]
        borders = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(rows)]
        return [
            (TopicPartition(topic, int(numbers[start])), rows.slice(start, end - start))
            for start, end in pairwise(borders)
        ]

    def _partitions(
        self, rows: Rows, sizes: Numbers, topic: str, known: TopicPartitions
    ) -> Numbers:
        numbers = np.zeros(len(rows), np.int64)
        is_open = np.ones(len(rows), bool)
        given = rows.find("partition")
        if given is not None and given.null_count < len(rows):
            is_given = np.asarray(pc.is_valid(given))
            numbers[is_given] = np.asarray(pc.fill_null(given, 0))[is_given]
            is_open &= ~is_given
        keys = None if self._ignore_keys else rows.find("key")
        if keys is not None and keys.null_count < len(rows) and is_open.any():
            is_keyed = np.asarray(pc.is_valid(keys)) & is_open
            numbers[is_keyed] = np.asarray(partitions_of_keys(keys, known.total))[is_keyed]
            is_open &= ~is_keyed
        if is_open.any():
            numbers[is_open] = self._stuck(sizes[is_open], topic, known.available)
        return numbers

    def _stuck(self, sizes: Numbers, topic: str, available: Sequence[int]) -> Numbers:
        before = self._stuck_bytes.get(topic, 0)
        ends = before + np.cumsum(sizes)
        self._stuck_bytes[topic] = int(ends[-1])
        turns = (ends - sizes) // self._stick_bytes
        chosen: Numbers = np.asarray(available)[(self._first + turns) % len(available)]
        return chosen
