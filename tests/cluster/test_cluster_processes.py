"""Nodes as processes: three controllers and two brokers, or three nodes that are both.

The same tests run with Kafka's server: what they ask for is what Kafka does.
"""

from pathlib import Path

import pytest

from odradek.client import BlockingConsumer, BlockingProducer
from tests.cluster.asking import active_controller, alive_brokers, describe_quorum, make_topic
from tests.cluster.flavours import Flavour
from tests.cluster.processes import (
    COMBINED,
    IS_WHOLE_MATRIX,
    SEPARATE,
    Cluster,
    Quorum,
    wait_until,
)
from tests.interop.clients import Sent
from tests.interop.clients.confluent import Confluent

pytestmark = pytest.mark.slow

TOPOLOGIES = {"separate": SEPARATE, "combined": COMBINED}
CASES: list[tuple[str, Quorum]] = [("separate", "static"), ("combined", "dynamic")]
if IS_WHOLE_MATRIX:
    CASES += [("separate", "dynamic"), ("combined", "static")]
CONTROLLERS = {1, 2, 3}
RECORDS = 50
SECONDS_MAX = 120
# A broker that was killed is let in again when its session is over.
SHORT_SESSIONS = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
CLEAN_ENDS = {0, 128 + 15}  # a JVM reports the signal that it was stopped by


def write_and_read(cluster: Cluster, topic: str, partitions: int) -> None:
    """Write with our client and with librdkafka, and read everything with the other."""
    servers = cluster.bootstrap_servers
    with BlockingProducer(bootstrap_servers=servers) as producer:
        for number in range(RECORDS):
            producer.send(topic, b"o%d" % number, partition=number % partitions)
    confluent = Confluent(servers)
    confluent.produce(topic, [Sent(None, b"c%d" % number) for number in range(RECORDS)])
    written = {b"%s%d" % (kind, number) for kind in (b"o", b"c") for number in range(RECORDS)}
    read: set[bytes | None] = set()
    with BlockingConsumer(
        topic, bootstrap_servers=servers, group_id=f"{topic}-readers", auto_offset_reset="earliest"
    ) as consumer:

        def poll() -> bool:
            for records in consumer.poll(1.0).values():
                read.update(record.value for record in records)
            return len(read) >= len(written)

        wait_until(poll, "every record is read", SECONDS_MAX)
    assert read == written
    values = [
        seen.record.value
        for number in range(partitions)
        for seen in confluent.consume(
            topic, confluent.watermarks(topic, number)[1], partition=number
        )
    ]
    assert set(values) == written


@pytest.mark.parametrize(("topology", "quorum"), CASES)
def test_a_cluster_of_processes_serves_clients(
    tmp_path: Path, flavour: Flavour, topology: str, quorum: Quorum
) -> None:
    with Cluster(tmp_path, TOPOLOGIES[topology], flavour, quorum=quorum) as cluster:
        cluster.start()
        ids = [broker.id for broker in cluster.brokers]
        for broker in cluster.brokers:
            wait_until(
                lambda broker=broker: alive_brokers(broker) == set(ids),  # type: ignore[misc]
                f"broker {broker.id} knows the others",
            )
        found = describe_quorum(cluster.brokers[0])
        assert found is not None
        assert found.leader_id in CONTROLLERS
        assert found.voters == CONTROLLERS
        assert found.observers == set(ids) - CONTROLLERS
        make_topic(cluster, "t", ids)
        write_and_read(cluster, "t", len(ids))


def test_a_broker_comes_back_with_its_records(tmp_path: Path, flavour: Flavour) -> None:
    with Cluster(tmp_path, SEPARATE, flavour, configs=SHORT_SESSIONS) as cluster:
        cluster.start()
        first, second = cluster.brokers
        make_topic(cluster, "t", [first.id, second.id])
        write_and_read(cluster, "t", 2)
        assert first.stop() in CLEAN_ENDS
        come_back(cluster, "after-stop")
        first.kill()
        come_back(cluster, "after-kill")
        assert active_controller(cluster).id in CONTROLLERS


def come_back(cluster: Cluster, topic: str) -> None:
    first, second = cluster.brokers
    first.restart()
    wait_until(lambda: alive_brokers(second) == {first.id, second.id}, "both are alive")
    make_topic(cluster, topic, [first.id, second.id])
    write_and_read(cluster, topic, 2)
    confluent = Confluent(cluster.bootstrap_servers)
    ends = [confluent.watermarks("t", number)[1] for number in range(2)]
    assert sum(ends) == 2 * RECORDS
