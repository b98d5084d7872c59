"""A broker under controllers of the other kind that are named by ``controller.quorum.voters``.

Kafka's has two log directories, and says in which of them each replica lies.
"""

import shutil
from pathlib import Path

import pytest

from odradek.core.ids import Uuid
from odradek.metadata.partition import DIRECTORY_UNASSIGNED
from odradek.raft.messages import ReplicaKey
from tests.cluster.asking import create_until_done, leaders_of
from tests.cluster.flavours import Flavour, Kafka, Odradek
from tests.cluster.processes import Cluster, wait_until
from tests.interop.clients import Sent
from tests.interop.clients.confluent import Confluent
from tests.interop.cluster.observer import Observer

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.usefixtures("kafka_libs")]

BROKER = 11
PARTITIONS = 4
RECORDS = [Sent(None, b"v%d" % i, (), 1_700_000_000_000 + i) for i in range(5)]
CONFIGS = {"log.retention.ms": "-1"}


@pytest.mark.parametrize("kind", ["kafka", "odradek"])
def test_it_serves_its_topics(kind: str, tmp_path: Path) -> None:
    """``kind`` is that of the controllers."""
    flavours: tuple[Flavour, Flavour] = (Kafka(), Odradek())
    controllers, brokers = flavours if kind == "kafka" else reversed(flavours)
    roles = {1: "controller", 2: "controller", 3: "controller", BROKER: "broker"}
    by_node = {**dict.fromkeys((1, 2, 3), controllers), BROKER: brokers}
    cluster = Cluster(tmp_path, roles, quorum="static", flavour=by_node, configs=CONFIGS)
    with cluster:
        broker = cluster.nodes[BROKER]
        if kind == "odradek":
            log_dirs = f"{broker.data_dir},{broker.folder / 'other'}"
            cluster.write_properties(broker, log_dirs=log_dirs)
            shutil.rmtree(broker.data_dir)
            cluster.format(broker)
        cluster.start()
        leaders = [BROKER] * PARTITIONS
        create_until_done(broker, "t", leaders)
        wait_until(lambda: leaders_of(broker, "t") == leaders, "the broker leads")
        client = Confluent(broker.bootstrap_servers)
        for partition in range(PARTITIONS):
            client.produce("t", RECORDS, partition=partition)
            seen = client.consume("t", len(RECORDS), partition=partition)
            assert [each.record for each in seen] == RECORDS
        check_directories(cluster)


def check_directories(cluster: Cluster) -> None:
    ports = [each.controller_port for each in cluster.controllers]
    replica = ReplicaKey(9000, Uuid(b"an instrument..!"))
    with Observer(ports, cluster.cluster_id, replica) as observer:
        image = observer.follow_until(
            lambda image: (
                "t" in image.topics
                and not any(
                    DIRECTORY_UNASSIGNED in each.directories
                    for each in image.topics["t"].partitions.values()
                )
            ),
            "every replica is in a directory",
        )
    found = {each.directories[0] for each in image.topics["t"].partitions.values()}
    assert found == set(image.brokers[BROKER].log_dirs)
    assert observer.quorum.kraft_version == 0
