"""Reassignments: begun, replaced, completed, cancelled; and what else happens meanwhile.

The scenarios are those of Kafka's tests, as far as they are about moves: of
ReplicationControlManagerTest testReassignPartitions, testCancelReassignPartitions,
testDisallowReplicationFactorChange… and testReassignPartitionsHandlesNewReassignment…; of
PartitionChangeBuilderTest those of reassignment, of epochs and of directories; all of
PartitionReassignmentReplicasTest and PartitionReassignmentRevertTest. Not taken: rearrangements of
an empty replica list, which no partition has.
"""

from random import Random
from typing import Final

import pytest

from odradek.controller.partition_change import PartitionChange, PartitionRules
from odradek.controller.reassignment import Assignment
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import ZERO_UUID, Uuid
from odradek.metadata import NO_LEADER, LeaderRecoveryState, PartitionImage
from odradek.metadata.partition import DIRECTORY_MIGRATING
from odradek.protocol.generated.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
)
from odradek.protocol.generated.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.protocol.generated.broker_heartbeat import BrokerHeartbeatRequest
from odradek.protocol.generated.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from odradek.protocol.generated.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.generated.elect_leaders import ElectLeadersRequest, TopicPartitions
from odradek.protocol.generated.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from odradek.protocol.generated.metadata_records import FeatureLevelRecord, PartitionChangeRecord
from tests.unit.controller.cluster import Cluster, directory, new_topic, settings

Ids = tuple[int, ...]

NONE: Final = ErrorCode.NONE


@pytest.fixture
def cluster() -> Cluster:
    """Six brokers, and a partition on the first three."""
    return with_topic(Cluster(6))


def with_topic(cluster: Cluster, replicas: Ids = (1, 2, 3), **configs: str) -> Cluster:
    named = {name.replace("_", "."): value for name, value in configs.items()}
    cluster.create(new_topic("t", assignment={0: list(replicas)}, configs={**named}))
    return cluster


def ask(
    cluster: Cluster, wanted: dict[tuple[str, int], list[int] | None], *, keep_factor: bool = False
) -> AlterPartitionReassignmentsResponse:
    request = AlterPartitionReassignmentsRequest(
        topics=[
            ReassignableTopic(
                name=name,
                partitions=[ReassignablePartition(partition_index=number, replicas=replicas)],
            )
            for (name, number), replicas in wanted.items()
        ],
        allow_replication_factor_change=not keep_factor,
    )
    return cluster.apply(cluster.controller.alter_partition_reassignments(request))


def move(cluster: Cluster, *target: int) -> ErrorCode:
    return reply_to(cluster, list(target))[0]


def cancel(cluster: Cluster) -> ErrorCode:
    return reply_to(cluster, None)[0]


def reply_to(
    cluster: Cluster, target: list[int] | None, *, keep_factor: bool = False
) -> tuple[ErrorCode, str | None]:
    response = ask(cluster, {("t", 0): target}, keep_factor=keep_factor)
    found = response.responses[0].partitions[0]
    return ErrorCode(found.error_code), found.error_message


def assignment(cluster: Cluster) -> tuple[Ids, Ids, Ids]:
    partition = cluster.partition("t")
    return partition.replicas, partition.adding, partition.removing


def propose(cluster: Cluster, *isr: int) -> ResponsePartitionData:
    """Have the leader propose an ISR."""
    partition = cluster.partition("t")
    proposal = RequestPartitionData(
        partition_index=0,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        new_isr_with_epochs=[
            BrokerState(broker_id=each, broker_epoch=cluster.epoch(each)) for each in isr
        ],
    )
    topic_id = cluster.controller.image.topics["t"].topic_id
    request = AlterPartitionRequest(
        broker_id=partition.leader,
        broker_epoch=cluster.epoch(partition.leader),
        topics=[RequestTopicData(topic_id=topic_id, partitions=[proposal])],
    )
    return cluster.apply(cluster.controller.alter_partition(request)).topics[0].partitions[0]


