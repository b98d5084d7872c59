"""A real Apache Kafka beside our tests: its jars, its node, its tools.

Maven copies the jars once into `.cache/kafka-<version>/libs` (jars.py); java runs them. Nothing
here imports odradek, so that a fault of ours cannot hide in the measuring instrument.

    with KafkaNode(tmp_path / "data") as node:          # node.py: one combined KRaft node
                                                        # roles.py: controllers, and brokers alone
        kafka_tool("topics", "--bootstrap-server", node.bootstrap_servers, "--list")
    dump_log(sorted((tmp_path / "data" / "t-0").glob("*.log")), "--print-data-log")

`golden.py` reads the data directories kept in tests/golden/storage and needs no Java;
`make_golden.py` makes them anew.
"""

from tests.interop.kafka_peer.jars import KAFKA_VERSION, PeerUnavailableError, resolve_jars
from tests.interop.kafka_peer.node import KafkaNode
from tests.interop.kafka_peer.roles import KafkaBroker, KafkaController, KafkaQuorum
from tests.interop.kafka_peer.tools import MAIN_CLASSES, dump_log, kafka_tool

__all__ = [
    "KAFKA_VERSION",
    "MAIN_CLASSES",
    "KafkaBroker",
    "KafkaController",
    "KafkaNode",
    "KafkaQuorum",
    "PeerUnavailableError",
    "dump_log",
    "kafka_tool",
    "resolve_jars",
]
