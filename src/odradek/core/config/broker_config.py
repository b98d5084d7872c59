"""What a broker is configured to do, typed and immutable.

The fields are the configs that the broker reads now, under Kafka's names with underscores; any
other is had by name from ``values``. Topic defaults (``log.segment.bytes`` and its like) are not
here: ``levels`` holds them, and :func:`odradek.core.config.levels.log_config_values` puts them
together with what the topic itself says.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Self

from odradek.core.config.allowed import parse_allowed
from odradek.core.config.definition import ConfigDefinition, parse_all
from odradek.core.config.definitions import BROKER_CONFIGS
from odradek.core.config.levels import BrokerLevels
from odradek.core.config.listeners import (
    Listener,
    SecurityProtocol,
    advertised_controllers,
    check_ports_differ,
    complete_protocol_map,
    parse_listeners,
    parse_protocol_map,
)
from odradek.core.config.profiles import internal_topics
from odradek.core.config.quorum_addresses import (
    BOOTSTRAP_SERVERS,
    VOTERS,
    Address,
    parse_bootstrap_servers,
    parse_voters,
)
from odradek.core.config.values import ConfigError, ConfigValue, invalid

STANDALONE: Final[Mapping[str, str]] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    **internal_topics(brokers=1),
    "group.initial.rebalance.delay.ms": "0",
}
"""Enough for a node that is alone; its controller needs no listener.

The first consumer of a group does not wait for others, as with Kafka's sample files: whoever tries
a node out reads with a timeout of three seconds, which is Kafka's default delay, and sees nothing.
"""

_ANY_SEGMENT: Final = parse_allowed("1..")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    levels: BrokerLevels
    values: Mapping[str, ConfigValue | None]
    """Every broker config, by Kafka's name."""
    small_segments: bool
    """For tests: segments may be smaller than a mebibyte."""

    process_roles: frozenset[str]
    listeners: tuple[Listener, ...]
    advertised_listeners: tuple[Listener, ...]
    """What clients are told; without the controller's."""
    controller_listener_names: tuple[str, ...]
    advertised_controller_listeners: tuple[Listener, ...]
    """Where other nodes find this controller; the first is the one of the quorum."""
    quorum_voters: Mapping[int, Address]
    """The static voters by id; empty where the metadata log has them."""
    quorum_bootstrap_servers: tuple[Address, ...]
    """Whom to ask for the leader of the quorum."""
    security_protocols: Mapping[str, SecurityProtocol]
    """By the name of the listener."""
    inter_broker_listener_name: str
    log_dirs: tuple[str, ...]
    metadata_log_dir: str
    max_connections_per_ip_overrides: Mapping[str, int]

    node_id: int
    broker_rack: str | None

    socket_request_max_bytes: int
    socket_listen_backlog_size: int
    connections_max_idle_ms: int
    max_connections: int
    max_connections_per_ip: int
    fetch_max_bytes: int
    max_incremental_fetch_session_cache_slots: int
    max_request_partition_size_limit: int
    telemetry_max_bytes: int

    num_partitions: int
    default_replication_factor: int
    auto_create_topics_enable: bool
    delete_topic_enable: bool

    log_retention_check_interval_ms: int
    log_flush_scheduler_interval_ms: int
    log_flush_offset_checkpoint_interval_ms: int
    log_flush_start_offset_checkpoint_interval_ms: int
    replica_high_watermark_checkpoint_interval_ms: int
    log_cleaner_backoff_ms: int
    log_cleaner_dedupe_buffer_size: int
    log_cleaner_io_buffer_load_factor: float
    producer_id_expiration_ms: int

    metadata_log_segment_bytes: int
    metadata_log_segment_ms: int
    metadata_log_max_record_bytes_between_snapshots: int
    metadata_log_max_snapshot_interval_ms: int
    metadata_max_retention_bytes: int
    metadata_max_retention_ms: int

    @classmethod
    def parse(cls, levels: BrokerLevels, *, small_segments: bool = False) -> Self:
        """Parse what counts of the levels; whether it fits together is ``consistency``'s question.

        Raises:
            ConfigError: A value that cannot be used; ``name`` says which config.
        """
        texts = levels.merge()
        values = parse_all(broker_definitions(small_segments), texts)
        derived = {"levels": levels, "values": values, "small_segments": small_segments}
        derived |= _derive(values, texts)
        plain = {
            field.name: values[field.name.replace("_", ".")]
            for field in fields(cls)
            if field.name not in derived
        }
        # A test holds the annotations against the types of the definitions.
        arguments: dict[str, Any] = {**derived, **plain}
        return cls(**arguments)

    @property
    def is_broker(self) -> bool:
        return "broker" in self.process_roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self.process_roles

    @property
    def is_alone(self) -> bool:
        """Whether the node is a quorum of one that no other node joins: it names no controllers."""
        is_named = bool(self.quorum_voters or self.quorum_bootstrap_servers)
        return self.is_broker and self.is_controller and not is_named

    def integer(self, name: str) -> int:
        value = self.values[name]
        assert isinstance(value, int), name
        return value

    def flag(self, name: str) -> bool:
        value = self.values[name]
        assert isinstance(value, bool), name
        return value

    def text(self, name: str) -> str | None:
        value = self.values[name]
        assert value is None or isinstance(value, str), name
        return value

    def elements(self, name: str) -> tuple[str, ...]:
        value = self.values[name]
        assert value is None or isinstance(value, tuple), name
        return value or ()