def fence(cluster: Cluster, *brokers: int) -> None:
    for broker_id in brokers:
        cluster.heartbeat(broker_id, want_fence=True)


def listed(
    cluster: Cluster, named: dict[str, list[int]] | None = None
) -> dict[tuple[str, int], tuple[Ids, Ids, Ids]]:
    topics = None
    if named is not None:
        topics = [
            ListPartitionReassignmentsTopics(name=name, partition_indexes=numbers)
            for name, numbers in named.items()
        ]
    request = ListPartitionReassignmentsRequest(topics=topics)
    result = cluster.controller.list_partition_reassignments(request)
    assert not result.records
    return {
        (topic.name, each.partition_index): (
            tuple(each.replicas),
            tuple(each.adding_replicas),
            tuple(each.removing_replicas),
        )
        for topic in result.reply.topics
        for each in topic.partitions
    }


# When a move is over.


@pytest.mark.parametrize(
    ("replicas", "adding", "removing", "isr", "completed"),
    [
        ((1, 2, 3), (), (), (1, 2, 3), None),  # none is under way
        ((1, 2, 3), (3,), (), (1, 2), None),
        ((1, 2, 3), (3,), (), (1, 2, 3), (1, 2, 3)),
        ((1, 2, 3), (3,), (), (3,), (1, 2, 3)),  # 1 and 2 are out of sync: as before
        ((4, 5, 1, 2), (4, 5), (1, 2), (1, 2, 4), None),
        ((4, 5, 1, 2), (4, 5), (1, 2), (4, 5), (4, 5)),
        ((4, 5, 1, 2), (4, 5), (1, 2), (1, 2, 4, 5), (4, 5)),
        ((1, 2, 3), (), (3,), (1, 2, 3), (1, 2)),
        ((1, 2, 3), (), (3,), (3,), None),  # nothing would be in sync
        ((1, 2, 3), (), (3,), (1, 3), None),  # fewer copies than now
        ((1, 4, 2), (4,), (2,), (4, 2), (1, 4)),  # KAFKA-19975: 1 is dead, whoever moves
        ((2, 3, 4, 5, 0, 1), (5,), (0, 1), (0, 1, 5), None),  # one in sync where there were two
        ((2, 3, 4, 5, 0, 1), (5,), (0, 1), (2, 3, 4, 5), (2, 3, 4, 5)),
        ((1, 2), (), (1, 2), (1, 2), None),  # no replica would be left
        ((1, 2, 3, 4), (4,), (4,), (1, 2, 3), (1, 2, 3)),  # taken back by a second move
    ],
)
def test_completion(
    replicas: Ids, adding: Ids, removing: Ids, isr: Ids, completed: Ids | None
) -> None:
    expected = None if completed is None else Assignment(completed)
    assert Assignment(replicas, adding, removing).completed(isr) == expected


# Start.


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ((4, 5, 6), ((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3))),
        ((6, 2, 4), ((6, 2, 4, 1, 3), (4, 6), (1, 3))),
        ((1, 2, 3, 4), ((1, 2, 3, 4), (4,), ())),
        ((3, 2, 1), ((3, 2, 1), (), ())),  # another order: over at once
        ((2, 1), ((2, 1), (), ())),  # those that go are not waited for
        ((1, 2, 3), ((1, 2, 3), (), ())),
    ],
)
def test_start(cluster: Cluster, target: Ids, expected: tuple[Ids, Ids, Ids]) -> None:
    before = cluster.partition("t")
    assert move(cluster, *target) == NONE
    assert assignment(cluster) == expected
    after = cluster.partition("t")
    assert set(after.isr) == set(before.isr) & set(after.replicas)
    assert after.directories == tuple(directory(each) for each in after.replicas)
    assert listed(cluster) == ({("t", 0): expected} if expected[1] or expected[2] else {})


def test_another_order_changes_the_preferred_leader_and_not_the_leader(cluster: Cluster) -> None:
    assert move(cluster, 3, 2, 1) == NONE
    partition = cluster.partition("t")
    assert (partition.preferred_leader, partition.leader, partition.leader_epoch) == (3, 1, 0)
    assert partition.isr == (1, 2, 3)


