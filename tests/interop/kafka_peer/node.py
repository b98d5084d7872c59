"""One real Kafka node, broker and controller in one process, on loopback.

A fresh data directory is formatted by Kafka's own StorageTool; one that has a meta.properties is
taken as it is, so a node can be restarted on its data, or started on data that we wrote. Beside
the data directory lies `<name>.peer/` with server.properties and server.log.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.interop.kafka_peer.jars import resolve_jars
from tests.interop.kafka_peer.jvm import Jvm, broker_is_ready
from tests.interop.kafka_peer.tools import java_command, kafka_tool
from tests.interop.ports import HOST, free_ports

CLUSTER_ID = "b2RyYWRlay1rYWZrYS1wZQ"

DEFAULTS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "num.network.threads": "1",
    "num.io.threads": "2",
    "background.threads": "2",
    "num.recovery.threads.per.data.dir": "1",
    "log.cleaner.dedupe.buffer.size": "2097152",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    # A node learns with its next heartbeat, 2 s away by default, that it may come or go.
    "broker.heartbeat.interval.ms": "200",
}


class KafkaNode:
    """Starts on `with`, or by `start`; leaving the block stops it cleanly if it still runs."""

    def __init__(
        self,
        data_dir: Path,
        overrides: Mapping[str, str] | None = None,
        *,
        cluster_id: str = CLUSTER_ID,
        heap_mib: int = 256,
        listeners: Mapping[str, str] | None = None,
        format_arguments: Sequence[str] = (),
    ) -> None:
        """`listeners` are further ones by name, with their security protocols; see `address`."""
        self.data_dir = data_dir.absolute()
        self.overrides = dict(overrides or {})
        self.cluster_id = cluster_id
        self.heap_mib = heap_mib
        self.listeners = dict(listeners or {})
        self.format_arguments = format_arguments
        self.work_dir = self.data_dir.with_name(f"{self.data_dir.name}.peer")
        self.log_file = self.work_dir / "server.log"
        self.port = 0
        self.controller_port = 0
        self.listener_ports: dict[str, int] = {}
        self._jvm: Jvm | None = None

    @property
    def bootstrap_servers(self) -> str:
        assert self.port, "start the node first"
        return f"{HOST}:{self.port}"

    def address(self, listener: str) -> str:
        """Where one of the further listeners is."""
        return f"{HOST}:{self.listener_ports[listener]}"

    @property
    def quorum(self) -> dict[str, str]:
        """What the properties of a node in the same cluster say of its controllers."""
        return {"controller.quorum.bootstrap.servers": f"{HOST}:{self.controller_port}"}

    @property
    def is_running(self) -> bool:
        return self._jvm is not None

    @property
    def pid(self) -> int:
        assert self._jvm, "start the node first"
        return self._jvm.process.pid

    def start(self) -> None:
        """Format if need be, start, and wait until the broker has registered and answers."""
        assert self._jvm is None, "already started"
        self.work_dir.mkdir(parents=True, exist_ok=True)
        if not self.port:  # started again, it is where its clients know it to be
            self.port, self.controller_port, *others = free_ports(2 + len(self.listeners))
            self.listener_ports = dict(zip(self.listeners, others, strict=True))
        properties = self._write_properties()
        if not (self.data_dir / "meta.properties").exists():
            arguments = ["-t", self.cluster_id, "-c", str(properties), *self._format_as()]
            kafka_tool("storage", "format", *arguments, *self.format_arguments)
        self._jvm = Jvm([*self._command(), str(properties)], self.log_file, self._is_ready)

    def _command(self) -> list[str]:
        """Return what runs the server: a JVM that starts fast."""
        return java_command(
            "kafka.Kafka", heap_mib=self.heap_mib, log_level="INFO", libs=resolve_jars()
        )

    def stop(self) -> None:
        """Shut down cleanly: indexes are trimmed, .kafka_cleanshutdown is written."""
        self._take_jvm().stop()

    def kill(self) -> None:
        """End the process as a crash would (SIGKILL)."""
        self._take_jvm().kill()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._jvm is not None:
            self.stop()

    def _take_jvm(self) -> Jvm:
        assert self._jvm is not None, "not running"
        jvm, self._jvm = self._jvm, None
        return jvm

    def _format_as(self) -> list[str]:
        """Say how the first voters are known."""
        return ["--standalone"]

    def _is_ready(self) -> bool:
        return broker_is_ready(self.port)

    def _own_ports(self) -> dict[str, int]:
        return {"PLAINTEXT": self.port, "CONTROLLER": self.controller_port}

    def _advertised_ports(self) -> dict[str, int]:
        """Name those that are not the ones it listens on."""
        return {}

    def _write_properties(self) -> Path:
        ports = {**self._own_ports(), **self.listener_ports}
        advertised = {**ports, **self._advertised_ports()}
        protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **self.listeners}
        properties = {
            **DEFAULTS,
            "listeners": _addresses(ports),
            "advertised.listeners": _addresses(advertised),
            "listener.security.protocol.map": ",".join(f"{n}:{p}" for n, p in protocols.items()),
            **self.quorum,
            "log.dirs": str(self.data_dir),
            **self.overrides,
        }
        path = self.work_dir / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        return path


def _addresses(ports: Mapping[str, int]) -> str:
    return ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items())
