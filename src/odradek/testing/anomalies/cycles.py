"""Circles among operations: who wrote before whom, who read from whom, who was over before whom.

Nodes are operations by their number in the history. Edges:

- ww  the writer of a value to the writer of the next value in the partition
- wr  the writer of a value to each operation that read it with read_committed
- rt  whoever was over to whoever began later. That would be quadratic; instead each completion is
      a node of its own (a negative number), these form a chain, and an operation hangs on the
      last completion before it began.
"""

from bisect import bisect_left
from collections import defaultdict
from itertools import pairwise
from typing import Final

from odradek.testing.anomalies.anomaly import Kind, Report
from odradek.testing.anomalies.facts import Facts
from odradek.testing.anomalies.graph import Graph, find_circles
from odradek.testing.anomalies.history import Isolation, Outcome

SHOWN_MAX: Final = 20


def check_cycles(facts: Facts, report: Report) -> None:
    writes, reads = _ww(facts), _wr(facts)
    _report_circles(facts, report, Kind.G0, writes)
    _report_circles(facts, report, Kind.G1C, reads)
    both = _union(writes, reads)
    for circle in find_circles(both):
        edges = list(zip(circle, [*circle[1:], circle[0]], strict=True))
        kinds = {("r" if after in reads.get(each, ()) else "w") for each, after in edges}
        if kinds == {"r", "w"}:
            report.add(Kind.G1C_WITH_WRITES, _describe(facts, circle), circle)
    _report_circles(facts, report, Kind.G1C_REALTIME, _union(reads, _rt(facts)))


def _report_circles(facts: Facts, report: Report, kind: Kind, graph: Graph) -> None:
    for circle in find_circles(graph):
        operations = [number for number in circle if number >= 0]
        report.add(kind, _describe(facts, operations), operations)


def _describe(facts: Facts, circle: list[int]) -> str:
    shown = " → ".join(facts.describe(number) for number in circle[:SHOWN_MAX])
    return f"{shown} → {'…' if len(circle) > SHOWN_MAX else 'the first again'}"


def _ww(facts: Facts) -> Graph:
    rows: dict[object, list[tuple[int, int]]] = defaultdict(list)
    for stored, written in facts.written.items():
        if written.number in facts.committed and (offsets := facts.places.get(stored)):
            rows[stored[0]].append((min(offsets), written.number))
    graph: Graph = defaultdict(set)
    for row in rows.values():
        row.sort()
        for (_, first), (_, second) in pairwise(row):
            if first != second:
                graph[first].add(second)
    return graph


def _wr(facts: Facts) -> Graph:
    graph: Graph = defaultdict(set)
    for stored, written in facts.written.items():
        for read in facts.reads.get(stored, ()):
            if read.isolation is Isolation.READ_COMMITTED and read.number != written.number:
                graph[written.number].add(read.number)
    return graph


def _rt(facts: Facts) -> Graph:
    over = sorted(
        (operation.completed_at, number)
        for number, operation in facts.operations
        if operation.outcome is not Outcome.INFO
    )
    times = [time for time, _ in over]
    graph: Graph = defaultdict(set)
    for place, (_, number) in enumerate(over):
        completion = -1 - place
        graph[number].add(completion)
        if place + 1 < len(over):
            graph[completion].add(completion - 1)
    for number, operation in facts.operations:
        before = bisect_left(times, operation.invoked_at)
        if before:
            graph[-before].add(number)
    return graph


def _union(first: Graph, second: Graph) -> Graph:
    graph: Graph = defaultdict(set)
    for each in (first, second):
        for node, after in each.items():
            graph[node] |= after
    return graph
