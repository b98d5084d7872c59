"""Storms on the metadata quorum alone: its log, its raft, its lanes; no controller, no broker."""

from odradek.core.config import BrokerConfig
from odradek.metadata.image import ClusterImage
from odradek.quorum.node_ports import NodePorts
from tests.simulation.cluster.cluster import HEAL_SECONDS_MAX, START_SECONDS_MAX, Cluster
from tests.simulation.cluster.machine import AnyNode
from tests.simulation.cluster.quorum_node import QuorumNode


class QuorumCluster(Cluster):
    def make_node(self, config: BrokerConfig, ports: NodePorts) -> AnyNode:
        return QuorumNode(self.ledger, config, ports)

    def start(self) -> None:
        for machine in self.machines.values():
            machine.start()
        self._wait_until_well(START_SECONDS_MAX)

    def begin_work(self) -> None:
        """Do nothing: leaders append by themselves."""

    def flood(self, seconds: float) -> None:
        """Do nothing: there are no clients."""

    def end_work(self) -> None:
        self.is_over = True

    def check_well(self) -> None:
        self._wait_until_well(HEAL_SECONDS_MAX)
        count = len(self.ledger.created)
        self.world.run_until(lambda: len(self.ledger.created) > count + 2, HEAL_SECONDS_MAX)

    def check_end(self) -> None:
        for machine in self.machines.values():
            self.oracle.check(machine)
        assert self.oracle.latest is not None
        self.ledger.check(self.oracle.latest)
        self._check_images_agree()

    def problems_of(self, _image: ClusterImage) -> list[str]:
        return []
