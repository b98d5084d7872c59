"""ElectLeaders and AlterPartition."""

import pytest

from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import Uuid
from odradek.metadata import NO_LEADER, LeaderRecoveryState
from odradek.metadata.image import finish
from odradek.protocol.generated.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)
from odradek.protocol.generated.elect_leaders import ElectLeadersRequest, TopicPartitions
from odradek.protocol.generated.metadata_records import ConfigRecord
from tests.unit.controller.cluster import Cluster, new_topic

PREFERRED, UNCLEAN = 0, 1


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(3)
    cluster.create(new_topic("t", assignment={0: [1, 2, 3]}))
    return cluster


def elect(
    cluster: Cluster, kind: int, partitions: dict[str, list[int]] | None
) -> dict[tuple[str, int], int]:
    wanted = None
    if partitions is not None:
        wanted = [TopicPartitions(topic=name, partitions=p) for name, p in partitions.items()]
    request = ElectLeadersRequest(election_type=kind, topic_partitions=wanted)
    reply = cluster.apply(cluster.controller.elect_leaders(request))
    return {
        (topic.topic, each.partition_id): each.error_code
        for topic in reply.replica_election_results
        for each in topic.partition_result
    }


def join_isr(cluster: Cluster, *isr: int) -> int:
    return alter(cluster, list(isr))[0]


def alter(cluster: Cluster, isr: list[int], **changes: int) -> tuple[int, int]:
    """Send the proposal of the leader, correct but for ``changes``; return code and epoch."""
    partition = cluster.partition("t")
    sender = changes.pop("sender", partition.leader)
    version = changes.pop("version", 3)
    epochs = {member: cluster.epoch(member) for member in isr if member <= 3}
    proposal = RequestPartitionData(
        partition_index=changes.pop("partition", 0),
        leader_epoch=partition.leader_epoch + changes.pop("leader_epoch", 0),
        new_isr=isr if version < 3 else None,
        new_isr_with_epochs=[
            BrokerState(broker_id=each, broker_epoch=epochs.get(each, 0)) for each in isr
        ]
        if version >= 3
        else None,
        partition_epoch=partition.partition_epoch + changes.pop("partition_epoch", 0),
        leader_recovery_state=changes.pop("recovery", 0),
    )
    topic_id = cluster.controller.image.topics["t"].topic_id
    if changes.pop("other_topic", 0):
        topic_id = Uuid(b"0123456789abcdef")
    assert not changes
    request = AlterPartitionRequest(
        broker_id=sender,
        broker_epoch=cluster.epoch(sender),
        topics=[RequestTopicData(topic_id=topic_id, partitions=[proposal])],
    )
    found = cluster.apply(cluster.controller.alter_partition(request)).topics[0].partitions[0]
    return found.error_code, found.partition_epoch


def test_preferred_leader_is_the_first_replica(cluster: Cluster) -> None:
    assert elect(cluster, PREFERRED, {"t": [0]}) == {("t", 0): ErrorCode.ELECTION_NOT_NEEDED}
    cluster.heartbeat(1, want_fence=True)
    assert cluster.partition("t").leader == 2
    refusal = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert elect(cluster, PREFERRED, {"t": [0]}) == {("t", 0): refusal}
    cluster.heartbeat(1)
    assert elect(cluster, PREFERRED, {"t": [0]}) == {("t", 0): refusal}  # not in sync yet
    assert join_isr(cluster, 2, 3, 1) == ErrorCode.NONE
    assert elect(cluster, PREFERRED, None) == {("t", 0): ErrorCode.NONE}
    assert cluster.partition("t").leader == 1
    assert elect(cluster, PREFERRED, None) == {}


def test_unknown_partitions_and_types(cluster: Cluster) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert elect(cluster, PREFERRED, {"t": [1], "u": [0]}) == {("t", 1): unknown, ("u", 0): unknown}
    with pytest.raises(ApiError) as error:
        elect(cluster, 2, None)
    assert error.value.code == ErrorCode.INVALID_REQUEST


def test_unclean_election_takes_whoever_is_alive(cluster: Cluster) -> None:
    assert elect(cluster, UNCLEAN, {"t": [0]}) == {("t", 0): ErrorCode.ELECTION_NOT_NEEDED}
    assert join_isr(cluster, 1) == ErrorCode.NONE
    cluster.heartbeat(1, want_fence=True)
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr, partition.elr) == (NO_LEADER, (), (1,))
    assert elect(cluster, UNCLEAN, {"t": [0]}) == {("t", 0): ErrorCode.NONE}
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr, partition.elr) == (2, (2,), ())
    assert partition.leader_recovery_state == LeaderRecoveryState.RECOVERING


