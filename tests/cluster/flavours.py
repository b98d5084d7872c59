"""The two servers that a cluster of processes may be made of: Odradek, and Kafka itself.

Tests that run with both say what Kafka does, and so what Odradek is to do.
"""

import re
import struct
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from click.testing import CliRunner

from odradek.cli.main import main
from odradek.protocol.generated.metadata import MetadataRequest, MetadataResponse
from tests.broker_connection import BrokerConnection
from tests.interop.kafka_peer import kafka_tool, resolve_jars
from tests.interop.kafka_peer.jvm import listens
from tests.interop.kafka_peer.tools import java_command
from tests.interop.ports import HOST

ODRADEK_COMMAND = str(Path(sys.executable).with_name("odradek"))
METADATA_VERSION = 9
_READY = re.compile(rb"^odradek ready on (?P<host>\S+):(?P<port>\d+)$", re.MULTILINE)


class Flavour(Protocol):
    name: str
    configs: Mapping[str, str]
    """What every node of a test has, so that many fit on a small machine."""

    def format(self, properties: Path, arguments: Sequence[str]) -> None:
        """Run `storage format`; raises if it does not end with 0."""
        ...

    def command(self, properties: Path) -> list[str]: ...

    def is_ready(self, node_id: int, ports: Mapping[str, int], output: Path) -> bool:
        """Tell whether a node serves all its ``ports``: a broker when it is unfenced."""
        ...


class Odradek:
    name = "odradek"
    configs: Mapping[str, str] = {
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }

    def format(self, properties: Path, arguments: Sequence[str]) -> None:
        # In this process: a hundred nodes are formatted, and the tool would be loaded for each.
        run = CliRunner().invoke(main, ["storage", "format", "-c", str(properties), *arguments])
        assert run.exit_code == 0, run.output

    def command(self, properties: Path) -> list[str]:
        return [ODRADEK_COMMAND, "serve", str(properties)]

    def is_ready(self, node_id: int, ports: Mapping[str, int], output: Path) -> bool:
        said = {int(match["port"]) for match in _READY.finditer(output.read_bytes())}
        return said >= set(ports.values())


class Kafka:
    name = "kafka"
    configs: Mapping[str, str] = {
        **Odradek.configs,
        "num.network.threads": "1",
        "num.io.threads": "2",
        "background.threads": "2",
        "num.recovery.threads.per.data.dir": "1",
        "log.cleaner.dedupe.buffer.size": "2097152",
    }

    def __init__(self, heap_mib: int = 160) -> None:
        self._heap_mib = heap_mib

    def format(self, properties: Path, arguments: Sequence[str]) -> None:
        kafka_tool("storage", "format", "-c", properties, *arguments)

    def command(self, properties: Path) -> list[str]:
        libs = resolve_jars()
        java = java_command("kafka.Kafka", heap_mib=self._heap_mib, log_level="INFO", libs=libs)
        return [*java, str(properties)]

    def is_ready(self, node_id: int, ports: Mapping[str, int], output: Path) -> bool:
        return all(
            listens(port) if name == "CONTROLLER" else serves(node_id, port)
            for name, port in ports.items()
        )


def serves(node_id: int, port: int) -> bool:
    """Tell whether the broker behind a port answers, and is among the brokers that it lists.

    A fenced broker is not: its listener opens earlier.
    """
    try:
        with BrokerConnection(port) as connection:
            request = MetadataRequest(topics=[])
            answer = connection.ask(request, MetadataResponse, METADATA_VERSION)
    except (OSError, struct.error):
        return False
    return node_id in {broker.node_id for broker in answer.brokers}


def address(port: int) -> str:
    return f"{HOST}:{port}"
