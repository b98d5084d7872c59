"""Which nodes a local cluster has, with their roles, ports and racks. Pure.

Brokers are numbered from 1. With combined controllers the first three nodes (the first one, if
there are fewer than three) are controllers too; with separate ones there are as many controllers
beside them, numbered from 101. Ports follow from the base port: those for clients count from it,
those of controllers from ``CONTROLLER_PORTS_FROM`` above it.

The layout is written to ``cluster.json``::

    {"format": 1, "odradek": "0.1.0", "clusterId": "…", "basePort": 9092, "isEphemeral": false,
     "nodes": [{"id": 1, "roles": ["broker", "controller"], "port": 9092, "controllerPort": 9192,
                "rack": null, "directoryId": "…"}, …]}
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final, Literal

from odradek.core.config.profiles import COPIES_MAX, internal_topics
from odradek.core.ids import Uuid
from odradek.local.errors import LocalClusterError

HOST: Final = "127.0.0.1"
BROKERS: Final = 3
BASE_PORT: Final = 9092
NODES_MAX: Final = 50
PORT_MAX: Final = 65_535
VOTERS_WANTED: Final = 3
CONTROLLER_PORTS_FROM: Final = 100
FIRST_SEPARATE_CONTROLLER: Final = 101
FORMAT: Final = 1

Controllers = Literal["combined", "separate"]


@dataclass(frozen=True, slots=True)
class NodeLayout:
    id: int
    roles: tuple[str, ...]
    port: int | None
    """Where clients and other brokers find it; None for a node that is only a controller."""
    controller_port: int | None
    rack: str | None = None
    directory_id: str | None = None
    """Of a controller that is among the first voters."""
    host: str = HOST

    @property
    def is_broker(self) -> bool:
        return self.port is not None

    @property
    def is_voter(self) -> bool:
        return self.directory_id is not None

    @property
    def ports(self) -> list[int]:
        return [port for port in (self.port, self.controller_port) if port is not None]

    @property
    def address(self) -> str | None:
        """Where clients find it."""
        return None if self.port is None else f"{self.host}:{self.port}"

    @property
    def controller_address(self) -> str | None:
        return None if self.controller_port is None else f"{self.host}:{self.controller_port}"


@dataclass(frozen=True, slots=True)
class Layout:
    cluster_id: str
    base_port: int
    nodes: tuple[NodeLayout, ...]
    is_ephemeral: bool = False
    """Whether ``down`` removes the folder."""

    @property
    def brokers(self) -> tuple[NodeLayout, ...]:
        return tuple(node for node in self.nodes if node.is_broker)

    @property
    def controllers(self) -> tuple[NodeLayout, ...]:
        return tuple(node for node in self.nodes if node.controller_port is not None)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.address for node in self.brokers if node.address is not None)

    def find(self, node_id: int) -> NodeLayout:
        """Return a node.

        Raises:
            LocalClusterError: There is none with this id.
        """
        for node in self.nodes:
            if node.id == node_id:
                return node
        ids = ", ".join(str(node.id) for node in self.nodes)
        raise LocalClusterError(f"there is no node {node_id}; the nodes are {ids}")

    def with_broker(self, rack: str | None) -> "Layout":
        """Add a broker behind the last one.

        Raises:
            LocalClusterError: There are too many nodes.
        """
        last = max(node.id for node in self.brokers)
        if last >= NODES_MAX:
            raise LocalClusterError(f"a local cluster has at most {NODES_MAX} brokers")
        port = self.base_port + last
        return replace(
            self, nodes=(*self.nodes, NodeLayout(last + 1, ("broker",), port, None, rack))
        )

    def without(self, node_id: int) -> "Layout":
        return replace(self, nodes=tuple(node for node in self.nodes if node.id != node_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What was asked for; None is no wish."""

    nodes: int | None = None
    racks: Sequence[str] | None = None
    base_port: int | None = None
    controllers: Controllers | None = None
    is_ephemeral: bool = False


def plan_layout(wishes: Wishes, random: Random) -> Layout:
    """Lay a new cluster out.

    Raises:
        LocalClusterError: It cannot have so many nodes, or not at these ports.
    """
    brokers = BROKERS if wishes.nodes is None else wishes.nodes
    base_port = BASE_PORT if wishes.base_port is None else wishes.base_port
    _check_limits(brokers, base_port)
    if wishes.racks is not None and not all(wishes.racks):
        given = ",".join(wishes.racks)
        raise LocalClusterError(f"--racks {given}: give a name to each, such as --racks a,b,c")
    voters = VOTERS_WANTED if brokers >= VOTERS_WANTED else 1
    is_separate = wishes.controllers == "separate"
    racks: Sequence[str | None] = wishes.racks or [None]
    nodes = [
        NodeLayout(
            index + 1,
            ("broker",),
            base_port + index,
            controller_port=None,
            rack=racks[index % len(racks)],
        )
        for index in range(brokers)
    ]
    for index in range(voters):
        port = base_port + CONTROLLER_PORTS_FROM + index
        directory_id = str(Uuid.random(random))
        if is_separate:
            node_id = FIRST_SEPARATE_CONTROLLER + index
            nodes.append(NodeLayout(node_id, ("controller",), None, port, None, directory_id))
        else:
            nodes[index] = replace(
                nodes[index],
                roles=("broker", "controller"),
                controller_port=port,
                directory_id=directory_id,
            )
    return Layout(str(Uuid.random(random)), base_port, tuple(nodes), wishes.is_ephemeral)