def test_what_is_there_already_is_no_change(cluster: Cluster) -> None:
    before = len(cluster.log)
    assert move(cluster, 1, 2, 3) == NONE
    assert len(cluster.log) == before


def test_a_start_keeps_the_leader_and_its_epoch(cluster: Cluster) -> None:
    assert move(cluster, 4, 5, 6) == NONE
    partition = cluster.partition("t")
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (1, 0, 1)


@pytest.mark.parametrize(
    ("target", "code", "message"),
    [
        (
            [],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes an empty replica list.",
        ),
        (
            [1, 9],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (
            [4, 5, 4],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes the broker 4 more than once.",
        ),
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None),
    ],
)
def test_refusals(
    cluster: Cluster, target: list[int] | None, code: ErrorCode, message: str | None
) -> None:
    before = len(cluster.log)
    assert reply_to(cluster, target) == (code, message)
    assert len(cluster.log) == before


def test_one_bad_partition_does_not_fail_its_neighbours(cluster: Cluster) -> None:
    cluster.create(new_topic("u", assignment={0: [1]}))
    wanted: dict[tuple[str, int], list[int] | None] = {
        ("nowhere", 0): [1],
        ("u", 3): [1],
        ("u", 0): [2],
        ("t", 0): [4, 4],
    }
    response = ask(cluster, wanted)
    found = [
        (each.error_code, each.error_message) for t in response.responses for each in t.partitions
    ]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert found[:3] == [
        (unknown, "Unable to find a topic named nowhere."),
        (unknown, "Unable to find partition u:3."),
        (NONE, None),
    ]
    assert found[3][0] == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert set(listed(cluster)) == {("u", 0)}


def test_a_partition_is_moved_once_in_a_request(cluster: Cluster) -> None:
    twice = [ReassignablePartition(partition_index=0, replicas=each) for each in ([4], [5])]
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name="t", partitions=twice)]
    )
    response = cluster.apply(cluster.controller.alter_partition_reassignments(request))
    codes = [each.error_code for each in response.responses[0].partitions]
    assert codes == [NONE, ErrorCode.INVALID_REQUEST]
    assert cluster.partition("t").adding == (4,)


def test_a_request_has_a_limit(cluster: Cluster) -> None:
    cluster = with_topic(Cluster(2, config=settings(records_per_request_max=1)), (1,))
    with pytest.raises(ApiError) as refused:
        ask(cluster, {("t", 0): [2], ("u", 0): [2]})
    assert refused.value.code == ErrorCode.POLICY_VIOLATION
    assert listed(cluster) == {}


def test_the_replication_factor_may_be_kept(cluster: Cluster) -> None:
    changed = "The replication factor is changed from 3 to"
    refused = ErrorCode.INVALID_REPLICATION_FACTOR
    assert reply_to(cluster, [1, 2], keep_factor=True) == (refused, f"{changed} 2")
    assert reply_to(cluster, [1, 2, 3, 4], keep_factor=True) == (refused, f"{changed} 4")
    assert reply_to(cluster, [4, 5, 6], keep_factor=True) == (NONE, None)
    # That there are six replicas for the time being does not count.
    assert reply_to(cluster, [4, 5, 1, 2], keep_factor=True) == (refused, f"{changed} 4")
    assert reply_to(cluster, [4, 5, 1], keep_factor=True) == (NONE, None)


def test_a_dead_broker_may_be_a_target_and_a_cordoned_one_not(cluster: Cluster) -> None:
    fence(cluster, 4)
    assert move(cluster, 4, 2, 3) == NONE
    assert assignment(cluster) == ((4, 2, 3, 1), (4,), (1,))
    assert cancel(cluster) == NONE
    beat = BrokerHeartbeatRequest(
        broker_id=5,
        broker_epoch=cluster.epoch(5),
        current_metadata_offset=len(cluster.log),
        cordoned_log_dirs=[directory(5)],
    )
    cluster.apply(cluster.controller.broker_heartbeat(beat, cluster.now_ms, len(cluster.log)))
    code, message = reply_to(cluster, [5, 2, 3])
    assert code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert message == (
        "The manual partition assignment includes broker 5, but all its log directories are"
        " cordoned."
    )


