"""Random sound histories, made by a model of a log, have no anomaly; spoilt ones have.

The model is a log with transactions in a few lines: partitions are lists, a transaction's records
count when it is committed, read_committed readers stop at the first record of an open transaction.
Processes take steps in random order, so that operations overlap.
"""

import cProfile
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from odradek.core.ids import TopicPartition
from odradek.testing.anomalies import (
    Action,
    CommitOffset,
    Event,
    FetchOffset,
    Isolation,
    Kind,
    Operation,
    Outcome,
    Poll,
    Record,
    Recorder,
    Report,
    Send,
    Source,
    check,
)
from odradek.testing.anomalies.recorder import Recording

KEYS = tuple(TopicPartition("in", number) for number in range(3))
OUTPUTS = tuple(TopicPartition("out", number) for number in range(2))
GROUP = "g"
DRAINED = frozenset({*KEYS, *OUTPUTS})
MARKER = "marker"


class StepClock:
    """Each look at it takes a moment."""

    def __init__(self) -> None:
        self._now = 0

    def now_ms(self) -> int:
        return self.monotonic_us()

    def monotonic_ms(self) -> int:
        return self.monotonic_us()

    def monotonic_us(self) -> int:
        self._now += 1
        return self._now


@dataclass
class Slot:
    value: str
    state: str  # "plain", "open", "committed", "aborted" or MARKER


class ModelLog:
    def __init__(self) -> None:
        self.slots: dict[TopicPartition, list[Slot]] = {key: [] for key in DRAINED}
        self.offsets: dict[TopicPartition, int] = {}

    def append(self, key: TopicPartition, value: str, state: str) -> int:
        self.slots[key].append(Slot(value, state))
        return len(self.slots[key]) - 1

    def end(self, written: list[tuple[TopicPartition, int]], state: str) -> None:
        """Decide over the records of a transaction, and mark it in their partitions."""
        for key, offset in written:
            self.slots[key][offset].state = state
        for key in {key for key, _ in written}:
            self.slots[key].append(Slot("", MARKER))

    def read(
        self, key: TopicPartition, start: int, count: int, isolation: Isolation
    ) -> list[Record]:
        found: list[Record] = []
        is_committed = isolation is Isolation.READ_COMMITTED
        for offset in range(start, len(self.slots[key])):
            slot = self.slots[key][offset]
            if len(found) == count or (is_committed and slot.state == "open"):
                break
            if slot.state != MARKER and not (is_committed and slot.state == "aborted"):
                found.append(Record(offset, slot.value))
        return found


@dataclass
class Transaction:
    recording: Recording
    written: list[tuple[TopicPartition, int]] = field(default_factory=list)
    key: TopicPartition | None = None  # of the group's input
    offset: int = 0  # the group goes on from here if this is committed


