"""What is said about records that an unclean election loses."""

from odradek.cli.unclean_loss import Leaderless, describe_loss
from odradek.client.admin.topics import PartitionDescription
from odradek.core.ids import TopicPartition

AT = TopicPartition("t", 0)


def leaderless(ends: dict[int, int], *, isr: tuple[int, ...] = (1,)) -> Leaderless:
    return Leaderless(PartitionDescription(0, -1, 7, (1, 2, 3), isr), ends)


def test_what_a_replica_that_runs_has_is_counted() -> None:
    assert describe_loss(AT, leaderless({2: 40, 3: 90}, isr=()), 2) == (
        "t-0: broker 2 leads; its log ends at offset 40; "
        "50 records or more are lost, which broker 3 has"
    )


def test_what_a_replica_that_is_away_had_is_not_known() -> None:
    assert describe_loss(AT, leaderless({2: 40, 3: 40}), 2) == (
        "t-0: broker 2 leads; its log ends at offset 40; records that broker 1, last in sync, has "
        "after that are lost, too: its log will show how many"
    )


def test_those_that_were_eligible_are_named_too() -> None:
    partition = PartitionDescription(0, -1, 7, (1, 2, 3), (), (), (1,), (3,))
    said = describe_loss(AT, Leaderless(partition, {2: 4}), 2)
    assert "records that brokers 1, 3, last in sync, have after that" in said


def test_nothing_is_claimed_of_what_is_not_known() -> None:
    assert describe_loss(AT, leaderless({}), 2).endswith("it did not report where its log ends")
    assert "do not report yet" in describe_loss(AT, leaderless({2: 4}), -1)
