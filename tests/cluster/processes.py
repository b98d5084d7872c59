"""Clusters of processes: generated server.properties, one process per node, faults, logs.

::

    with Cluster(tmp_path, SEPARATE) as cluster:      # 3 controllers, 2 brokers
        cluster.start()
        cluster.nodes[1].kill()                       # SIGKILL; pause, resume, stop, start
        cluster.relays.cut(2, 1)                      # bytes from node 2 to node 1 wait

Every listener is advertised through a relay (``relays``), for nodes and clients alike, unless
``is_relayed`` is false: figures are not to have a relay in them. Nodes of one cluster may be of
different flavours. When a test fails, the end of each node's log is printed;
in any case every process is ended, by its pid.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from tests.cluster.flavours import Flavour, Odradek, address
from tests.cluster.relays import Relays
from tests.interop.kafka_peer.jvm import until_parent_ends
from tests.interop.ports import HOST, free_ports

CLUSTER_ID = "b2RyYWRlay1jbHVzdGVyLQ"
OTHER_CLUSTER_ID = "YW5vdGhlci1jbHVzdGVyLQ"
READY_SECONDS_MAX = 300  # a machine with ten times more to do than cores starts slowly
STOP_SECONDS_MAX = 180
POLL_SECONDS = 0.02
LOG_CHARACTERS = 3_000

# Node ids and their roles.
SEPARATE = {1: "controller", 2: "controller", 3: "controller", 11: "broker", 12: "broker"}
COMBINED = dict.fromkeys((1, 2, 3), "broker,controller")

IS_WHOLE_MATRIX = os.environ.get("ODRADEK_CLUSTER_MATRIX") == "whole"
"""Whether tests try every fault and every kind of quorum: minutes, in `make soak`."""

Quorum = Literal["static", "dynamic"]
_DIRECTORY_IDS = ("JEXY6aqzQY-32P5TStzaFg", "MvDxzVmcRsaTz33bUuRU6A", "07R5amHmR32VDA6jHkGbTA")


@dataclass(frozen=True)
class Place:
    """One listener of a node."""

    port: int
    """Where the node listens."""
    relay_port: int
    """Where others find it."""


class ClusterNode:
    def __init__(
        self, node_id: int, roles: str, folder: Path, flavour: Flavour, places: Mapping[str, Place]
    ) -> None:
        self.id = node_id
        self.roles = roles
        self.flavour = flavour
        self.places = dict(places)
        self.folder = folder
        self.data_dir = folder / "data"
        self.properties = folder / "server.properties"
        self.log_file = folder / "node.log"
        self.output_file = folder / "node.out"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def is_broker(self) -> bool:
        return "broker" in self.roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self.roles

    @property
    def bootstrap_servers(self) -> str:
        return address(self.places["PLAINTEXT"].relay_port)

    @property
    def port(self) -> int:
        """Where clients reach the broker, past its relay."""
        return self.places["PLAINTEXT"].port

    @property
    def controller_port(self) -> int:
        return self.places["CONTROLLER"].port

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Start it and do not wait for it."""
        assert not self.is_running, f"node {self.id} runs"
        command = [*_with_parent(), *self.flavour.command(self.properties)]
        with self.output_file.open("wb") as output, self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=log, cwd=self.folder
            )

    def wait_until_ready(self) -> None:
        ports = {name: place.port for name, place in self.places.items()}

        def is_ready() -> bool:
            assert self.is_running, f"node {self.id} ended while starting\n{self.log_tail()}"
            return self.flavour.is_ready(self.id, ports, self.output_file)

        wait_until(is_ready, f"node {self.id} is ready", READY_SECONDS_MAX)

    def restart(self) -> None:
        self.start()
        self.wait_until_ready()

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, nothing is said."""
        self._running.kill()
        self._running.wait(STOP_SECONDS_MAX)

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        self._running.send_signal(signal.SIGTERM)
        return self._running.wait(STOP_SECONDS_MAX)

    def pause(self) -> None:
        """SIGSTOP: it neither answers nor closes connections."""
        self._running.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._running.send_signal(signal.SIGCONT)

    def wait_for_end(self) -> int:
        """Return the exit code of a node that ends by itself."""
        return self._running.wait(READY_SECONDS_MAX)

    def log_tail(self, characters: int = LOG_CHARACTERS) -> str:
        parts = []
        for file in (self.output_file, self.log_file):
            text = file.read_text(errors="replace") if file.exists() else ""
            parts.append(f"--- {file} (its end)\n{text[-characters:]}")
        return "\n".join(parts)

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        assert self.process is not None, f"node {self.id} was never started"
        return self.process


class Cluster:
    """Not started yet; ``with`` owns its processes and relays."""

    def __init__(
        self,
        folder: Path,
        roles: Mapping[int, str],
        flavour: Flavour | Mapping[int, Flavour] | None = None,
        *,
        quorum: Quorum = "static",
        configs: Mapping[str, str] | None = None,
        is_relayed: bool = True,
        first_voters: Collection[int] | None = None,
    ) -> None:
        """``flavour`` may be chosen node by node; ``configs`` are set on all nodes.

        ``first_voters`` of a dynamic quorum: all controllers, unless others are to join later.
        """
        self._first_voters = first_voters
        self.folder = folder
        self.quorum: Quorum = quorum
        self.cluster_id = CLUSTER_ID
        self.nodes: dict[int, ClusterNode] = {}
        self.relays = Relays(self._nodes_by_pid)
        self._roles = dict(roles)
        self._flavour = flavour or Odradek()
        self._configs = dict(configs or {})
        self._is_relayed = is_relayed
        self._stack = ExitStack()

    # Its nodes.

    @property
    def controllers(self) -> list[ClusterNode]:
        return [node for node in self.nodes.values() if node.is_controller]

    @property
    def brokers(self) -> list[ClusterNode]:
        return [node for node in self.nodes.values() if node.is_broker]

    @property
    def bootstrap_servers(self) -> str:
        """All running brokers."""
        return ",".join(node.bootstrap_servers for node in self.brokers if node.is_running)

    def start(self) -> None:
        """Start every node, and wait until all are ready."""
        for node in self.nodes.values():
            node.start()
        for node in self.nodes.values():
            node.wait_until_ready()

    def voters_text(self) -> str:
        return ",".join(
            f"{node.id}@{address(node.places['CONTROLLER'].relay_port)}"
            for node in self.controllers
        )

    def initial_controllers(self) -> str:
        places = self.voters_text().split(",")
        ids = dict(zip(places, _DIRECTORY_IDS, strict=False))
        first = [each for each in places if self._votes_at_first(int(each.partition("@")[0]))]
        return ",".join(f"{place}:{ids[place]}" for place in first)

    def _votes_at_first(self, node_id: int) -> bool:
        return self._first_voters is None or node_id in self._first_voters

    # Making it.

    def __enter__(self) -> Self:
        self._stack.enter_context(self.relays)
        try:
            for node_id, roles in self._roles.items():
                self.add(node_id, roles)
            for node in self.nodes.values():
                self.write_properties(node)
                self.format(node)
        except BaseException:
            self._stack.close()
            raise
        return self

    def add(self, node_id: int, roles: str, name: str | None = None) -> ClusterNode:
        """Make a node with ports and relays, without properties yet."""
        flavour = self._flavour
        if isinstance(flavour, Mapping):
            flavour = flavour[node_id]
        names = {"broker": "PLAINTEXT", "controller": "CONTROLLER"}
        listeners = [names[role] for role in roles.split(",")]
        ports = dict(zip(listeners, free_ports(len(listeners)), strict=True))
        places = {
            listener: Place(port, self.relays.add(node_id, port) if self._is_relayed else port)
            for listener, port in ports.items()
        }
        folder = self.folder / (name or f"node-{node_id}")
        folder.mkdir(parents=True)
        node = ClusterNode(node_id, roles, folder, flavour, places)
        if name is None:
            self.nodes[node_id] = node
        self._stack.callback(_end, node)
        return node

    def write_properties(self, node: ClusterNode, **changes: str) -> None:
        """``changes`` have underscores for dots."""
        listeners = [f"{name}://{address(at.port)}" for name, at in node.places.items()]
        advertised = [f"{name}://{address(at.relay_port)}" for name, at in node.places.items()]
        found = {
            **node.flavour.configs,
            "process.roles": node.roles,
            "node.id": str(node.id),
            "listeners": ",".join(listeners),
            "advertised.listeners": ",".join(advertised),
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(node.data_dir),
            **self._quorum_configs(),
            **self._configs,
            **{name.replace("_", "."): value for name, value in changes.items()},
        }
        node.properties.write_text("".join(f"{name}={value}\n" for name, value in found.items()))

    def _quorum_configs(self) -> dict[str, str]:
        voters = self.voters_text()
        if self.quorum == "static":
            return {"controller.quorum.voters": voters}
        servers = ",".join(each.partition("@")[2] for each in voters.split(","))
        return {"controller.quorum.bootstrap.servers": servers}

    def format(self, node: ClusterNode, cluster_id: str | None = None) -> None:
        arguments = ["-t", cluster_id or self.cluster_id]
        if self.quorum == "dynamic":
            is_voter = node.is_controller and self.nodes.get(node.id) is node
            is_voter = is_voter and self._votes_at_first(node.id)
            arguments += (
                ["--initial-controllers", self.initial_controllers()]
                if is_voter
                else ["--no-initial-controllers"]
            )
        node.flavour.format(node.properties, arguments)

    # Ending it.

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            for node in self.nodes.values():
                print(f"=== node {node.id} ({node.roles})\n{node.log_tail()}", file=sys.stderr)
        self._stack.close()

    def _nodes_by_pid(self) -> dict[int, int]:
        return {
            node.process.pid: node.id for node in self.nodes.values() if node.process is not None
        }


def wait_until(
    is_done: Callable[[], bool], what: str, seconds_max: float = READY_SECONDS_MAX
) -> None:
    deadline = time.monotonic() + seconds_max
    while not is_done():
        assert time.monotonic() < deadline, f"not within {seconds_max} s: {what}"
        time.sleep(POLL_SECONDS)


def _end(node: ClusterNode) -> None:
    process = node.process
    if process is not None:
        process.kill()  # whether it runs, is paused, or has ended
        process.wait(STOP_SECONDS_MAX)


def _with_parent() -> Sequence[str]:
    """Let the kernel end the process with the one that started it; SIGKILL, it may be paused."""
    return [word.replace("TERM", "KILL") for word in until_parent_ends()]


__all__ = ["COMBINED", "HOST", "SEPARATE", "Cluster", "ClusterNode", "wait_until"]