# Completion.


def test_it_is_over_when_all_that_are_added_are_in_sync(cluster: Cluster) -> None:
    assert move(cluster, 4, 5, 1) == NONE
    assert propose(cluster, 1, 2, 3, 4).error_code == NONE
    assert cluster.partition("t").leader_epoch == 0
    assert assignment(cluster) == ((4, 5, 1, 2, 3), (4, 5), (2, 3))
    answer = propose(cluster, 1, 2, 3, 4, 5)
    assert (answer.error_code, answer.leader_id, answer.isr) == (NONE, 1, [1, 4, 5])
    partition = cluster.partition("t")
    assert assignment(cluster) == ((4, 5, 1), (), ())
    assert (partition.leader, partition.isr) == (1, (1, 4, 5))
    # 2 and 3 must not fetch from 1 in its old epoch, nor be proposed by it.
    assert partition.leader_epoch == answer.leader_epoch == 1
    assert answer.partition_epoch == partition.partition_epoch
    assert listed(cluster) == {}


def test_a_leader_that_is_out_is_sent_to_the_metadata(cluster: Cluster) -> None:
    assert move(cluster, 4, 5, 6) == NONE
    assert propose(cluster, 1, 2, 3, 4, 5, 6).error_code == ErrorCode.NEW_LEADER_ELECTED
    partition = cluster.partition("t")
    assert assignment(cluster) == ((4, 5, 6), (), ())
    assert (partition.leader, partition.isr, partition.leader_epoch) == (4, (4, 5, 6), 1)
    assert partition.directories == tuple(directory(each) for each in (4, 5, 6))


def test_the_next_leader_is_the_first_of_the_new_ones_that_is_alive(cluster: Cluster) -> None:
    assert move(cluster, 4, 5, 3) == NONE
    assert propose(cluster, 1, 3, 4, 5).error_code == ErrorCode.NEW_LEADER_ELECTED
    assert cluster.partition("t").leader == 4
    assert move(cluster, 6, 5, 3) == NONE
    fence(cluster, 3)  # out of sync, and neither added nor removed
    assert propose(cluster, 4, 5, 6).error_code == ErrorCode.NEW_LEADER_ELECTED
    assert cluster.partition("t").leader == 6
    assert assignment(cluster) == ((6, 5, 3), (), ())


def test_it_is_over_when_the_last_that_was_waited_for_is_fenced_by_nobody_but_elected(
    cluster: Cluster,
) -> None:
    """Every change completes it, not only the leader's proposal."""
    with_less = PartitionChangeRecord(
        topic_id=cluster.controller.image.topics["t"].topic_id, partition_id=0, isr=[1, 2]
    )
    cluster.controller.replay(with_less)
    assert move(cluster, 2, 3) == NONE
    assert assignment(cluster) == ((2, 3, 1), (), (1,)), "3 is not in sync"
    assert propose(cluster, 1, 2, 3).error_code == ErrorCode.NEW_LEADER_ELECTED
    assert assignment(cluster) == ((2, 3), (), ())
    assert cluster.partition("t").leader == 2


def test_a_leader_that_is_out_leads_no_longer_even_if_nobody_else_may() -> None:
    change = PartitionChange(
        topic_id=ZERO_UUID,
        number=0,
        partition=PartitionImage(
            replicas=(3, 4, 1, 2),
            directories=(DIRECTORY_MIGRATING,) * 4,
            isr=(1, 2),
            adding=(3, 4),
            removing=(1, 2),
            leader=1,
        ),
        rules=PartitionRules(min_isr=2, elr_enabled=False),
        is_acceptable_leader=lambda _: False,
        isr=(1, 2, 3, 4),
        recovery_state=LeaderRecoveryState.RECOVERED,
    )
    assert change.plan() == PartitionChangeRecord(
        partition_id=0,
        replicas=[3, 4],
        isr=[3, 4],
        adding_replicas=[],
        removing_replicas=[],
        leader=NO_LEADER,
    )


