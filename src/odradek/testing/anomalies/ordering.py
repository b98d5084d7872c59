"""Checks of the order in which processes read and wrote, within operations and between them.

A reader's position is the offset it goes on from. What it may not pass is whatever is known to be
there for readers of its kind (``Facts.order``): a read_committed reader passes aborted records.
"""

from collections import defaultdict
from itertools import pairwise
from typing import Final

from odradek.core.ids import TopicPartition
from odradek.testing.anomalies.anomaly import Kind, Report
from odradek.testing.anomalies.facts import Facts
from odradek.testing.anomalies.history import (
    Assignment,
    Isolation,
    Operation,
    Outcome,
    Poll,
    Seek,
)

SHOWN_OFFSETS_MAX: Final = 5

Positions = dict[TopicPartition, int]
Reading = tuple[TopicPartition, Isolation]


def check_polls(facts: Facts, report: Report) -> None:
    positions: dict[int, Positions] = defaultdict(dict)
    for number, event in enumerate(facts.events):
        own = positions[event.process]
        match event:
            case Assignment(keys=keys):
                for key in own.keys() - keys:
                    del own[key]
            case Seek(key=key, offset=None):
                own.pop(key, None)
            case Seek(key=key, offset=int(offset)):
                own[key] = offset
            case Operation():
                _check_operation(facts, report, number, event, own)


def _check_operation(
    facts: Facts, report: Report, number: int, operation: Operation, own: Positions
) -> None:
    for key in operation.rebalanced:
        own.pop(key, None)
    for (key, isolation), offsets in _readings(operation).items():
        if key in operation.rebalanced:
            continue
        check = _Steps(facts, report, number, key, isolation)
        for previous, offset in pairwise(offsets):
            check.step(previous + 1, offset, Kind.INT_NONMONOTONIC_POLL, Kind.INT_POLL_SKIP, "read")
        if operation.outcome is Outcome.OK:
            if key in own:
                check.step(own[key], offsets[0], Kind.NONMONOTONIC_POLL, Kind.POLL_SKIP, "read")
            own[key] = offsets[-1] + 1


def _readings(operation: Operation) -> dict[Reading, list[int]]:
    readings: dict[Reading, list[int]] = defaultdict(list)
    for action in operation.actions:
        if isinstance(action, Poll) and action.records:
            offsets = [record.offset for record in action.records]
            readings[action.key, action.isolation].extend(offsets)
    return readings


def check_sends(facts: Facts, report: Report) -> None:
    last: dict[tuple[int, TopicPartition], int] = {}
    for number, operation in facts.operations:
        sent: dict[TopicPartition, list[int]] = defaultdict(list)
        for send in facts.sends_of(operation):
            if send.offset is not None:
                sent[send.key].append(send.offset)
        for key, offsets in sent.items():
            check = _Steps(facts, report, number, key, Isolation.READ_UNCOMMITTED)
            for previous, offset in pairwise(offsets):
                check.step(
                    previous + 1, offset, Kind.INT_NONMONOTONIC_SEND, Kind.INT_SEND_SKIP, "wrote"
                )
            if operation.outcome is Outcome.FAIL:
                continue
            own = (operation.process, key)
            if own in last:
                check.step(last[own] + 1, offsets[0], Kind.NONMONOTONIC_SEND, None, "wrote")
            last[own] = offsets[-1]


def check_send_times(facts: Facts, report: Report) -> None:
    """A send that begins after an acknowledgement goes behind what was acknowledged."""
    acknowledged: dict[TopicPartition, list[tuple[int, int, int]]] = defaultdict(list)
    begun: dict[TopicPartition, list[tuple[int, int, int]]] = defaultdict(list)
    for number, operation in facts.operations:
        for send in facts.sends_of(operation):
            if send.offset is None or operation.outcome is Outcome.FAIL:
                continue
            begun[send.key].append((operation.invoked_at, send.offset, number))
            if operation.outcome is Outcome.OK:
                acknowledged[send.key].append((operation.completed_at, send.offset, number))
    for key, sends in begun.items():
        done = sorted(acknowledged[key])
        highest, by, taken = -1, -1, 0
        for invoked_at, offset, number in sorted(sends):
            while taken < len(done) and done[taken][0] < invoked_at:
                if done[taken][1] > highest:
                    highest, by = done[taken][1:]
                taken += 1
            if offset <= highest:
                message = (
                    f"{facts.describe(number)} was given {key} offset {offset} after "
                    f"{facts.describe(by)} had been given {highest}"
                )
                report.add(Kind.REALTIME_NONMONOTONIC_SEND, message, [by, number], key)


class _Steps:
    """Judges steps from where one operation was in one partition to where it went on."""

    def __init__(
        self, facts: Facts, report: Report, number: int, key: TopicPartition, isolation: Isolation
    ) -> None:
        self._facts = facts
        self._report = report
        self._number = number
        self._key = key
        self._order = facts.order(key, isolation)

    def step(self, position: int, offset: int, back: Kind, skip: Kind | None, verb: str) -> None:
        if offset == position:
            return
        who = self._facts.describe(self._number)
        process = self._facts.events[self._number].process
        if offset < position:
            message = f"{who} {verb} {self._key} offset {offset}, being at {position} already"
            self._report.add(back, message, [self._number], self._key, process)
        elif skip is not None and (passed := self._order.between(position, offset)):
            shown = ", ".join(map(str, passed[:SHOWN_OFFSETS_MAX]))
            more = ", …" if len(passed) > SHOWN_OFFSETS_MAX else ""
            message = f"{who} {verb} {self._key} offset {offset} and passed {shown}{more}"
            self._report.add(skip, message, [self._number], self._key, process)
