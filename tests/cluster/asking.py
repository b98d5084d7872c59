"""Questions to a cluster, in single requests: nothing retries unless a test does."""

import time
from collections.abc import Sequence
from typing import NamedTuple

from odradek.core.errors import ErrorCode
from odradek.protocol.generated.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.protocol.generated.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RequestPartitionData,
    RequestTopicData,
)
from odradek.protocol.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tests.broker_connection import BrokerConnection
from tests.cluster.processes import Cluster, ClusterNode, wait_until

CREATE_VERSION, QUORUM_VERSION, METADATA_VERSION = 7, 2, 9
ANSWER_SECONDS_MAX = 120.0


class Quorum(NamedTuple):
    leader_id: int
    leader_epoch: int
    voters: frozenset[int]
    observers: frozenset[int]
    slowest_voter_lag: int
    """Records that the slowest voter still has to fetch."""


def create_topic(node: ClusterNode, topic: str, leaders: Sequence[int], timeout_ms: int) -> int:
    """Ask once for a topic whose partitions are on these brokers; returns the error code."""
    assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=[leader])
        for index, leader in enumerate(leaders)
    ]
    wanted = CreatableTopic(
        name=topic, num_partitions=-1, replication_factor=-1, assignments=assignments
    )
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=timeout_ms)
    with BrokerConnection(node.port) as connection:
        (made,) = connection.ask(request, CreateTopicsResponse, CREATE_VERSION).topics
    return made.error_code


def create_until_done(node: ClusterNode, topic: str, leaders: Sequence[int]) -> float:
    """Create a topic through one broker, trying again while refused; returns the seconds it took.

    That the topic exists already is a success: the answer to an earlier try was lost.
    """
    begun = time.monotonic()
    while True:
        code = create_topic(node, topic, leaders, timeout_ms=30_000)
        if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            return time.monotonic() - begun
        assert time.monotonic() - begun < ANSWER_SECONDS_MAX, ErrorCode(code)


class Placement(NamedTuple):
    """A partition as one broker knows it."""

    leader: int
    leader_epoch: int
    isr: frozenset[int]


def make_topic(cluster: Cluster, topic: str, leaders: Sequence[int]) -> None:
    """Create a topic, and wait until every broker that is to lead a partition knows it."""
    asked = next(node for node in cluster.brokers if node.is_running)
    create_until_done(asked, topic, leaders)
    for node_id in {*leaders, asked.id}:
        node = cluster.nodes[node_id]
        wait_until(
            lambda node=node: leaders_of(node, topic) == list(leaders),  # type: ignore[misc]
            f"node {node.id} knows the topic {topic}",
        )


def placements_of(node: ClusterNode, topic: str) -> list[Placement]:
    """Return a topic's partitions, as one broker knows them."""
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )
    with BrokerConnection(node.port) as connection:
        answer = connection.ask(request, MetadataResponse, METADATA_VERSION)
    (found,) = answer.topics
    by_index = {
        each.partition_index: Placement(
            each.leader_id, each.leader_epoch, frozenset(each.isr_nodes)
        )
        for each in found.partitions
    }
    return [by_index[index] for index in sorted(by_index)]


def leaders_of(node: ClusterNode, topic: str) -> list[int]:
    """Return the leaders of a topic's partitions, as one broker knows them."""
    return [each.leader for each in placements_of(node, topic)]


def alive_brokers(node: ClusterNode) -> set[int]:
    with BrokerConnection(node.port) as connection:
        answer = connection.ask(MetadataRequest(topics=[]), MetadataResponse, METADATA_VERSION)
    return {broker.node_id for broker in answer.brokers}


def describe_quorum(node: ClusterNode) -> Quorum | None:
    """Ask one broker; None while it knows no leader."""
    topic = RequestTopicData(
        topic_name="__cluster_metadata", partitions=[RequestPartitionData(partition_index=0)]
    )
    request = DescribeQuorumRequest(topics=[topic])
    with BrokerConnection(node.port) as connection:
        answer = connection.ask(request, DescribeQuorumResponse, QUORUM_VERSION)
    if answer.error_code or answer.topics[0].partitions[0].error_code:
        return None
    found = answer.topics[0].partitions[0]
    ends = [each.log_end_offset for each in found.current_voters]
    return Quorum(
        found.leader_id,
        found.leader_epoch,
        frozenset(each.replica_id for each in found.current_voters),
        frozenset(each.replica_id for each in found.observers),
        max(ends) - min(ends),
    )


def active_controller(cluster: Cluster, asked: ClusterNode | None = None) -> ClusterNode:
    """Return the leader of the quorum, as a broker knows it."""
    broker = asked or next(node for node in cluster.brokers if node.is_running)
    found: list[Quorum] = []

    def is_known() -> bool:
        quorum = describe_quorum(broker)
        found[:] = [] if quorum is None else [quorum]
        return quorum is not None

    wait_until(is_known, "the quorum has a leader")
    return cluster.nodes[found[0].leader_id]
