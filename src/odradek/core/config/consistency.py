"""Whether configs that are each allowed also fit together; the rules are Kafka's.

One rule is looser: a node that is broker and controller at once and names no other controllers is
a quorum of one, and needs neither a listener for its controller nor a list of voters.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from odradek.core.config.broker_config import BrokerConfig
from odradek.core.config.levels import resolve_topic_values
from odradek.core.config.values import ConfigError, ConfigValue

_MEBIBYTE: Final = 1 << 20
_GROUP_KINDS: Final = ("consumer", "share", "streams")


def check_consistency(config: BrokerConfig) -> None:
    """Raise ConfigError for the first rule that is broken, with the name to change."""
    rules = (_roles, _quorum, _listeners, _connections, _logs, _replication, _groups)
    for rule in rules:
        for name, is_kept, message in rule(config):
            if not is_kept:
                raise ConfigError(message, name=name)


Rule = Iterator[tuple[str, bool, str]]
"""The config to change, whether the rule is kept, and what to say if not."""


def _roles(config: BrokerConfig) -> Rule:
    yield "process.roles", bool(config.process_roles), "process.roles must not be empty."
    broker_id = config.integer("broker.id")
    yield (
        "broker.id",
        broker_id in (-1, config.node_id),
        f"node.id ({config.node_id}) and broker.id ({broker_id}) must be the same; "
        "broker.id is deprecated, use node.id.",
    )


def _quorum(config: BrokerConfig) -> Rule:
    voters = _voter_ids(config)
    servers = config.elements("controller.quorum.bootstrap.servers")
    if not (config.is_broker and config.is_controller):
        yield (
            "process.roles",
            bool(voters or servers),
            "controller.quorum.bootstrap.servers must name the controllers, unless "
            "process.roles is broker,controller.",
        )
    if config.is_controller:
        yield (
            "controller.quorum.voters",
            not voters or config.node_id in voters,
            f"controller.quorum.voters must contain node.id {config.node_id} of this controller.",
        )
    else:
        yield (
            "controller.quorum.voters",
            config.node_id not in voters,
            f"controller.quorum.voters must not contain node.id {config.node_id}: "
            "this node is only a broker.",
        )
        yield (
            "controller.quorum.auto.join.enable",
            not config.flag("controller.quorum.auto.join.enable"),
            "controller.quorum.auto.join.enable is only for nodes with the role controller.",
        )


def _voter_ids(config: BrokerConfig) -> set[int]:
    ids = set()
    for voter in config.elements("controller.quorum.voters"):
        node_id, at, address = voter.partition("@")
        if not at or not node_id.isdecimal() or ":" not in address:
            message = f"controller.quorum.voters: expected id@host:port, not {voter}"
            raise ConfigError(message, name="controller.quorum.voters")
        ids.add(int(node_id))
    return ids


def _listeners(config: BrokerConfig) -> Rule:
    names = [listener.name for listener in config.listeners]
    controllers = config.controller_listener_names
    for name in (*names, *controllers):
        yield (
            "listener.security.protocol.map",
            name in config.security_protocols,
            f"listener.security.protocol.map has no protocol for the listener {name}.",
        )
    missing = [name for name in controllers if name not in names]
    if config.is_controller:
        yield (
            "controller.listener.names",
            not missing,
            f"controller.listener.names has {', '.join(missing)}, which listeners does not.",
        )
    else:
        yield (
            "controller.listener.names",
            bool(controllers) and len(missing) == len(controllers),
            "controller.listener.names must name the controllers' listener, which a node that is "
            "only a broker must not have in listeners.",
        )
    if config.is_broker:
        yield from _advertised(config, names)
    else:
        yield (
            "listeners",
            set(names) <= set(controllers),
            "listeners must only have names from controller.listener.names, "
            "because process.roles is controller.",
        )


def _advertised(config: BrokerConfig, names: list[str]) -> Rule:
    advertised = [listener.name for listener in config.advertised_listeners]
    source = "advertised.listeners" if config.elements("advertised.listeners") else "listeners"
    yield (
        source,
        bool(advertised),
        "There must be a listener for clients: all are in controller.listener.names.",
    )
    yield (
        "inter.broker.listener.name",
        config.inter_broker_listener_name in advertised,
        f"inter.broker.listener.name is {config.inter_broker_listener_name}, but must be one of "
        f"the advertised listeners: {', '.join(advertised)}.",
    )
    yield (
        "advertised.listeners",
        set(advertised) <= set(names),
        f"advertised.listeners must only have names from listeners: {', '.join(names)}.",
    )
    yield (
        source,
        all(listener.host != "0.0.0.0" for listener in config.advertised_listeners),  # noqa: S104
        "advertised.listeners cannot use 0.0.0.0, which nobody can connect to: "
        "set it to an address that clients reach.",
    )


def _connections(config: BrokerConfig) -> Rule:
    queued = config.integer("queued.max.request.bytes")
    yield (
        "queued.max.request.bytes",
        queued <= 0 or queued >= config.socket_request_max_bytes,
        "queued.max.request.bytes must not be less than socket.request.max.bytes.",
    )
    yield (
        "max.connections.per.ip",
        config.max_connections_per_ip > 0 or bool(config.max_connections_per_ip_overrides),
        "max.connections.per.ip can be 0 only if max.connections.per.ip.overrides is set.",
    )
    idle_ms = config.connections_max_idle_ms
    yield (
        "connections.max.idle.ms",
        idle_ms < 0 or config.integer("connection.failed.authentication.delay.ms") < idle_ms,
        "connections.max.idle.ms must be more than connection.failed.authentication.delay.ms.",
    )


def _logs(config: BrokerConfig) -> Rule:
    topic = resolve_topic_values(config.levels, {})
    segment_ms, jitter_ms = _number(topic, "segment.ms"), _number(topic, "segment.jitter.ms")
    retention_ms = _number(topic, "retention.ms")
    least, most = _number(topic, "min.compaction.lag.ms"), _number(topic, "max.compaction.lag.ms")
    yield "log.roll.ms", segment_ms >= 1, "log.roll.ms must be at least 1."
    yield "log.roll.jitter.ms", jitter_ms >= 0, "log.roll.jitter.ms must be at least 0."
    yield (
        "log.retention.ms",
        retention_ms >= 1 or retention_ms == -1,
        "log.retention.ms must be unlimited (-1) or at least 1.",
    )
    yield (
        "log.cleaner.min.compaction.lag.ms",
        least <= most,
        "log.cleaner.min.compaction.lag.ms must not be more than "
        "log.cleaner.max.compaction.lag.ms.",
    )
    threads = max(1, config.integer("log.cleaner.threads"))
    yield (
        "log.cleaner.dedupe.buffer.size",
        config.log_cleaner_dedupe_buffer_size // threads > _MEBIBYTE,
        "log.cleaner.dedupe.buffer.size must be more than 1 MiB for each cleaner thread.",
    )
    cordoned = config.elements("cordoned.log.dirs")
    yield (
        "cordoned.log.dirs",
        cordoned == ("*",) or set(cordoned) <= set(config.log_dirs),
        "cordoned.log.dirs must be * alone, or only have directories from log.dirs.",
    )


def _number(values: Mapping[str, ConfigValue | None], name: str) -> int:
    value = values[name]
    assert isinstance(value, int)
    return value


def _replication(config: BrokerConfig) -> Rule:
    yield (
        "default.replication.factor",
        config.default_replication_factor > 0,
        f"Invalid value {config.default_replication_factor} for configuration "
        "default.replication.factor: Value must be at least 1",
    )
    wait_ms = config.integer("replica.fetch.wait.max.ms")
    for name in ("replica.socket.timeout.ms", "replica.lag.time.max.ms"):
        yield (
            name,
            wait_ms <= config.integer(name),
            f"{name} must be at least replica.fetch.wait.max.ms.",
        )


def _groups(config: BrokerConfig) -> Rule:
    yield (
        "group.max.session.timeout.ms",
        config.integer("group.min.session.timeout.ms")
        <= config.integer("group.max.session.timeout.ms"),
        "group.max.session.timeout.ms must be at least group.min.session.timeout.ms.",
    )
    for kind in _GROUP_KINDS:
        for what in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms"):
            name = f"group.{kind}.{what}"
            least, most = f"group.{kind}.min.{what}", f"group.{kind}.max.{what}"
            yield (
                name,
                config.integer(least) <= config.integer(name) <= config.integer(most),
                f"{name} must lie between {least} and {most}.",
            )
        beat, session = f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.session.timeout.ms"
        yield (
            beat,
            config.integer(beat) < config.integer(session),
            f"{beat} must be less than {session}.",
        )


def find_doubts(config: BrokerConfig) -> Iterator[tuple[str, str]]:
    """Return what is allowed and probably not meant: a config, and why."""
    heartbeat_ms = config.integer("broker.heartbeat.interval.ms")
    if heartbeat_ms * 2 > config.integer("broker.session.timeout.ms"):
        yield (
            "broker.heartbeat.interval.ms",
            "should be at most half of broker.session.timeout.ms, or one late heartbeat "
            "fences the broker",
        )
    if not config.is_controller and len(config.controller_listener_names) > 1:
        yield (
            "controller.listener.names",
            "has several names; a node that is only a broker uses the first",
        )