def broker_definitions(small_segments: bool) -> Mapping[str, ConfigDefinition]:
    """Return the definitions of broker configs, with or without a least size of segments."""
    if not small_segments:
        return BROKER_CONFIGS
    segment = replace(BROKER_CONFIGS["log.segment.bytes"], allowed=_ANY_SEGMENT)
    return {**BROKER_CONFIGS, "log.segment.bytes": segment}


def _derive(
    values: Mapping[str, ConfigValue | None], texts: Mapping[str, str]
) -> dict[str, object]:
    """Work out the fields that are more than one config's value."""
    log_dirs = _elements(values, "log.dirs") or _elements(values, "log.dir")
    controllers = tuple(name.upper() for name in _elements(values, "controller.listener.names"))
    listeners = parse_listeners("listeners", _elements(values, "listeners"))
    check_ports_differ("listeners", listeners)
    voters = parse_voters(_elements(values, VOTERS))
    said: tuple[Listener, ...] | None = None
    if "advertised.listeners" in texts:
        entries = _elements(values, "advertised.listeners")
        said = parse_listeners("advertised.listeners", entries)
    advertised = listeners if said is None else said
    own_address = next((voters[each] for each in voters if each == values["node.id"]), None)
    map_name = "listener.security.protocol.map"
    protocols = parse_protocol_map(map_name, str(values[map_name]))
    if map_name not in texts:
        protocols = complete_protocol_map(protocols, controllers, listeners)
    return {
        "process_roles": frozenset(_elements(values, "process.roles")),
        "listeners": listeners,
        "advertised_listeners": tuple(each for each in advertised if each.name not in controllers),
        "controller_listener_names": controllers,
        "advertised_controller_listeners": advertised_controllers(
            controllers, said or (), listeners, own_address
        ),
        "quorum_voters": voters,
        "quorum_bootstrap_servers": parse_bootstrap_servers(_elements(values, BOOTSTRAP_SERVERS)),
        "security_protocols": protocols,
        "inter_broker_listener_name": _inter_broker_listener(values, texts),
        "log_dirs": log_dirs,
        "metadata_log_dir": values["metadata.log.dir"] or log_dirs[0],
        "max_connections_per_ip_overrides": _parse_per_ip(values),
    }


def _elements(values: Mapping[str, ConfigValue | None], name: str) -> tuple[str, ...]:
    value = values[name] or ()
    assert isinstance(value, tuple)
    return value


def _inter_broker_listener(
    values: Mapping[str, ConfigValue | None], texts: Mapping[str, str]
) -> str:
    name, protocol = "inter.broker.listener.name", "security.inter.broker.protocol"
    if name in texts and protocol in texts:
        raise ConfigError(f"Only one of {name} and {protocol} should be set.", name=protocol)
    return str(values[name] or values[protocol]).upper()


def _parse_per_ip(values: Mapping[str, ConfigValue | None]) -> dict[str, int]:
    name = "max.connections.per.ip.overrides"
    overrides = {}
    for entry in filter(None, str(values[name]).split(",")):
        host, _, count = entry.strip().rpartition(":")
        if not host or not count.isdecimal():
            raise invalid(name, entry, "expected host:count, separated by commas")
        overrides[host] = int(count)
    return overrides