def test_who_left_is_not_eligible_any_more() -> None:
    cluster = with_topic(Cluster(4), min_insync_replicas="3")
    fence(cluster, 3)
    assert cluster.partition("t").elr == (3,)
    assert move(cluster, 1, 2, 4) == NONE
    assert propose(cluster, 1, 2, 4).error_code == NONE
    assert assignment(cluster) == ((1, 2, 4), (), ())
    assert cluster.partition("t").elr == ()
    assert move(cluster, 1) == NONE
    partition = cluster.partition("t")
    assert (partition.replicas, partition.isr, partition.elr) == ((1,), (1,), ())


def test_a_leaderless_partition_moves_when_it_has_a_leader_again(cluster: Cluster) -> None:
    fence(cluster, 3, 2, 1)
    assert cluster.partition("t").leader == NO_LEADER
    assert move(cluster, 1, 4) == NONE
    assert assignment(cluster) == ((1, 4, 2, 3), (4,), (2, 3))
    assert cluster.partition("t").last_known_elr == (1,)
    cluster.heartbeat(1)
    assert cluster.partition("t").leader == 1
    assert propose(cluster, 1, 4).error_code == NONE
    assert assignment(cluster) == ((1, 4), (), ())


# Replacement.


def test_a_second_move_begins_with_all_replicas_of_the_first(cluster: Cluster) -> None:
    assert move(cluster, 4, 5, 6) == NONE
    assert move(cluster, 1, 2, 4) == NONE
    # Kafka's rule: nothing is added now, so what the first added stays marked.
    assert assignment(cluster) == ((1, 2, 4, 3, 5, 6), (4, 5, 6), (3, 5, 6))
    assert propose(cluster, 1, 2, 3, 4).error_code == NONE
    assert assignment(cluster) == ((1, 2, 4), (), ())


def test_a_second_move_to_somewhere_else(cluster: Cluster) -> None:
    assert move(cluster, 4, 2, 3) == NONE
    assert move(cluster, 5, 2, 3) == NONE
    assert assignment(cluster) == ((5, 2, 3, 1, 4), (5,), (1, 4))
    # 4 came with the first move, and cancelling the second does not take it away.
    assert cancel(cluster) == NONE
    assert assignment(cluster) == ((2, 3, 1, 4), (), ())


def test_a_move_back_is_over_at_once(cluster: Cluster) -> None:
    assert move(cluster, 1, 2, 4) == NONE
    assert move(cluster, 1, 2, 3) == NONE
    assert assignment(cluster) == ((1, 2, 3), (), ())
    assert cluster.partition("t").leader_epoch == 1, "4 must not go on fetching"


# Cancellation.


def test_cancelling_leads_back(cluster: Cluster) -> None:
    assert move(cluster, 4, 5, 2) == NONE
    assert propose(cluster, 1, 2, 3, 4).error_code == NONE
    assert cancel(cluster) == NONE
    partition = cluster.partition("t")
    # Kafka's too: those that stay come first.
    assert assignment(cluster) == ((2, 1, 3), (), ())
    assert (partition.isr, partition.leader, partition.leader_epoch) == ((1, 2, 3), 1, 1)
    assert partition.directories == tuple(directory(each) for each in (2, 1, 3))
    assert cancel(cluster) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_cancelling_takes_the_leadership_from_one_that_goes(cluster: Cluster) -> None:
    assert move(cluster, 4, 5, 2) == NONE
    assert propose(cluster, 1, 4, 2).error_code == NONE
    cluster.heartbeat(1, want_fence=True)
    assert cluster.partition("t").leader == 4
    assert cancel(cluster) == NONE
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (2, (2,))


