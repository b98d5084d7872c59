"""Where a cluster puts replicas, who leads, and to whom a consumer connects: seen on real nodes."""

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest

from odradek.client import BlockingProducer, Consumer
from odradek.client.cluster import FETCH_LANE
from odradek.core.ids import TopicPartition
from odradek.testing import Cluster

RACKS = ("a", "b")
NODES = 4
PARTITIONS = 8


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(nodes=NODES, racks=RACKS, topics={"orders": (PARTITIONS, 2)}) as cluster:
        cluster.wait_until_healthy()
        yield cluster


@pytest.mark.seed_row("1.3")
def test_replicas_are_in_different_racks(cluster: Cluster) -> None:
    racks = {node.id: node.rack for node in cluster}
    placed = [racks[each] for each in replicas_everywhere(cluster)]
    assert Counter(placed) == dict.fromkeys(RACKS, PARTITIONS)
    for partition in cluster.state.topics["orders"].values():
        assert {racks[each] for each in partition.replicas} == set(RACKS)


@pytest.mark.seed_row("1.5")
def test_leaders_are_balanced_and_each_is_the_first_of_its_replicas(cluster: Cluster) -> None:
    partitions = cluster.state.topics["orders"].values()
    assert [each.leader for each in partitions] == [each.replicas[0] for each in partitions]
    leaders = Counter(each.leader for each in partitions)
    assert leaders == {node.id: PARTITIONS // NODES for node in cluster}
    assert all(len(set(each.replicas)) == len(each.replicas) == 2 for each in partitions)
    replicas = Counter(replicas_everywhere(cluster))
    assert max(replicas.values()) - min(replicas.values()) <= 2


def replicas_everywhere(cluster: Cluster) -> list[int]:
    partitions = cluster.state.topics["orders"].values()
    return [replica for partition in partitions for replica in partition.replicas]


@pytest.mark.seed_row("2.4")
def test_a_consumer_fetches_over_one_connection_from_each_broker(cluster: Cluster) -> None:
    with BlockingProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(PARTITIONS):
            producer.send("orders", b"x", partition=number).result(60)

    async def read_all() -> list[int]:
        async with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
            partitions = [TopicPartition("orders", number) for number in range(PARTITIONS)]
            consumer.assign(partitions)
            consumer.seek_to_beginning()
            read: set[TopicPartition] = set()
            while len(read) < PARTITIONS:
                read |= (await consumer.poll(60)).keys()
            connections = consumer._running().cluster._connections
            return [address.node_id for address, lane in connections if lane == FETCH_LANE]

    assert sorted(asyncio.run(read_all())) == [node.id for node in cluster]