def _check_limits(brokers: int, base_port: int) -> None:
    if not 1 <= brokers <= NODES_MAX:
        raise LocalClusterError(f"--nodes {brokers}: choose from 1 to {NODES_MAX}")
    last = PORT_MAX - CONTROLLER_PORTS_FROM - NODES_MAX
    if not 1 <= base_port <= last:
        raise LocalClusterError(f"--base-port {base_port}: choose from 1 to {last}")


def check_fits(layout: Layout, wishes: Wishes, where: str) -> None:
    """See that a cluster that exists is what is wished for.

    Raises:
        LocalClusterError: It is another one.
    """
    racks = {node.rack for node in layout.brokers} - {None}
    controllers = "combined" if layout.brokers[0].controller_port is not None else "separate"
    for option, wanted, found in (
        ("--nodes", wishes.nodes, len(layout.brokers)),
        ("--base-port", wishes.base_port, layout.base_port),
        ("--controllers", wishes.controllers, controllers),
        ("--racks", wishes.racks and set(wishes.racks), racks or "none"),
        ("--ephemeral", wishes.is_ephemeral or None, layout.is_ephemeral),
    ):
        if wanted is not None and wanted != found:
            raise LocalClusterError(
                f"{where} has a cluster already, with {option} {_shown(found)}: leave the option"
                " out, choose another --dir, or remove the folder first"
            )


def _shown(found: object) -> str:
    return ",".join(sorted(map(str, found))) if isinstance(found, set) else str(found)


def node_properties(layout: Layout, node: NodeLayout, data: str) -> dict[str, str]:
    """Return the ``server.properties`` of a node.

    Sessions are shorter than Kafka's (9 s): on one machine a node that is silent is dead or paused.
    """
    listeners = []
    if node.address is not None:
        listeners.append(f"PLAINTEXT://{node.address}")
    if node.controller_address is not None:
        listeners.append(f"CONTROLLER://{node.controller_address}")
    copies = min(len(layout.brokers), COPIES_MAX)
    servers = [each.controller_address for each in layout.controllers]
    properties = {
        "process.roles": ",".join(node.roles),
        "node.id": str(node.id),
        "listeners": ",".join(listeners),
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": ",".join(each for each in servers if each),
        "log.dirs": data,
        "broker.heartbeat.interval.ms": "500",
        "broker.session.timeout.ms": "3000",
        "default.replication.factor": str(copies),
        "min.insync.replicas": str(max(copies - 1, 1)),
        "group.initial.rebalance.delay.ms": "0",
        **internal_topics(len(layout.brokers)),
    }
    if node.rack is not None:
        properties["broker.rack"] = node.rack
    return properties


def initial_controllers(layout: Layout) -> str:
    """Return the voters as ``storage format`` takes them: ``id@host:port:directory,…``."""
    return ",".join(
        f"{node.id}@{node.controller_address}:{node.directory_id}" for node in layout.controllers
    )


def to_json(layout: Layout, version: str) -> str:
    nodes = [
        {
            "id": node.id,
            "roles": list(node.roles),
            "port": node.port,
            "controllerPort": node.controller_port,
            "rack": node.rack,
            "directoryId": node.directory_id,
        }
        for node in layout.nodes
    ]
    document = {
        "format": FORMAT,
        "odradek": version,
        "clusterId": layout.cluster_id,
        "basePort": layout.base_port,
        "isEphemeral": layout.is_ephemeral,
        "nodes": nodes,
    }
    return json.dumps(document, indent=1) + "\n"


def from_json(text: str, where: str) -> Layout:
    """Read what ``to_json`` wrote.

    Raises:
        LocalClusterError: Another version wrote it, or nobody did.
    """
    try:
        document = json.loads(text)
        version = document["format"]
        if version == FORMAT:
            return Layout(
                str(document["clusterId"]),
                int(document["basePort"]),
                tuple(_nodes(document["nodes"])),
                bool(document["isEphemeral"]),
            )
        writer = document.get("odradek")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LocalClusterError(f"{where} is damaged ({error}): choose another --dir") from error
    raise LocalClusterError(
        f"{where} was written by Odradek {writer} in format {version}, and this version reads"
        f" format {FORMAT}: use that version, or choose another --dir"
    )


def _nodes(documents: Iterable[Mapping[str, Any]]) -> Iterable[NodeLayout]:
    for each in documents:
        yield NodeLayout(
            int(each["id"]),
            tuple(map(str, each["roles"])),
            each["port"],
            each["controllerPort"],
            each["rack"],
            each["directoryId"],
        )