@pytest.mark.parametrize("allowed", [False, True])
def test_cancelling_may_lose_records_only_if_that_is_allowed(allowed: bool) -> None:
    cluster = with_topic(Cluster(6), unclean_leader_election_enable=str(allowed).lower())
    assert move(cluster, 4, 5, 2) == NONE
    assert propose(cluster, 1, 4).error_code == NONE
    cluster.heartbeat(1, want_fence=True)
    before = cluster.partition("t")
    assert (before.leader, before.isr, before.elr) == (4, (4,), ())
    code, message = reply_to(cluster, None)
    partition = cluster.partition("t")
    if allowed:
        assert code == NONE
        assert (partition.replicas, partition.leader, partition.isr) == ((2, 1, 3), 2, (2,))
    else:
        assert code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert message == (
            "Unable to revert partition assignment for t:0 because it would require an unclean"
            " leader election."
        )
        assert partition == before


def test_cancelling_is_clean_while_one_that_stays_is_eligible() -> None:
    """Kafka refuses this, although nothing can be lost: no leader committed without it."""
    cluster = with_topic(Cluster(6), min_insync_replicas="2")
    assert move(cluster, 4, 5, 2) == NONE
    assert propose(cluster, 1, 4).error_code == NONE
    assert propose(cluster, 1).error_code == NONE
    assert cluster.partition("t").elr == (4,)
    assert propose(cluster, 1, 4).error_code == NONE
    cluster.heartbeat(1, want_fence=True)
    before = cluster.partition("t")
    assert (before.leader, before.isr, before.elr) == (4, (4,), (1,))
    assert cancel(cluster) == ErrorCode.INVALID_REPLICA_ASSIGNMENT, "1 is not alive"
    cluster.heartbeat(1)
    assert cancel(cluster) == NONE
    after = cluster.partition("t")
    assert (after.replicas, after.leader, after.isr, after.elr) == ((2, 1, 3), 1, (1,), ())
    assert after.leader_recovery_state == 0


def test_cancelling_does_no_harm_to_what_has_no_leader() -> None:
    cluster = with_topic(Cluster(6), min_insync_replicas="2")
    fence(cluster, 3, 2, 1)
    assert move(cluster, 4, 5, 2) == NONE
    before = cluster.partition("t")
    assert (before.leader, before.isr, before.elr) == (NO_LEADER, (), (2, 1))
    assert cancel(cluster) == NONE
    after = cluster.partition("t")
    assert (after.replicas, after.leader, after.isr) == ((2, 1, 3), NO_LEADER, ())
    assert (after.elr, after.last_known_elr) == ((2, 1), (1,))


def test_a_move_to_a_dead_broker_can_always_be_cancelled(cluster: Cluster) -> None:
    fence(cluster, 4)
    assert move(cluster, 4) == NONE
    fence(cluster, 3, 2)
    assert cancel(cluster) == NONE
    assert assignment(cluster) == ((1, 2, 3), (), ())
    assert cluster.partition("t").isr == (1,)


# What else happens meanwhile.


def test_a_topic_may_be_deleted_meanwhile(cluster: Cluster) -> None:
    assert move(cluster, 4, 5, 6) == NONE
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t", topic_id=ZERO_UUID)])
    cluster.apply(cluster.controller.delete_topics(request))
    assert listed(cluster) == listed(cluster, {"t": [0]}) == {}
    assert cancel(cluster) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with_topic(cluster)
    assert listed(cluster) == {}, "another topic of that name"


def test_partitions_may_be_added_meanwhile(cluster: Cluster) -> None:
    assert move(cluster, 4, 5, 6) == NONE
    topic = CreatePartitionsTopic(name="t", count=2, assignments=None)
    request = CreatePartitionsRequest(topics=[topic])
    reply = cluster.apply(cluster.controller.create_partitions(request, Random(0)))
    assert reply.results[0].error_code == NONE
    # As in Kafka: as many replicas as partition 0 has for the time being.
    assert len(cluster.partition("t", 1).replicas) == 6
    assert set(listed(cluster)) == {("t", 0)}


def test_a_broker_that_is_added_may_crash_and_come_back(cluster: Cluster) -> None:
    assert move(cluster, 1, 2, 4) == NONE
    cluster.now_ms += 20_000
    cluster.start_broker(4, incarnation=1)
    assert assignment(cluster) == ((1, 2, 4, 3), (4,), (3,))
    assert propose(cluster, 1, 2, 3, 4).error_code == NONE
    assert assignment(cluster) == ((1, 2, 4), (), ())