def test_unclean_election_needs_someone(cluster: Cluster) -> None:
    for broker_id in (1, 2, 3):
        cluster.heartbeat(broker_id, want_fence=True)
    refusal = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert elect(cluster, UNCLEAN, {"t": [0]}) == {("t", 0): refusal}


def test_topic_that_allows_unclean_leaders_has_one_at_once() -> None:
    cluster = Cluster(2)
    config: dict[str, str | None] = {"unclean.leader.election.enable": "true"}
    cluster.create(new_topic("t", assignment={0: [1, 2]}, configs=config))
    join_isr(cluster, 1)
    cluster.heartbeat(1, want_fence=True)
    assert cluster.partition("t").leader == 2


def test_leader_changes_its_isr(cluster: Cluster) -> None:
    before = cluster.partition("t")
    assert alter(cluster, [1, 3]) == (ErrorCode.NONE, before.partition_epoch + 1)
    after = cluster.partition("t")
    assert (after.isr, after.leader_epoch) == ((1, 3), before.leader_epoch)
    assert alter(cluster, [1, 3])[0] == ErrorCode.NONE
    assert cluster.partition("t") == after, "nothing new, no record"
    assert alter(cluster, [1, 2, 3], version=2)[0] == ErrorCode.NONE


@pytest.mark.parametrize(
    ("isr", "changes", "code"),
    [
        ([1], {"leader_epoch": 1}, ErrorCode.NOT_CONTROLLER),
        ([1], {"partition_epoch": 1}, ErrorCode.NOT_CONTROLLER),
        ([1], {"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        ([1], {"partition_epoch": -1}, ErrorCode.INVALID_UPDATE_VERSION),
        ([2], {"sender": 2}, ErrorCode.INVALID_REQUEST),
        ([1, 2], {"sender": 2}, ErrorCode.INVALID_REQUEST),
        ([2], {}, ErrorCode.INVALID_REQUEST),
        ([1, 9], {}, ErrorCode.INVALID_REQUEST),
        ([1, 1], {}, ErrorCode.INVALID_REQUEST),
        ([], {}, ErrorCode.INVALID_REQUEST),
        ([1, 2], {"recovery": 1}, ErrorCode.INVALID_REQUEST),
        ([1], {"recovery": 1}, ErrorCode.INVALID_REQUEST),
        ([1], {"recovery": 5}, ErrorCode.INVALID_REQUEST),
        ([1], {"partition": 4}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ([1], {"other_topic": 1}, ErrorCode.UNKNOWN_TOPIC_ID),
    ],
)
def test_refused_proposals(
    cluster: Cluster, isr: list[int], changes: dict[str, int], code: ErrorCode
) -> None:
    before = cluster.partition("t")
    assert alter(cluster, isr, **changes)[0] == code
    assert cluster.partition("t") == before


def test_fenced_broker_cannot_join(cluster: Cluster) -> None:
    cluster.heartbeat(3, want_fence=True)
    assert join_isr(cluster, 1, 2, 3) == ErrorCode.INELIGIBLE_REPLICA


def test_recovering_leader_recovers(cluster: Cluster) -> None:
    test_unclean_election_takes_whoever_is_alive(cluster)
    assert alter(cluster, [2], recovery=1)[0] == ErrorCode.NONE
    assert alter(cluster, [2, 3])[0] == ErrorCode.NONE
    assert cluster.partition("t").leader_recovery_state == LeaderRecoveryState.RECOVERED


def test_the_controller_gives_leaders_back_to_the_preferred_replicas(cluster: Cluster) -> None:
    cluster.heartbeat(1, want_fence=True)
    cluster.heartbeat(1)
    assert cluster.partition("t").leader == 2
    assert cluster.apply(finish(cluster.controller.elect_preferred_leaders_in_steps())) is False
    assert cluster.partition("t").leader == 2, "not in sync yet"
    join_isr(cluster, 2, 3, 1)
    assert cluster.apply(finish(cluster.controller.elect_preferred_leaders_in_steps())) is False
    assert cluster.partition("t").leader == 1


@pytest.mark.seed_row("0.8")
def test_unclean_leaders_are_elected_only_where_that_is_allowed(cluster: Cluster) -> None:
    join_isr(cluster, 1)
    cluster.heartbeat(1, want_fence=True)
    assert cluster.partition("t").leader == NO_LEADER
    cluster.apply(finish(cluster.controller.elect_unclean_leaders_in_steps()))
    assert cluster.partition("t").leader == NO_LEADER
    allowed = ConfigRecord(
        resource_type=2, resource_name="t", name="unclean.leader.election.enable", value="true"
    )
    cluster.controller.replay(allowed)
    cluster.apply(finish(cluster.controller.elect_unclean_leaders_in_steps()))
    assert cluster.partition("t").leader == 2
