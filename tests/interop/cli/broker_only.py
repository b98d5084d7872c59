"""A real Kafka broker that joins the cluster of another node."""

from collections.abc import Mapping
from pathlib import Path

from tests.interop.kafka_peer import KafkaNode, kafka_tool
from tests.interop.ports import HOST


class BrokerOnly(KafkaNode):
    def __init__(
        self,
        data_dir: Path,
        controller: KafkaNode,
        *,
        node_id: int,
        overrides: Mapping[str, str] | None = None,
    ) -> None:
        own = {
            "process.roles": "broker",
            "node.id": str(node_id),
            "controller.quorum.bootstrap.servers": f"{HOST}:{controller.controller_port}",
        }
        super().__init__(data_dir, {**(overrides or {}), **own})

    def _write_properties(self) -> Path:
        listener = f"PLAINTEXT://{HOST}:{self.port}"
        self.overrides |= {"listeners": listener, "advertised.listeners": listener}
        properties = super()._write_properties()
        if not (self.data_dir / "meta.properties").exists():
            # Not --standalone, as a node that votes on its own would be.
            kafka_tool("storage", "format", "-t", self.cluster_id, "-c", properties)
        return properties
