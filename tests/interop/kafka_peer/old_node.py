"""A Kafka of 2016 and its ZooKeeper, to write data directories of message format 0 and 1.

Kafka 0.9 and 0.10 run on Java 17: the one thing they miss is javax.xml.bind, which their pom
adds. ZooKeeper's files lie beside the data directory and go with it through an upgrade.
"""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.interop.kafka_peer.jars import class_path, java, resolve_jars
from tests.interop.kafka_peer.jvm import Jvm, broker_is_ready, listens
from tests.interop.ports import HOST, free_ports

KAFKA_0_9 = Path(__file__).with_name("pom-kafka-0.9.xml")
KAFKA_0_10 = Path(__file__).with_name("pom-kafka-0.10.xml")
TOOL_SECONDS_MAX = 60


class OldKafkaNode:
    def __init__(self, pom: Path, data_dir: Path, overrides: Mapping[str, str]) -> None:
        self.libs = resolve_jars(pom)
        self.data_dir = data_dir.absolute()
        self.overrides = dict(overrides)
        self.work_dir = self.data_dir.with_name(f"{self.data_dir.name}.peer")
        self.zookeeper_dir = self.data_dir.with_name(f"{self.data_dir.name}.zookeeper")
        self.port = 0
        self.zookeeper_port = 0

    @property
    def bootstrap_servers(self) -> str:
        return f"{HOST}:{self.port}"

    def __enter__(self) -> Self:
        self.work_dir.mkdir(parents=True, exist_ok=True)
        self.port, self.zookeeper_port = free_ports(2)
        self._zookeeper = Jvm(
            self._command(
                "org.apache.zookeeper.server.quorum.QuorumPeerMain", self._zookeeper_properties()
            ),
            self.work_dir / "zookeeper.log",
            lambda: listens(self.zookeeper_port),
        )
        try:
            self._kafka = Jvm(
                self._command("kafka.Kafka", self._kafka_properties()),
                self.work_dir / "server.log",
                lambda: broker_is_ready(self.port),
            )
        except BaseException:
            self._zookeeper.kill()
            raise
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._kafka.stop()
        finally:
            self._zookeeper.stop()

    def create_topic(self, topic: str, config: Mapping[str, str]) -> None:
        settings = [
            word for key, value in config.items() for word in ("--config", f"{key}={value}")
        ]
        subprocess.run(
            [
                *self._command("kafka.admin.TopicCommand"),
                *("--zookeeper", f"{HOST}:{self.zookeeper_port}", "--create", "--topic", topic),
                *("--partitions", "1", "--replication-factor", "1", *settings),
            ],
            stdout=subprocess.DEVNULL,
            timeout=TOOL_SECONDS_MAX,
            check=True,
        )

    def _command(self, main_class: str, *arguments: Path) -> list[str]:
        return [
            *(java(), "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            f"-Dlog4j.configuration={Path(__file__).with_name('log4j.properties').as_uri()}",
            *("-cp", class_path(self.libs), main_class, *map(str, arguments)),
        ]

    def _zookeeper_properties(self) -> Path:
        path = self.work_dir / "zookeeper.properties"
        path.write_text(
            f"dataDir={self.zookeeper_dir}\n"
            f"clientPort={self.zookeeper_port}\n"
            f"clientPortAddress={HOST}\n"
        )
        return path

    def _kafka_properties(self) -> Path:
        properties = {
            "broker.id": "0",
            "listeners": f"PLAINTEXT://{HOST}:{self.port}",
            "zookeeper.connect": f"{HOST}:{self.zookeeper_port}",
            "log.dirs": str(self.data_dir),
            "log.cleaner.dedupe.buffer.size": "2097152",
            **self.overrides,
        }
        path = self.work_dir / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        return path
