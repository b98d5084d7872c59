"""A client on an embedded cluster that is broken under it: as users write their tests."""

from collections.abc import Iterator

import pytest

from odradek.client import BlockingConsumer, BlockingProducer
from odradek.core.ids import TopicPartition
from odradek.testing import Cluster

PARTITION = TopicPartition("orders", 0)
SECONDS_MAX = 60


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(nodes=3, topics={"orders": (1, 3)}, config={"min.insync.replicas": "2"}) as made:
        yield made


def write(producer: BlockingProducer, values: range) -> None:
    for each in [producer.send("orders", b"%d" % value, partition=0) for value in values]:
        each.result(SECONDS_MAX)


def read(cluster: Cluster, count: int) -> list[int]:
    with BlockingConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        consumer.assign([PARTITION])
        consumer.seek_to_beginning()
        found: list[int] = []
        while len(found) < count:
            for records in consumer.poll(SECONDS_MAX).values():
                found += [int(record.value or b"") for record in records]
        return found


@pytest.mark.seed_row("0.7")
def test_a_kill_and_a_cut_under_one_producer_lose_and_double_nothing(cluster: Cluster) -> None:
    """Two seconds on an idle core: of waits for sessions and for answers that do not come."""
    with BlockingProducer(
        bootstrap_servers=cluster.bootstrap_servers,
        request_timeout_ms=500,
        socket_connection_setup_timeout_ms=500,
    ) as producer:
        write(producer, range(100))
        killed = cluster.leader("orders")
        killed.kill()
        write(producer, range(100, 200))
        killed.start()
        cluster.wait_until_healthy()
        cluster.isolate(cluster.leader("orders").id)
        write(producer, range(200, 300))
        cluster.heal()
        cluster.wait_until_healthy()
    assert read(cluster, 300) == list(range(300))
