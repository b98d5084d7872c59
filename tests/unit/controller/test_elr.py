"""Eligible leader replicas (KIP-966), and elections that may lose records."""

import pytest

from odradek.core.errors import ErrorCode
from odradek.core.ids import Uuid
from odradek.metadata import CLUSTER_DEFAULTS, NO_LEADER, ConfigResource, LeaderRecoveryState
from odradek.protocol.generated.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)
from odradek.protocol.generated.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.generated.metadata_records import PartitionChangeRecord
from tests.unit.controller.cluster import Cluster, new_topic, settings

MIN_ISR = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"
ALL = CLUSTER_DEFAULTS
RECOVERED, RECOVERING = LeaderRecoveryState.RECOVERED, LeaderRecoveryState.RECOVERING


@pytest.fixture
def cluster() -> Cluster:
    """Three brokers, and a topic of which two replicas must be in sync."""
    cluster = Cluster(3)
    cluster.create(new_topic("t", assignment={0: [1, 2, 3]}, configs={MIN_ISR: "2"}))
    return cluster


def state(cluster: Cluster, topic: str = "t") -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    partition = cluster.partition(topic)
    return partition.leader, partition.isr, partition.elr


def fence(cluster: Cluster, *brokers: int) -> None:
    for broker_id in brokers:
        cluster.heartbeat(broker_id, want_fence=True)


def restart(cluster: Cluster, broker_id: int, *, previous_epoch: int) -> None:
    cluster.now_ms += 10_000  # its session is over
    cluster.register(broker_id, incarnation=1, previous_epoch=previous_epoch)


def configure(
    cluster: Cluster,
    resource: ConfigResource,
    name: str,
    value: str | None,
    *,
    validate_only: bool = False,
) -> ErrorCode:
    operation = 1 if value is None else 0
    config = AlterableConfig(name=name, config_operation=operation, value=value)
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=resource.type, resource_name=resource.name, configs=[config]
            )
        ],
        validate_only=validate_only,
    )
    reply = cluster.apply(cluster.controller.incremental_alter_configs(request))
    return ErrorCode(reply.responses[0].error_code)


def propose(cluster: Cluster, *isr: int, topic: str = "t") -> ErrorCode:
    """Have the leader propose an ISR."""
    partition = cluster.partition(topic)
    proposal = RequestPartitionData(
        partition_index=0,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        new_isr_with_epochs=[
            BrokerState(broker_id=each, broker_epoch=cluster.epoch(each)) for each in isr
        ],
    )
    topic_id = cluster.controller.image.topics[topic].topic_id
    request = AlterPartitionRequest(
        broker_id=partition.leader,
        broker_epoch=cluster.epoch(partition.leader),
        topics=[RequestTopicData(topic_id=topic_id, partitions=[proposal])],
    )
    reply = cluster.apply(cluster.controller.alter_partition(request))
    return ErrorCode(reply.topics[0].partitions[0].error_code)


def test_members_that_leave_below_the_minimum_stay_eligible(cluster: Cluster) -> None:
    fence(cluster, 3)
    assert state(cluster) == (1, (1, 2), ()), "two are enough: 3 may lack what they commit"
    fence(cluster, 2)
    assert state(cluster) == (1, (1,), (2,)), "nothing is committed without 2"
    fence(cluster, 1)
    assert state(cluster) == (NO_LEADER, (), (2, 1))
    assert cluster.partition("t").last_known_elr == (1,)


def test_an_isr_that_shrinks_by_proposal_leaves_its_members_eligible_too(cluster: Cluster) -> None:
    assert propose(cluster, 1, 2) == ErrorCode.NONE
    before = cluster.partition("t")
    assert propose(cluster, 1) == ErrorCode.NONE
    assert state(cluster) == (1, (1,), (2,))
    assert cluster.partition("t").leader_epoch == before.leader_epoch, "KAFKA-15021"
    assert propose(cluster, 1, 3) == ErrorCode.NONE
    assert state(cluster) == (1, (1, 3), ()), "two are in sync: 2 falls behind from now on"


def test_an_eligible_replica_leads_cleanly_when_it_is_back(cluster: Cluster) -> None:
    fence(cluster, 3, 2, 1)
    cluster.heartbeat(3)
    assert state(cluster) == (NO_LEADER, (), (2, 1)), "3 may lack what was committed"
    cluster.heartbeat(2)
    partition = cluster.partition("t")
    assert state(cluster) == (2, (2,), (1,))
    assert partition.last_known_elr == ()
    assert partition.leader_recovery_state == RECOVERED


