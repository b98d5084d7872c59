"""Which machines a simulated cluster has, what each does, and how it is configured.

The layout and the configs that vary are drawn from the seed, each from a stream of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple

from odradek.broker.format_request import FormatRequest, make_plan
from odradek.broker.formatting import format_directories
from odradek.core.config import BrokerConfig, load_broker_config, parse_overrides
from odradek.core.ids import Uuid
from odradek.storage.disk import Disk

CLIENT_PORT: Final = 9092
CONTROLLER_PORT: Final = 9093
OTHER_CONTROLLER_PORT: Final = 9094
"""Where a controller listens that was moved."""

CONFIGS: Final = {
    "log.dirs": "/data",
    "num.recovery.threads.per.data.dir": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "auto.create.topics.enable": "false",
    "log.cleaner.enable": "false",  # it works in processes
    "log.flush.interval.messages": "1",  # one copy: what is acknowledged must outlive the power
    "log.index.size.max.bytes": "16384",
}
BROKER: Final = {"inter.broker.listener.name": "PLAINTEXT"}


class Place(NamedTuple):
    """One machine and what runs on it."""

    node_id: int
    is_controller: bool
    is_broker: bool

    @property
    def name(self) -> str:
        return f"node-{self.node_id}"

    @property
    def roles(self) -> str:
        names = ["broker"] * self.is_broker + ["controller"] * self.is_controller
        return ",".join(names)


@dataclass(frozen=True)
class Layout:
    name: str
    places: tuple[Place, ...]
    is_dynamic: bool = False
    """Whether the log names the voters (``--initial-controllers``), or all configs do."""
    configs: Mapping[str, str] = field(default_factory=dict)
    first_voters: int | None = None
    """How many of the controllers vote at first, of a dynamic quorum; None: all of them."""
    features: tuple[str, ...] = ()
    """As ``storage format --feature`` has them; what is not named is the release's."""
    racks: Mapping[int, str] = field(default_factory=dict)
    moved: frozenset[int] = frozenset()
    """The controllers that listen at ``OTHER_CONTROLLER_PORT`` now."""

    def controller_port(self, node_id: int) -> int:
        return OTHER_CONTROLLER_PORT if node_id in self.moved else CONTROLLER_PORT

    @property
    def controllers(self) -> list[Place]:
        return [place for place in self.places if place.is_controller]

    @property
    def brokers(self) -> list[Place]:
        return [place for place in self.places if place.is_broker]

    @property
    def has_elr(self) -> bool:
        """Whether replicas that left the ISR may stay eligible (KIP-966)."""
        return "eligible.leader.replicas.version=0" not in self.features

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{place.name}:{CLIENT_PORT}" for place in self.brokers)

    def __str__(self) -> str:
        voters = "voters in the log" if self.is_dynamic else "static voters"
        return f"{self.name}, {voters}, {[*self.features]}, {dict(self.configs)}"


def _places(controllers: int, brokers: int, combined: int) -> tuple[Place, ...]:
    kinds = [(True, True)] * combined + [(True, False)] * controllers + [(False, True)] * brokers
    return tuple(Place(number, *kind) for number, kind in enumerate(kinds, 1))


SHAPES: Final[Mapping[str, tuple[Place, ...]]] = {
    "3 combined": _places(0, 0, 3),
    "3 controllers, 2 brokers": _places(3, 2, 0),
    "1 controller, 2 brokers": _places(1, 2, 0),
    "1 combined": _places(0, 0, 1),
    "3 controllers, 3 brokers": _places(3, 3, 0),
    "5 controllers": _places(5, 0, 0),
    "4 combined": _places(0, 0, 4),
    "3 controllers, 4 brokers": _places(3, 4, 0),
}


def draw_layout(random: Random, shape: str | None = None) -> Layout:
    names = list(SHAPES)
    chosen = shape or random.choices(names, weights=[4, 4, 1, 0, 0, 0, 0, 0])[0]
    is_quick = random.random() < 0.6
    configs = {
        "broker.session.timeout.ms": "3000" if is_quick else "9000",
        "broker.heartbeat.interval.ms": "500" if is_quick else "2000",
        # Small: snapshots are written, logs are cut, and followers that come late download.
        "metadata.log.max.record.bytes.between.snapshots": random.choice(["2000", "20971520"]),
        "metadata.max.retention.bytes": random.choice(["2000", "104857600"]),
        "metadata.log.segment.bytes": "8388608",  # its indexes are small, then
        "metadata.log.segment.ms": random.choice(["4000", "604800000"]),
        "metadata.max.idle.interval.ms": random.choice(["500", "2000"]),
    }
    return Layout(chosen, SHAPES[chosen], random.random() < 0.5, configs)


def make_config(layout: Layout, place: Place) -> BrokerConfig:
    """Return what stands in the config file of a machine."""
    listeners = [f"PLAINTEXT://{place.name}:{CLIENT_PORT}"] * place.is_broker
    port = layout.controller_port(place.node_id)
    listeners += [f"CONTROLLER://{place.name}:{port}"] * place.is_controller
    texts = {
        **CONFIGS,
        **(BROKER if place.is_broker else {}),
        **layout.configs,
        "process.roles": place.roles,
        "node.id": str(place.node_id),
        "listeners": ",".join(listeners),
    }
    if place.node_id in layout.racks:
        texts["broker.rack"] = layout.racks[place.node_id]
    places = layout.controllers
    if layout.is_dynamic:
        servers = [f"{each.name}:{layout.controller_port(each.node_id)}" for each in places]
        texts["controller.quorum.bootstrap.servers"] = ",".join(servers)
    else:
        voters = [f"{each.node_id}@{each.name}:{CONTROLLER_PORT}" for each in places]
        texts["controller.quorum.voters"] = ",".join(voters)
    overrides = parse_overrides(f"{key}={value}" for key, value in texts.items())
    return load_broker_config(overrides, small_segments=True).config


class Formatting:
    """``storage format`` on each machine of one cluster."""

    def __init__(self, layout: Layout, random: Random) -> None:
        self._layout = layout
        self._random = random
        self.cluster_id = str(Uuid.random(random))
        directories = {place.node_id: Uuid.random(random) for place in layout.controllers}
        self._initial_controllers = ",".join(
            f"{place.node_id}@{place.name}:{CONTROLLER_PORT}:{directories[place.node_id]}"
            for place in layout.controllers[: layout.first_voters]
        )

    def format(
        self, config: BrokerConfig, disk: Disk, now_ms: int, *, is_replaced: bool = False
    ) -> None:
        """``is_replaced``: the machine was another voter, with the disk that it lost."""
        layout = self._layout
        first = [place.node_id for place in layout.controllers[: layout.first_voters]]
        joins = is_replaced or config.node_id not in first
        is_dynamic = config.is_controller and not config.quorum_voters
        request = FormatRequest(
            cluster_id=self.cluster_id,
            initial_controllers=self._initial_controllers if is_dynamic and not joins else None,
            no_initial_controllers=is_dynamic and joins,
            features=self._layout.features,
        )
        plan = make_plan(config, request, self._random)
        format_directories(disk, plan, now_ms=now_ms, random=self._random, say=lambda _: None)
