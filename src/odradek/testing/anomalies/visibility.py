"""Checks of what readers saw and did not see, value by value."""

from collections import defaultdict
from collections.abc import Iterable, Set

from odradek.core.ids import TopicPartition
from odradek.testing.anomalies.anomaly import Kind, Report
from odradek.testing.anomalies.facts import Facts, Read, Stored, Written
from odradek.testing.anomalies.history import Isolation, Outcome

Bounds = dict[TopicPartition, int]


def check_places(facts: Facts, report: Report) -> None:
    """One value at each offset, one offset for each value."""
    held: dict[tuple[TopicPartition, int], list[Stored]] = defaultdict(list)
    for stored, offsets in facts.places.items():
        key, value = stored
        for offset in offsets:
            held[key, offset].append(stored)
        if len(offsets) > 1:
            message = f"{value!r} is at {key} {_list(sorted(offsets))}"
            report.add(Kind.DUPLICATE, message, _witnesses(facts, stored), key)
    for (key, offset), values in held.items():
        if len(values) > 1:
            names = _list(repr(value) for _, value in values)
            witnesses = [each for stored in values for each in _witnesses(facts, stored)]
            message = f"{key} offset {offset} held {names}"
            report.add(Kind.INCONSISTENT_OFFSETS, message, witnesses, key)


def check_reads(facts: Facts, report: Report) -> None:
    """Nobody read what was not sent, not committed, or not committed yet."""
    for stored, reads in facts.reads.items():
        written = facts.written.get(stored)
        for read in reads:
            if written is None:
                key, value = stored
                who = facts.describe(read.number)
                message = f"{who} read {value!r} at {key} offset {read.offset}; nobody sent it"
                report.add(Kind.UNWRITTEN_READ, message, [read.number], key)
            else:
                _check_read(facts, report, written, read)


def _check_read(facts: Facts, report: Report, written: Written, read: Read) -> None:
    kind = _judge(written, read)
    if kind is None:
        return
    writer, reader = facts.describe(written.number), facts.describe(read.number)
    send = written.send
    message = (
        f"{reader} read {send.value!r} at {send.key} offset {read.offset} "
        f"({read.isolation.value}), sent by {writer}"
    )
    report.add(kind, message, [written.number, read.number], send.key)


def _judge(written: Written, read: Read) -> Kind | None:
    writer = written.operation
    if writer.is_transaction and read.isolation is Isolation.READ_UNCOMMITTED:
        return None
    if writer.outcome is Outcome.FAIL:
        return Kind.ABORTED_READ
    if not writer.is_transaction:
        return None
    if written.number == read.number:
        return Kind.PRECOMMITTED_READ
    if writer.commit_at is None or read.operation.completed_at < writer.commit_at:
        return Kind.INTERMEDIATE_READ
    return None


def check_losses(facts: Facts, report: Report, drained: Set[TopicPartition]) -> None:
    """What was committed is there for whoever comes by."""
    bounds = _bounds(facts, None)
    committed_bounds = _bounds(facts, Isolation.READ_COMMITTED)
    torn: dict[int, list[Written]] = defaultdict(list)
    for stored, written in facts.written.items():
        if written.number not in facts.committed:
            continue
        if _is_lost(facts, stored, bounds, None):
            _add_lost(facts, report, written, "nobody")
        elif _is_lost(facts, stored, committed_bounds, Isolation.READ_COMMITTED):
            _add_lost(facts, report, written, "no read_committed reader")
        elif stored[0] in drained and not facts.is_seen(stored, Isolation.READ_COMMITTED):
            _add_unseen(facts, report, written)
        else:
            continue
        if written.operation.is_transaction:
            torn[written.number].append(written)
    for number, missing in torn.items():
        _check_torn(facts, report, number, missing)


def _bounds(facts: Facts, isolation: Isolation | None) -> Bounds:
    """How far each partition was read, by operations that are ok."""
    bounds: Bounds = {}
    for (key, _), reads in facts.reads.items():
        for read in reads:
            if read.operation.outcome is Outcome.OK and isolation in (None, read.isolation):
                bounds[key] = max(bounds.get(key, -1), read.offset)
    return bounds


def _is_lost(facts: Facts, stored: Stored, bounds: Bounds, isolation: Isolation | None) -> bool:
    offsets = facts.places.get(stored)
    if not offsets or facts.is_seen(stored, isolation):
        return False
    return max(offsets) <= bounds.get(stored[0], -1)


def _add_lost(facts: Facts, report: Report, written: Written, who: str) -> None:
    send = written.send
    message = (
        f"{send.value!r} at {send.key} offset {send.offset}, sent by "
        f"{facts.describe(written.number)}, was passed and {who} read it"
    )
    report.add(Kind.LOST_WRITE, message, [written.number], send.key)


def _add_unseen(facts: Facts, report: Report, written: Written) -> None:
    send = written.send
    place = "an unknown offset" if send.offset is None else f"offset {send.offset}"
    message = (
        f"{send.value!r} at {place} of {send.key}, sent by {facts.describe(written.number)}, "
        "was not read although the partition was read to its end"
    )
    report.add(Kind.UNSEEN, message, [written.number], send.key)


def _check_torn(facts: Facts, report: Report, number: int, missing: list[Written]) -> None:
    operation = missing[0].operation
    gone = {each.send for each in missing}
    kept = [
        send
        for send in facts.sends_of(operation)
        if send not in gone and facts.is_seen((send.key, send.value), Isolation.READ_COMMITTED)
    ]
    if kept:
        message = (
            f"of {facts.describe(number)} {_list(f'{each.value!r} in {each.key}' for each in kept)}"
            f" was read, {_list(f'{each.value!r} in {each.key}' for each in gone)} was not"
        )
        report.add(Kind.TORN_TRANSACTION, message, [number])


def _witnesses(facts: Facts, stored: Stored) -> list[int]:
    written = facts.written.get(stored)
    readers = [read.number for read in facts.reads.get(stored, ())][:10]
    return readers if written is None else [written.number, *readers]


def _list(items: Iterable[object]) -> str:
    return ", ".join(map(str, items))
