"""The nodes of a migration: Kafka's and ours, each broker and controller in one process."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.cluster.flavours import Flavour, Kafka, Odradek, address
from tests.cluster.processes import Cluster, ClusterNode

KAFKA_IDS: Final = (1, 2, 3)
ODRADEK_IDS: Final = (11, 12, 13)
CLEAN_ENDS: Final = (0, 128 + 15)
"""Exit codes after SIGTERM; Java has one of its own."""
_COMBINED: Final = "broker,controller"


class Site:
    """``count`` nodes of Kafka, and as many of Odradek that are to take their places."""

    def __init__(self, folder: Path, count: int) -> None:
        self.kafka_ids = KAFKA_IDS[:count]
        self.odradek_ids = ODRADEK_IDS[:count]
        kinds: dict[int, Flavour] = {
            **dict.fromkeys(self.kafka_ids, Kafka()),
            **dict.fromkeys(self.odradek_ids, Odradek()),
        }
        self.cluster = Cluster(
            folder,
            dict.fromkeys(kinds, _COMBINED),
            kinds,
            quorum="dynamic",
            configs=configs(count),
            is_relayed=False,
            first_voters=self.kafka_ids,
        )

    def start(self) -> None:
        """Start Kafka's nodes; they and the clients know where the others will be."""
        for node in self.nodes(self.kafka_ids):
            node.start()
        for node in self.nodes(self.kafka_ids):
            node.wait_until_ready()

    @property
    def client_servers(self) -> str:
        """What clients begin with: brokers of both kinds, as one of them always runs."""
        return ",".join(each.bootstrap_servers for each in self.cluster.brokers)

    @property
    def controllers(self) -> str:
        """Where the controllers are that run."""
        running = (each for each in self.cluster.controllers if each.is_running)
        return ",".join(address(each.controller_port) for each in running)

    def nodes(self, ids: Sequence[int]) -> list[ClusterNode]:
        return [self.cluster.nodes[each] for each in ids]

    def prepare(self, node: ClusterNode) -> None:
        """See that the disk of a node that is to join is empty."""
        shutil.rmtree(node.data_dir)


def configs(count: int) -> dict[str, str]:
    """Return what both kinds of node are told."""
    copies, in_sync = str(count), str(min(count, 2))
    return {
        "offsets.topic.num.partitions": "3",
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.num.partitions": "3",
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "min.insync.replicas": in_sync,
        # Longer than a busy machine stands still.
        "broker.session.timeout.ms": "18000",
        "broker.heartbeat.interval.ms": "500",
        # Of a change of the voters, with its commit.
        "controller.quorum.request.timeout.ms": "15000",
        "log.retention.ms": "-1",
    }