@pytest.mark.parametrize("old", ["none", "of an earlier life"])
def test_a_broker_that_crashed_is_in_no_isr_and_not_eligible(cluster: Cluster, old: str) -> None:
    epoch = cluster.epoch(2)
    fence(cluster, 3, 2, 1)
    restart(cluster, 2, previous_epoch=-1 if old == "none" else epoch - 1)
    assert state(cluster) == (NO_LEADER, (), (1,))
    cluster.heartbeat(2)
    assert state(cluster) == (NO_LEADER, (), (1,)), "what it had may be gone"


def test_a_broker_that_stopped_cleanly_stays_eligible(cluster: Cluster) -> None:
    fence(cluster, 3, 2, 1)
    restart(cluster, 2, previous_epoch=cluster.epoch(2))
    assert state(cluster) == (NO_LEADER, (), (2, 1))
    cluster.heartbeat(2)
    assert state(cluster) == (2, (2,), (1,))


def test_the_last_in_sync_that_crashed_leads_again_as_the_last_known_leader() -> None:
    cluster = Cluster(2)
    cluster.create(new_topic("t", assignment={0: [1, 2]}))
    fence(cluster, 2, 1)
    assert state(cluster) == (NO_LEADER, (), (1,))
    restart(cluster, 1, previous_epoch=-1)
    assert state(cluster) == (NO_LEADER, (), ())
    assert cluster.partition("t").last_known_elr == (1,)
    cluster.heartbeat(2)
    assert state(cluster) == (NO_LEADER, (), ()), "it was behind"
    cluster.heartbeat(1)  # KAFKA-19522: not before it is unfenced
    assert state(cluster) == (1, (1,), ())
    assert cluster.partition("t").leader_recovery_state == RECOVERING
    assert propose(cluster, 1, 2) == ErrorCode.NONE
    assert cluster.partition("t").leader_recovery_state == RECOVERED


def test_the_minimum_is_the_topic_s_and_at_most_its_replicas() -> None:
    cluster = Cluster(2, config=settings(min_insync_replicas=2))
    few: dict[str, str | None] = {MIN_ISR: "1"}
    many: dict[str, str | None] = {MIN_ISR: "5"}
    cluster.create(new_topic("usual", assignment={0: [1, 2]}))
    cluster.create(new_topic("few", assignment={0: [1, 2]}, configs=few))
    cluster.create(new_topic("many", assignment={0: [1, 2]}, configs=many))
    cluster.create(new_topic("single", assignment={0: [1]}))
    fence(cluster, 2)
    assert state(cluster, "usual") == (1, (1,), (2,))
    assert state(cluster, "few") == (1, (1,), ())
    assert state(cluster, "many") == (1, (1,), (2,))
    assert state(cluster, "single") == (1, (1,), ())


def test_a_change_of_the_minimum_forgets_who_was_eligible() -> None:
    cluster = Cluster(2, config=settings(min_insync_replicas=2))
    for name in ("a", "b"):
        cluster.create(new_topic(name, assignment={0: [1, 2]}))
    fence(cluster, 2)
    assert [state(cluster, name)[2] for name in "ab"] == [(2,), (2,)]
    assert configure(cluster, ConfigResource.topic("a"), MIN_ISR, "1") == ErrorCode.NONE
    assert [state(cluster, name)[2] for name in "ab"] == [(), (2,)]
    assert configure(cluster, ALL, MIN_ISR, "1") == ErrorCode.NONE
    assert [state(cluster, name)[2] for name in "ab"] == [(), ()]
    one = ConfigResource.broker(1)
    assert configure(cluster, one, MIN_ISR, "1") == ErrorCode.INVALID_CONFIG


# Unclean elections.


@pytest.fixture
def leaderless(cluster: Cluster) -> Cluster:
    """Of two topics 3 is the only broker that is alive, and it is not eligible."""
    cluster.create(new_topic("u", assignment={0: [1, 2, 3]}, configs={MIN_ISR: "2"}))
    fence(cluster, 3, 2, 1)
    cluster.heartbeat(3)
    assert state(cluster) == state(cluster, "u") == (NO_LEADER, (), (2, 1))
    return cluster


def test_unclean_elections_of_a_topic_are_held_when_it_allows_them(leaderless: Cluster) -> None:
    topic = ConfigResource.topic("t")
    assert configure(leaderless, topic, UNCLEAN, "true", validate_only=True) == ErrorCode.NONE
    assert state(leaderless) == (NO_LEADER, (), (2, 1))
    assert configure(leaderless, topic, "retention.ms", "1000") == ErrorCode.NONE
    assert state(leaderless) == (NO_LEADER, (), (2, 1))
    assert configure(leaderless, topic, UNCLEAN, "true") == ErrorCode.NONE
    assert state(leaderless) == (3, (3,), ())
    assert leaderless.partition("t").leader_recovery_state == RECOVERING
    assert state(leaderless, "u") == (NO_LEADER, (), (2, 1)), "another topic"