class Story:
    """Processes over one model log; what they do goes to a recorder."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.log = ModelLog()
        self.recorder = Recorder(StepClock())
        self._names = 0
        self._open: list[Transaction] = []
        self._readers = [(self._new_reader(), isolation) for isolation in (*Isolation, *Isolation)]
        self._positions: dict[int, dict[TopicPartition, int]] = {
            reader: dict.fromkeys(DRAINED, 0) for reader, _ in self._readers
        }
        self._busy: set[TopicPartition] = set()  # inputs that a transaction of the group has

    def run(self, steps: int) -> list[Event]:
        kinds: list[Callable[[], None]] = [
            self._plain_send,
            self._begin,
            self._transact,
            self._transact,
            self._process,
            self._end,
            self._poll,
            self._fetch_offset,
        ]
        for _ in range(steps):
            self.chance.choice(kinds)()
        while self._open:
            self._end()
        self._drain()
        return self.recorder.history()

    def _new_reader(self) -> int:
        process = self.recorder.new_process()
        for key in DRAINED:
            self.recorder.sought(process, key, 0)
        return process

    def _name(self) -> str:
        self._names += 1
        return str(self._names)

    def _plain_send(self) -> None:
        key, value = self.chance.choice(KEYS), self._name()
        with self.recorder.operation(self.recorder.new_process()) as sent:
            sending = sent.sends(key, value)
            outcome = self.chance.choices(list(Outcome), [8, 1, 1])[0]
            if outcome is Outcome.OK or (outcome is Outcome.INFO and self.chance.random() < 0.5):
                offset = self.log.append(key, value, "plain")
                if outcome is Outcome.OK:
                    sending.acknowledged(offset)
            sent.end(outcome)

    def _begin(self) -> None:
        process = self.recorder.new_process()
        if len(self._open) < 4:
            self._open.append(Transaction(self.recorder.transaction(process)))

    def _transact(self) -> None:
        if self._open:
            self._send_in(self.chance.choice(self._open), self.chance.choice(KEYS), None)

    def _send_in(self, within: Transaction, key: TopicPartition, source: Source | None) -> None:
        value = self._name()
        sending = within.recording.sends(key, value, source)
        offset = self.log.append(key, value, "open")
        within.written.append((key, offset))
        if self.chance.random() < 0.9:
            sending.acknowledged(offset)

    def _process(self) -> None:
        """A transaction of the group: some records of one input become records of the outputs."""
        free = [key for key in KEYS if key not in self._busy]
        if len(self._open) >= 4 or not free:
            return
        key = self.chance.choice(free)
        start = self.log.offsets.get(key, 0)
        recording = self.recorder.transaction(self.recorder.new_process())
        records = self.log.read(key, start, 3, Isolation.READ_COMMITTED)
        if not records:
            return
        self._busy.add(key)
        recording.polled(key, records)
        begun = Transaction(recording, [], key, records[-1].offset + 1)
        for record in records:
            source = Source(GROUP, key, record.offset)
            self._send_in(begun, self.chance.choice(OUTPUTS), source)
        recording.commits_offset(GROUP, key, begun.offset)
        self._open.append(begun)

    def _end(self) -> None:
        if not self._open:
            return
        ended = self._open.pop(self.chance.randrange(len(self._open)))
        outcome = self.chance.choices(list(Outcome), [6, 2, 2])[0]
        if outcome is not Outcome.FAIL:
            ended.recording.commits()
        is_done = outcome is Outcome.OK or (outcome is Outcome.INFO and self.chance.random() < 0.5)
        self.log.end(ended.written, "committed" if is_done else "aborted")
        if ended.key is not None:
            self._busy.discard(ended.key)
            if is_done:
                self.log.offsets[ended.key] = ended.offset
        ended.recording.end(outcome)

    def _poll(self) -> None:
        process, isolation = self.chance.choice(self._readers)
        with self.recorder.operation(process) as polled:
            for key in self.chance.sample(sorted(DRAINED), 2):
                self._read(polled, process, key, self.chance.randint(1, 5), isolation)

    def _read(
        self,
        polled: Recording,
        process: int,
        key: TopicPartition,
        count: int,
        isolation: Isolation,
    ) -> None:
        position = self._positions[process][key]
        records = self.log.read(key, position, count, isolation)
        if records:
            polled.polled(key, records, isolation)
            self._positions[process][key] = records[-1].offset + 1

    def _fetch_offset(self) -> None:
        key = self.chance.choice(KEYS)
        with self.recorder.operation(self.recorder.new_process()) as fetched:
            fetched.fetched_offset(GROUP, key, self.log.offsets.get(key))

    def _drain(self) -> None:
        process = self._new_reader()
        with self.recorder.operation(process) as polled:
            for key in sorted(DRAINED):
                polled.polled(key, self.log.read(key, 0, 1_000_000, Isolation.READ_COMMITTED))
        for key in KEYS:
            with self.recorder.operation(process) as fetched:
                fetched.fetched_offset(GROUP, key, self.log.offsets.get(key))


def history_of(seed: int, steps: int) -> list[Event]:
    return Story(random.Random(seed)).run(steps)


seeds = st.integers(0, 2**32)
lengths = st.integers(0, 150)
modest = settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)


@modest
@given(seeds, lengths)
def test_sound_histories_have_no_anomaly(seed: int, steps: int) -> None:
    report = check(history_of(seed, steps), drained=DRAINED)
    assert not report.bad, report


# Each takes a sound history and spoils it; None: there is nothing here to spoil.
Spoil = Callable[[list[Event], random.Random], list[Event] | None]


def drain_of(history: list[Event]) -> tuple[int, Operation]:
    """The operation that reads everything at the end."""
    for number in range(len(history) - 1, -1, -1):
        event = history[number]
        if isinstance(event, Operation) and any(isinstance(a, Poll) for a in event.actions):
            return number, event
    raise AssertionError


def with_drained(
    history: list[Event],
    chance: random.Random,
    fits: Callable[[Poll], bool],
    change: Callable[[Poll], Poll],
) -> list[Event] | None:
    number, drain = drain_of(history)
    polls = [a for a in drain.actions if isinstance(a, Poll) and fits(a)]
    if not polls:
        return None
    spoilt = chance.choice(polls)
    actions = tuple(change(a) if a is spoilt else a for a in drain.actions if isinstance(a, Poll))
    return [*history[:number], replace(drain, actions=actions), *history[number + 1 :]]


def written_for_sure(history: list[Event]) -> list[Send]:
    return [
        action
        for event in history
        if isinstance(event, Operation) and event.outcome is Outcome.OK
        for action in event.actions
        if isinstance(action, Send)
    ]


def leave_out(history: list[Event], chance: random.Random) -> list[Event] | None:
    """The reader at the end does not get a record that is followed by another one."""
    acknowledged = {(each.key, each.offset) for each in written_for_sure(history)}

    def places(poll: Poll) -> list[int]:
        return [
            n for n, each in enumerate(poll.records[:-1]) if (poll.key, each.offset) in acknowledged
        ]

    def change(poll: Poll) -> Poll:
        place = chance.choice(places(poll))
        return replace(poll, records=poll.records[:place] + poll.records[place + 1 :])

    return with_drained(history, chance, lambda poll: bool(places(poll)), change)


def swap(history: list[Event], chance: random.Random) -> list[Event] | None:
    def change(poll: Poll) -> Poll:
        place = chance.randrange(len(poll.records) - 1)
        records = list(poll.records)
        records[place : place + 2] = records[place : place + 2][::-1]
        return replace(poll, records=tuple(records))

    return with_drained(history, chance, lambda poll: len(poll.records) >= 2, change)


def repeat(history: list[Event], chance: random.Random) -> list[Event] | None:
    def change(poll: Poll) -> Poll:
        again = Record(poll.records[-1].offset + 1, chance.choice(poll.records).value)
        return replace(poll, records=(*poll.records, again))

    return with_drained(history, chance, lambda poll: len(poll.records) >= 1, change)


def invent(history: list[Event], chance: random.Random) -> list[Event] | None:
    def change(poll: Poll) -> Poll:
        return replace(poll, records=(*poll.records, Record(10**6, "invented")))

    return with_drained(history, chance, lambda _: True, change)


def forget(history: list[Event], chance: random.Random) -> list[Event] | None:
    """Nobody reads some value that was written for sure."""
    written = written_for_sure(history)
    if not written:
        return None
    send = chance.choice(written)

    def without(action: Action) -> Action:
        if isinstance(action, Poll) and action.key == send.key:
            kept = tuple(record for record in action.records if record.value != send.value)
            return replace(action, records=kept)
        return action

    return [
        replace(event, actions=tuple(map(without, event.actions)))
        if isinstance(event, Operation)
        else event
        for event in history
    ]


def spoil_operation(
    history: list[Event],
    chance: random.Random,
    fits: Callable[[Operation], bool],
    change: Callable[[Operation], Operation],
) -> list[Event] | None:
    fitting = [n for n, e in enumerate(history) if isinstance(e, Operation) and fits(e)]
    if not fitting:
        return None
    number = chance.choice(fitting)
    operation = history[number]
    assert isinstance(operation, Operation)
    return [*history[:number], change(operation), *history[number + 1 :]]


def sends_something(operation: Operation) -> bool:
    return any(isinstance(action, Send) for action in operation.actions)


def abort(history: list[Event], chance: random.Random) -> list[Event] | None:
    """A transaction was aborted, and yet what it wrote is read."""
    return spoil_operation(
        history,
        chance,
        lambda each: each.is_transaction and each.outcome is Outcome.OK and sends_something(each),
        lambda each: replace(each, outcome=Outcome.FAIL),
    )


def show_too_early(history: list[Event], chance: random.Random) -> list[Event] | None:
    """By the end of the test the commit had not yet been asked for."""
    return spoil_operation(
        history,
        chance,
        lambda each: each.is_transaction and each.outcome is Outcome.OK and sends_something(each),
        lambda each: replace(each, outcome=Outcome.INFO, commit_at=10**9),
    )


def move(history: list[Event], chance: random.Random) -> list[Event] | None:
    """A send is acknowledged with an offset at which something else is."""

    def is_acknowledged(each: Operation) -> bool:
        return (
            not each.is_transaction
            and each.outcome is Outcome.OK
            and any(isinstance(action, Send) for action in each.actions)
        )

    def change(each: Operation) -> Operation:
        (send,) = each.actions
        assert isinstance(send, Send)
        assert send.offset is not None
        return replace(each, actions=(replace(send, offset=send.offset + 1),))

    return spoil_operation(history, chance, is_acknowledged, change)


def fetch_wrongly(history: list[Event], chance: random.Random) -> list[Event] | None:
    """The last answers about committed offsets: nothing where something is, or too far."""
    committed = {
        action.key
        for event in history
        if isinstance(event, Operation) and event.outcome is Outcome.OK
        for action in event.actions
        if isinstance(action, CommitOffset)
    }

    def change(each: Operation) -> Operation:
        (fetch,) = each.actions
        assert isinstance(fetch, FetchOffset)
        wrong = chance.choice([None, 10**6]) if fetch.key in committed else 10**6
        return replace(each, actions=(replace(fetch, offset=wrong),))

    number, _ = drain_of(history)
    end = spoil_operation(history[number:], chance, _fetches, change)
    return None if end is None else [*history[:number], *end]


def _fetches(operation: Operation) -> bool:
    return any(isinstance(action, FetchOffset) for action in operation.actions)


FOUND_AS: dict[Spoil, set[Kind]] = {
    leave_out: {Kind.INT_POLL_SKIP, Kind.POLL_SKIP},
    swap: {Kind.INT_NONMONOTONIC_POLL},
    repeat: {Kind.DUPLICATE},
    invent: {Kind.UNWRITTEN_READ},
    forget: {Kind.LOST_WRITE, Kind.UNSEEN},
    abort: {Kind.ABORTED_READ},
    show_too_early: {Kind.INTERMEDIATE_READ},
    move: {Kind.DUPLICATE},
    fetch_wrongly: {Kind.OFFSET_WENT_BACK, Kind.UNWRITTEN_OFFSET},
}


@pytest.mark.parametrize("spoil", FOUND_AS, ids=lambda each: each.__name__)
@modest
@given(seeds, st.integers(20, 150))
def test_spoilt_histories_have_one(spoil: Spoil, seed: int, steps: int) -> None:
    spoilt = spoil(history_of(seed, steps), random.Random(seed))
    assume(spoilt is not None)
    assert spoilt is not None
    report: Report = check(spoilt, drained=DRAINED)
    assert report.kinds & FOUND_AS[spoil], report
    assert report.bad


def test_eight_times_the_history_takes_eight_times_the_work() -> None:
    """Calls are counted, not seconds: other people use this machine too."""

    def calls(steps: int) -> int:
        history = history_of(7, steps)
        profile = cProfile.Profile()
        report = profile.runcall(check, history, drained=DRAINED)
        assert not report.bad
        return int(sum(entry.callcount for entry in profile.getstats()))

    assert calls(8000) < 8 * calls(1000) * 1.5
