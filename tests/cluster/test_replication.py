"""Partitions with three replicas on three nodes that are processes."""

from pathlib import Path

import pytest

from odradek.client import BlockingAdmin, BlockingConsumer, BlockingProducer, NewTopic
from tests.cluster.flavours import Flavour
from tests.cluster.processes import COMBINED, Cluster, wait_until

pytestmark = pytest.mark.slow

SECONDS_MAX = 120
CONFIGS = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}


def test_a_follower_takes_over_with_all_that_was_acknowledged(
    tmp_path: Path, flavour: Flavour
) -> None:
    with Cluster(tmp_path, COMBINED, flavour, configs=CONFIGS) as cluster:
        cluster.start()
        servers = cluster.bootstrap_servers
        topic = NewTopic(
            "t", partitions=3, replication_factor=3, configs={"min.insync.replicas": "2"}
        )
        with BlockingAdmin(bootstrap_servers=servers) as admin:
            admin.create_topics([topic]).unwrap()
        acknowledged = []
        with BlockingProducer(bootstrap_servers=servers, acks="all", linger_ms=0) as producer:
            for number in range(300):
                if number == 100:
                    cluster.brokers[0].kill()
                producer.send("t", b"%d" % number, partition=number % 3).result(60)
                acknowledged.append(b"%d" % number)
        read: list[bytes | None] = []
        with BlockingConsumer(
            "t", bootstrap_servers=servers, auto_offset_reset="earliest"
        ) as consumer:

            def poll() -> bool:
                for records in consumer.poll(1.0).values():
                    read.extend(record.value for record in records)
                return len(read) >= len(acknowledged)

            wait_until(poll, "every record is read", SECONDS_MAX)
        assert sorted(read) == sorted(acknowledged)  # type: ignore[type-var]
