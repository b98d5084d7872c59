"""Checks of committed offsets, and of the work that groups did between them."""

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field
from math import inf
from operator import itemgetter

from odradek.core.ids import TopicPartition
from odradek.testing.anomalies.anomaly import Kind, Report
from odradek.testing.anomalies.facts import Facts
from odradek.testing.anomalies.history import (
    CommitOffset,
    FetchOffset,
    Isolation,
    Operation,
    Outcome,
    Source,
)

Place = tuple[str, TopicPartition]
"""A group and a partition."""


@dataclass(slots=True)
class _Commits:
    """What was committed at one place."""

    over: dict[int, float] = field(default_factory=dict)
    """Offset: when the last commit of it that may have happened was over (inf: who knows)."""
    failed: dict[int, int] = field(default_factory=dict)
    """Offset: the operation that wanted to commit it and did not."""
    done: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Of commits that are ok: when they were over, when they began, operation, offset."""

    def add(self, number: int, operation: Operation, offset: int) -> None:
        if operation.outcome is Outcome.FAIL:
            self.failed[offset] = number
            return
        is_ok = operation.outcome is Outcome.OK
        over = operation.completed_at if is_ok else inf
        self.over[offset] = max(over, self.over.get(offset, -inf))
        if is_ok:
            self.done.append((operation.completed_at, operation.invoked_at, number, offset))


def check_offsets(facts: Facts, report: Report) -> None:
    commits: dict[Place, _Commits] = defaultdict(_Commits)
    fetches: dict[Place, list[tuple[int, int, int | None]]] = defaultdict(list)
    for number, operation in facts.operations:
        for action in operation.actions:
            if isinstance(action, CommitOffset):
                commits[action.group, action.key].add(number, operation, action.offset)
            elif isinstance(action, FetchOffset) and operation.outcome is Outcome.OK:
                asked = (operation.invoked_at, number, action.offset)
                fetches[action.group, action.key].append(asked)
    for place, asked_here in fetches.items():
        asked_here.sort(key=itemgetter(0))
        _check_fetches(facts, report, place, commits[place], asked_here)


def _check_fetches(
    facts: Facts,
    report: Report,
    place: Place,
    commits: _Commits,
    fetches: list[tuple[int, int, int | None]],
) -> None:
    group, key = place
    done = sorted(commits.done)
    latest, taken = (-1, -1, -1), 0  # of those over by now the one that began last
    for asked_at, number, offset in fetches:
        while taken < len(done) and done[taken][0] < asked_at:
            latest = max(latest, done[taken][1:])
            taken += 1
        began_at, by, newer = latest
        told = f"{facts.describe(number)} was told that {group} is at {key} {offset}"
        if offset is not None and offset not in commits.over:
            failed = commits.failed.get(offset)
            if failed is None:
                report.add(Kind.UNWRITTEN_OFFSET, f"{told}; nobody committed it", [number], key)
            else:
                told += f", which only {facts.describe(failed)} wanted to commit"
                report.add(Kind.ABORTED_OFFSET, told, [failed, number], key)
        elif by >= 0 and (-inf if offset is None else commits.over[offset]) < began_at:
            told += f" after {facts.describe(by)} had committed {newer}"
            report.add(Kind.OFFSET_WENT_BACK, told, [by, number], key)


def check_processing(facts: Facts, report: Report) -> None:
    """Each record that a group is past was handled by one committed transaction of the group."""
    handlers: dict[Source, set[int]] = defaultdict(set)
    ends: dict[Place, int] = {}
    for number, operation in facts.operations:
        if number not in facts.committed:
            continue
        for action in operation.actions:
            if isinstance(action, CommitOffset):
                place = (action.group, action.key)
                ends[place] = max(ends.get(place, 0), action.offset)
        for send in facts.sends_of(operation):
            if send.source is not None:
                handlers[send.source].add(number)
    for source, numbers in handlers.items():
        if len(numbers) > 1:
            who = " and ".join(facts.describe(number) for number in sorted(numbers))
            message = f"{source.key} offset {source.offset} was handled for {source.group} by {who}"
            report.add(Kind.PROCESSED_TWICE, message, sorted(numbers), source.key)
    for group, key in {(source.group, source.key) for source in handlers}:
        offsets = facts.order(key, Isolation.READ_COMMITTED).offsets
        end = ends.get((group, key), 0)
        for offset in offsets[: bisect_left(offsets, end)]:
            if Source(group, key, offset) not in handlers:
                message = f"{group} is at {key} {end} and nothing was made of offset {offset}"
                report.add(Kind.UNPROCESSED, message, [], key)
