"""AssignReplicasToDirs; what a real Kafka answers to the same is in tests/interop/cluster."""

import pytest

from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import Uuid
from odradek.protocol.generated.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    RequestDirectoryData,
    RequestPartitionData,
    RequestTopicData,
)
from tests.unit.controller.cluster import Cluster, directory, new_topic, settings

OTHER = Uuid(b"another of mine.")


def request(cluster: Cluster, where: Uuid, *numbers: int) -> AssignReplicasToDirsRequest:
    topic = RequestTopicData(
        topic_id=cluster.controller.image.topics["t"].topic_id,
        partitions=[RequestPartitionData(partition_index=number) for number in numbers],
    )
    return AssignReplicasToDirsRequest(
        broker_id=1,
        broker_epoch=cluster.epoch(1),
        directories=[RequestDirectoryData(id=where, topics=[topic])],
    )


def assign(cluster: Cluster, where: Uuid, *numbers: int) -> list[int]:
    planned = cluster.controller.assign_replicas_to_dirs(request(cluster, where, *numbers))
    reply = cluster.apply(planned)
    return [part.error_code for part in reply.directories[0].topics[0].partitions]


def test_one_bad_partition_does_not_fail_its_neighbours() -> None:
    cluster = Cluster(2)
    cluster.create(new_topic("t", assignment={0: [1], 1: [2]}))
    assert assign(cluster, directory(1), 0, 1, 2) == [
        ErrorCode.NONE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_what_is_known_already_takes_no_record() -> None:
    cluster = Cluster(1)
    cluster.create(new_topic("t"))
    end = len(cluster.log)
    assert assign(cluster, directory(1), 0) == [0]
    assert len(cluster.log) == end


def test_a_directory_that_the_broker_does_not_have_counts_as_failed() -> None:
    cluster = Cluster(2)
    cluster.create(new_topic("t", assignment={0: [1, 2]}))
    assert assign(cluster, OTHER, 0) == [0]
    partition = cluster.partition("t")
    assert partition.directories == (OTHER, directory(2))
    assert (partition.leader, partition.isr) == (2, (2,))


def test_too_many_are_refused() -> None:
    cluster = Cluster(1, config=settings(partitions_per_request_max=4))
    cluster.create(new_topic("t", 3))
    assert assign(cluster, directory(1), 0, 1) == [0, 0]
    with pytest.raises(ApiError, match="more than 2 assignments: split the request"):
        assign(cluster, directory(1), 0, 1, 2)