def test_unclean_elections_of_the_cluster_leave_out_topics_that_forbid_them(
    leaderless: Cluster,
) -> None:
    assert configure(leaderless, ConfigResource.topic("t"), UNCLEAN, "false") == ErrorCode.NONE
    assert configure(leaderless, ALL, UNCLEAN, "true") == ErrorCode.NONE
    assert state(leaderless) == (NO_LEADER, (), (2, 1))
    assert state(leaderless, "u") == (3, (3,), ())
    # What forbade it is taken back.
    assert configure(leaderless, ConfigResource.topic("t"), UNCLEAN, None) == ErrorCode.NONE
    assert state(leaderless) == (3, (3,), ())


# Proposals.


def test_a_leader_whose_directory_is_gone_hears_of_another_one(cluster: Cluster) -> None:
    partition = cluster.partition("t")
    topic_id = cluster.controller.image.topics["t"].topic_id
    elsewhere = [Uuid(b"a-lost-directory"), *partition.directories[1:]]
    moved = PartitionChangeRecord(topic_id=topic_id, partition_id=0, directories=elsewhere)
    cluster.controller.replay(moved)
    assert propose(cluster, 1, 2) == ErrorCode.NEW_LEADER_ELECTED
    assert state(cluster)[:2] == (2, (1, 2))


@pytest.mark.parametrize("member", ["fenced", "stopping", "restarted", "old epoch", "unknown"])
def test_members_that_may_not_join(cluster: Cluster, member: str) -> None:
    assert propose(cluster, 1, 2) == ErrorCode.NONE
    epoch = cluster.epoch(3)
    match member:
        case "fenced":
            fence(cluster, 3)
        case "stopping":
            cluster.create(new_topic("alone", assignment={0: [3, 1]}))
            cluster.heartbeat(3, want_shut_down=True)
        case "restarted":
            restart(cluster, 3, previous_epoch=epoch)
        case "old epoch":
            restart(cluster, 3, previous_epoch=epoch)
            cluster.heartbeat(3)
        case "unknown":
            cluster.apply(cluster.controller.unregister_broker(3))
    before = cluster.partition("t")
    assert proposed_with(cluster, {1: cluster.epoch(1), 3: epoch}) == ErrorCode.INELIGIBLE_REPLICA
    assert cluster.partition("t") == before


def proposed_with(cluster: Cluster, members: dict[int, int], times: int = 1) -> ErrorCode:
    """Have the leader propose members with broker epochs; return the last answer."""
    partition = cluster.partition("t")
    proposal = RequestPartitionData(
        partition_index=0,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        new_isr_with_epochs=[
            BrokerState(broker_id=each, broker_epoch=epoch) for each, epoch in members.items()
        ],
    )
    topic_id = cluster.controller.image.topics["t"].topic_id
    request = AlterPartitionRequest(
        broker_id=partition.leader,
        broker_epoch=cluster.epoch(partition.leader),
        topics=[RequestTopicData(topic_id=topic_id, partitions=[proposal] * times)],
    )
    reply = cluster.apply(cluster.controller.alter_partition(request))
    return ErrorCode(reply.topics[0].partitions[-1].error_code)


def test_an_epoch_that_is_not_known_is_not_compared(cluster: Cluster) -> None:
    assert proposed_with(cluster, {1: -1, 2: -1}) == ErrorCode.NONE
    assert cluster.partition("t").isr == (1, 2)


def test_a_partition_is_changed_once_in_a_request(cluster: Cluster) -> None:
    before = cluster.partition("t")
    assert proposed_with(cluster, {1: -1, 2: -1}, times=2) == ErrorCode.INVALID_UPDATE_VERSION
    assert cluster.partition("t").partition_epoch == before.partition_epoch + 1


# Cost.


def steps_to_fence(cluster: Cluster, broker_id: int) -> tuple[int, int]:
    """Return how many steps it takes to plan that a broker is fenced, and how many records."""
    cluster.now_ms += 9_000
    for each in cluster.controller.image.brokers.values():
        if each.broker_id != broker_id:
            cluster.controller.touch_session(each.broker_id, each.epoch, cluster.now_ms)
    steps = cluster.controller.fence_stale_broker_in_steps(cluster.now_ms)
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            cluster.apply(ended.value)
            return count, len(ended.value.records)
        count += 1


def test_fencing_looks_at_the_partitions_of_a_broker_a_few_in_each_turn() -> None:
    cluster = Cluster(4)
    cluster.create(new_topic("many", assignment={number: [1, 2] for number in range(500)}))
    cluster.create(new_topic("few", assignment={number: [4, 1] for number in range(5)}))
    assert steps_to_fence(cluster, 4) == (5, 6)
    assert steps_to_fence(cluster, 2) == (500, 501)
