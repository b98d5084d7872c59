"""Elections and changes of ISRs are counted from one image to the next."""

from odradek.broker.metrics.partition_changes import PartitionChanges
from odradek.core.ids import Uuid
from odradek.metadata.image import ClusterImage, finish
from odradek.metadata.partition import LeaderRecoveryState
from odradek.protocol.generated.metadata_records import (
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)

TOPIC_ID = Uuid(bytes(15) + b"\x07")


def counted(*changes: PartitionChangeRecord) -> PartitionChanges:
    """Return what node 1 counts that leads a partition with 2 and 3 in sync, then hears this."""
    counts = PartitionChanges(1)
    partition = PartitionRecord(
        topic_id=TOPIC_ID, partition_id=0, replicas=[1, 2, 3], isr=[1, 2, 3], leader=1
    )
    made = [TopicRecord(name="t", topic_id=TOPIC_ID), partition]
    update = ClusterImage().advance(made)
    finish(counts.count_in_steps(update))
    for each in changes:
        each.topic_id, each.partition_id = TOPIC_ID, 0
        update = update.image.advance([each])
        finish(counts.count_in_steps(update))
    return counts


def test_a_leader_out_of_the_elr_is_counted_and_not_as_unclean() -> None:
    counts = counted(
        PartitionChangeRecord(isr=[1], eligible_leader_replicas=[2]),
        PartitionChangeRecord(isr=[], leader=-1, eligible_leader_replicas=[1, 2]),
        PartitionChangeRecord(isr=[2], leader=2, eligible_leader_replicas=[1]),
    )
    assert (counts.elections_from_elr, counts.unclean_elections) == (1, 0)


def test_a_leader_that_may_lack_records_is_counted_as_unclean() -> None:
    counts = counted(
        PartitionChangeRecord(isr=[1]),
        PartitionChangeRecord(
            isr=[3], leader=3, leader_recovery_state=LeaderRecoveryState.RECOVERING
        ),
    )
    assert (counts.elections_from_elr, counts.unclean_elections) == (0, 1)


def test_a_clean_election_is_neither() -> None:
    counts = counted(PartitionChangeRecord(isr=[2, 3], leader=2))
    assert (counts.elections_from_elr, counts.unclean_elections) == (0, 0)


def test_changes_of_the_isr_are_counted_where_it_is_led() -> None:
    counts = counted(
        PartitionChangeRecord(isr=[1, 2]),
        PartitionChangeRecord(isr=[1]),
        PartitionChangeRecord(isr=[1, 3]),
        PartitionChangeRecord(isr=[3], leader=3),
    )
    assert (counts.isr_shrinks, counts.isr_expands) == (2, 1)
