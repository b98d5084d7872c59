"""Whether configs that are each allowed also fit together; the rules are Kafka's."""

from collections.abc import Iterator, Mapping
from typing import Final

from odradek.core.config.broker_config import BrokerConfig
from odradek.core.config.group_protocols import (
    CONSUMER_ASSIGNORS,
    REBALANCE_PROTOCOLS,
    consumer_assignors,
    unknown_assignors,
)
from odradek.core.config.levels import resolve_topic_values
from odradek.core.config.role_rules import Rule, listener_rules, quorum_rules, role_rules
from odradek.core.config.values import ConfigError, ConfigValue

_MEBIBYTE: Final = 1 << 20
RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
_GROUP_KINDS: Final = ("consumer", "share", "streams")


def check_consistency(config: BrokerConfig) -> None:
    """Raise ConfigError for the first rule that is broken, with the name to change."""
    rules = (role_rules, quorum_rules, listener_rules, _connections, _logs, _replication, _groups)
    for rule in rules:
        for name, is_kept, message in rule(config):
            if not is_kept:
                raise ConfigError(message, name=name)


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
    selector = config.text("replica.selector.class")
    yield (
        "replica.selector.class",
        selector in (None, RACK_AWARE_SELECTOR),
        f"replica.selector.class: {selector} cannot be found; there is {RACK_AWARE_SELECTOR}, and "
        "classes of Java cannot be loaded here.",
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
        REBALANCE_PROTOCOLS,
        "classic" in config.elements(REBALANCE_PROTOCOLS),
        "Disabling the 'CLASSIC' protocol is not supported.",
    )
    unknown, assignors = unknown_assignors(config), consumer_assignors(config)
    yield (
        CONSUMER_ASSIGNORS,
        not unknown,
        f"{CONSUMER_ASSIGNORS}: {', '.join(unknown)} cannot be found; there are uniform and range, "
        "and classes of Java cannot be loaded here.",
    )
    yield (
        CONSUMER_ASSIGNORS,
        len(set(assignors)) == len(assignors),
        f"{CONSUMER_ASSIGNORS} has an assignor twice: {', '.join(assignors)}.",
    )
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
