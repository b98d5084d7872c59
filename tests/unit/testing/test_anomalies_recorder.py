"""The recorder: what clients did becomes a history."""

import pytest

from odradek.testing.anomalies import (
    Assignment,
    CommitOffset,
    FetchOffset,
    Operation,
    Recorder,
    Seek,
    Send,
    Source,
)
from tests.unit.testing.anomaly_words import (
    FAIL,
    INFO,
    OK,
    UNCOMMITTED,
    A,
    B,
    dirty,
    send,
)


class ManualClock:
    def __init__(self) -> None:
        self.now = 0

    def now_ms(self) -> int:
        return self.now

    def monotonic_ms(self) -> int:
        return self.now

    def monotonic_us(self) -> int:
        self.now += 1
        return self.now


def test_a_recorder_writes_down_what_clients_did() -> None:
    recorder = Recorder(ManualClock())
    first, second = recorder.new_process(), recorder.new_process()
    recorder.assigned(second, [A])
    recorder.sought(second, A, 0)
    with recorder.operation(first) as sent, recorder.operation(first) as later:
        sending = sent.sends(A, "a")
        later.sent(A, "b", 1)
    sending.acknowledged(0)
    with recorder.transaction(second) as done:
        done.polled(A, [(0, "a"), (1, "b")], UNCOMMITTED)
        done.sends(B, "c", Source("g", A, 0)).acknowledged(-1)
        done.commits_offset("g", A, 2)
        done.rebalances([A])
        done.commits()
        done.commits()  # tried again: the first time counts
    with recorder.operation(second) as fetched:
        fetched.fetched_offset("g", A, 2)

    assert recorder.history() == [
        Assignment(second, frozenset({A})),
        Seek(second, A, 0),
        Operation(first, OK, (send("a", 0),), 1, 4),
        Operation(first, OK, (send("b", 1),), 2, 3),
        Operation(
            second,
            OK,
            (
                dirty((0, "a"), (1, "b")),
                Send(B, "c", None, Source("g", A, 0)),
                CommitOffset("g", A, 2),
            ),
            5,
            7,
            True,
            6,
            frozenset({A}),
        ),
        Operation(second, OK, (FetchOffset("g", A, 2),), 8, 9),
    ]


def test_what_the_recorder_takes_an_unfinished_operation_for() -> None:
    recorder = Recorder(ManualClock())
    plain, aborted, unsure = (
        recorder.operation(1),
        recorder.transaction(1),
        recorder.transaction(1),
    )
    unsure.commits()
    failed_plain, failed, failed_commit = (
        recorder.operation(1),
        recorder.transaction(1),
        recorder.transaction(1),
    )
    failed_commit.commits()
    for each in (failed_plain, failed, failed_commit):
        with pytest.raises(KeyError), each:
            raise KeyError
    with recorder.transaction(1) as never_committed:
        pass
    with recorder.transaction(1) as told:
        told.commits()
        told.end(FAIL)
    with recorder.transaction(1) as crashed:
        crashed.commits()
        crashed.abandon()
    everything = [
        plain,
        aborted,
        unsure,
        failed_plain,
        failed,
        failed_commit,
        never_committed,
        told,
        crashed,
    ]
    outcomes = [each.event().outcome for each in everything]
    assert outcomes == [INFO, FAIL, INFO, INFO, FAIL, INFO, FAIL, FAIL, INFO]
    assert recorder.history() == [], "nothing happened in any of them"


def test_a_recorder_has_an_end() -> None:
    recorder = Recorder(ManualClock(), events_max=1)
    recorder.assigned(1, [A])
    with pytest.raises(OverflowError, match="more than 1 events"):
        recorder.operation(1)
