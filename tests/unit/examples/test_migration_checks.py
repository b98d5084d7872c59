"""The checks of ``examples/migration`` see what they are for."""

from typing import cast

from examples.migration.replicas import differing
from examples.migration.waits import Step, Wait, waits
from odradek.core.ids import TopicPartition
from odradek.testing.anomalies import CommitOffset, Operation, Outcome, Poll, Record, Send
from tests.interop.cluster.replicated import Batch
from tests.interop.histories.groups import GroupReader, unread

AT = TopicPartition("in", 0)
FIRST, SECOND, OTHER = Batch(0, 4, 1, 11), Batch(5, 6, 1, 22), Batch(5, 6, 1, 23)


def test_a_replica_that_is_behind_differs_only_at_rest() -> None:
    logs = {1: [FIRST, SECOND], 2: [FIRST]}
    assert list(differing(AT, logs, [], is_quiet=False)) == []
    assert list(differing(AT, logs, [], is_quiet=True)) == [
        "in-0: the replica on 1 is not like the others"
    ]


def test_another_checksum_at_the_same_offset_differs() -> None:
    logs = {1: [FIRST, SECOND], 2: [FIRST, OTHER]}
    assert len(list(differing(AT, logs, [], is_quiet=False))) == 1


def test_what_was_there_must_be_there_in_all_replicas() -> None:
    logs = {1: [FIRST], 2: [FIRST]}
    assert list(differing(AT, logs, [FIRST], is_quiet=False)) == []
    assert list(differing(AT, logs, [FIRST, SECOND], is_quiet=False)) == [
        "in-0: the replica on 1 lacks batches that were there",
        "in-0: the replica on 2 lacks batches that were there",
    ]


class Member:
    """As much of a member as ``unread`` looks at."""

    process, group = 7, "g"


def operation(*actions: Poll | CommitOffset | Send, process: int, at: int = 0) -> Operation:
    return Operation(process, Outcome.OK, actions, at, at + 2_000_000)


def test_a_group_that_commits_what_it_never_got_is_named() -> None:
    members = [cast("GroupReader", Member())]
    everything = operation(Poll(AT, tuple(Record(n, n) for n in range(4))), process=1)
    own = operation(Poll(AT, (Record(0, 0), Record(2, 2))), process=Member.process)
    committed = operation(CommitOffset("g", AT, 3), process=Member.process)
    assert unread([everything, own], members) == []
    assert unread([everything, own, committed], members) == ["g is past in-0 1 and never got it"]


def test_waits_are_those_of_the_step_in_which_they_end() -> None:
    steps = [Step("one", 0, 1_000_000), Step("two", 1_000_000, 9_000_000)]
    rebalance = operation(process=2, at=500_000)
    history = [rebalance, operation(Send(AT, 1, 0), process=1, at=500_000)]
    assert waits(history, steps) == [Wait("two", 1, 2.0)]