def test_a_broker_that_is_added_may_be_unregistered(cluster: Cluster) -> None:
    assert move(cluster, 1, 2, 4) == NONE
    assert propose(cluster, 1, 2).error_code == NONE
    cluster.apply(cluster.controller.unregister_broker(4))
    assert assignment(cluster) == ((1, 2, 4, 3), (4,), (3,))
    assert cancel(cluster) == NONE
    assert assignment(cluster) == ((1, 2, 3), (), ())


def test_a_preferred_leader_may_be_elected_meanwhile(cluster: Cluster) -> None:
    assert move(cluster, 4, 1, 2) == NONE
    wanted = [TopicPartitions(topic="t", partitions=[0])]
    request = ElectLeadersRequest(election_type=0, topic_partitions=wanted)

    def elect() -> int:
        reply = cluster.apply(cluster.controller.elect_leaders(request))
        return reply.replica_election_results[0].partition_result[0].error_code

    assert elect() == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert propose(cluster, 1, 2, 3, 4).error_code == NONE
    assert assignment(cluster) == ((4, 1, 2), (), ())
    assert elect() == NONE
    assert cluster.partition("t").leader == 4


def test_a_directory_that_is_reported_completes_a_move(cluster: Cluster) -> None:
    """What a broker reports must not be lost in the change of replicas, nor undo it."""
    from odradek.protocol.generated import assign_replicas_to_dirs as dirs

    topic_id = cluster.controller.image.topics["t"].topic_id
    assert move(cluster, 1, 2, 4) == NONE
    in_sync = PartitionChangeRecord(topic_id=topic_id, partition_id=0, isr=[1, 2, 3, 4])
    cluster.controller.replay(in_sync)
    elsewhere = Uuid(b"another one of 4")
    partition = dirs.RequestPartitionData(partition_index=0)
    named = dirs.RequestDirectoryData(
        id=elsewhere, topics=[dirs.RequestTopicData(topic_id=topic_id, partitions=[partition])]
    )
    request = dirs.AssignReplicasToDirsRequest(
        broker_id=4, broker_epoch=cluster.epoch(4), directories=[named]
    )
    cluster.apply(cluster.controller.assign_replicas_to_dirs(request))
    assert assignment(cluster) == ((1, 2, 4), (), ())
    after = cluster.partition("t")
    assert after.directories == (directory(1), directory(2), elsewhere)
    assert after.isr == (1, 2), "4 has no such directory"


def test_lists(cluster: Cluster) -> None:
    cluster.create(new_topic("u", assignment={0: [1], 1: [1], 2: [2]}))
    assert move(cluster, 4, 5, 6) == NONE
    ask(cluster, {("u", 0): [2], ("u", 1): [2, 1]})
    t, u = ((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3)), ((2, 1), (2,), (1,))
    second = ((2, 1), (2,), ())
    assert listed(cluster) == {("t", 0): t, ("u", 0): u, ("u", 1): second}
    assert listed(cluster, {"u": [1, 2, 7], "nowhere": [0]}) == {("u", 1): second}
    assert listed(cluster, {}) == {}


def test_before_directories_were_known(cluster: Cluster) -> None:
    """At such a level of metadata.version the records cannot say where replicas lie."""
    cluster.controller.replay(FeatureLevelRecord(name="metadata.version", feature_level=16))
    cluster.create(new_topic("old", assignment={0: [1]}))
    before = PartitionImage(replicas=(1,), directories=(DIRECTORY_MIGRATING,), isr=(1,), leader=1)
    assert cluster.partition("old") == before
    assert ask(cluster, {("old", 0): [2, 3]}).responses[0].partitions[0].error_code == NONE
    moving = cluster.partition("old")
    assert moving.replicas == (2, 3, 1)
    assert moving.directories == (DIRECTORY_MIGRATING,) * 3
