"""A broker starts with what its file, environment and options say, or hears which line is wrong."""

from collections.abc import Mapping

import pytest

from odradek.core.config import (
    STANDALONE,
    BrokerConfig,
    BrokerLevels,
    ConfigError,
    Listener,
    SecurityProtocol,
    load_broker_config,
    parse_environment,
    parse_overrides,
    parse_server_properties,
    reconfigure,
    resolve_topic_values,
)

# The settings of the file that Kafka ships; the comments are ours.
SHIPPED = """\
# Both roles in one process.
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093

# Where it listens, and what it tells clients.
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,\\
    SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600

log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=2
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1

#log.flush.interval.messages=10000
log.retention.hours=168
#log.retention.bytes=1073741824
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def load(
    text: str = "",
    *overrides: str,
    environment: Mapping[str, str] | None = None,
    small_segments: bool = False,
) -> BrokerConfig:
    return load_broker_config(
        parse_overrides(overrides),
        parse_environment(environment or {}),
        parse_server_properties(text, "server.properties"),
        base=STANDALONE,
        small_segments=small_segments,
    ).config


def refusal(text: str = "", *overrides: str, base: Mapping[str, str] = STANDALONE) -> str:
    with pytest.raises(ConfigError) as caught:
        load_broker_config(
            parse_overrides(overrides), parse_server_properties(text, "s.properties"), base=base
        )
    return str(caught.value)


def test_the_file_that_kafka_ships_is_taken_without_a_warning() -> None:
    loaded = load_broker_config(parse_server_properties(SHIPPED, "server.properties"))
    assert loaded.warnings == ()
    config = loaded.config
    assert config.node_id == 1
    assert config.is_broker
    assert config.is_controller
    assert config.listeners == (Listener("PLAINTEXT", "", 9092), Listener("CONTROLLER", "", 9093))
    assert config.advertised_listeners == (Listener("PLAINTEXT", "localhost", 9092),)
    assert config.controller_listener_names == ("CONTROLLER",)
    assert config.security_protocols["CONTROLLER"] is SecurityProtocol.PLAINTEXT
    assert config.security_protocols["SASL_SSL"] is SecurityProtocol.SASL_SSL
    assert config.inter_broker_listener_name == "PLAINTEXT"
    assert config.log_dirs == ("/tmp/kraft-combined-logs",)
    assert config.metadata_log_dir == "/tmp/kraft-combined-logs"
    assert config.integer("offsets.topic.replication.factor") == 1
    assert config.text("metrics.recording.level") == "INFO"
    assert config.elements("group.consumer.assignors") == ("uniform", "range")
    assert not config.flag("log.preallocate")
    assert loaded.ignored[:1] == ("num.io.threads",)


def test_a_node_alone_needs_no_file() -> None:
    config = load()
    assert config.listeners == (Listener("PLAINTEXT", "127.0.0.1", 9092),)
    assert config.advertised_listeners == config.listeners
    assert config.controller_listener_names == ()
    assert config.log_dirs == ("/tmp/kafka-logs",)


def test_an_override_beats_the_environment_which_beats_the_file_which_beats_the_default() -> None:
    text = "num.partitions=2\nfetch.max.bytes=2000\nlog.dirs=/a"
    environment = {"ODRADEK_NUM_PARTITIONS": "3", "ODRADEK_FETCH_MAX_BYTES": "3000", "PATH": "/"}
    config = load(text, "num.partitions=4", environment=environment)
    assert config.num_partitions == 4
    assert config.fetch_max_bytes == 3000
    assert config.log_dirs == ("/a",)
    assert config.default_replication_factor == 1
    assert config.levels.static["num.partitions"] == "4"


def test_names_in_the_environment() -> None:
    environment = {
        "ODRADEK_LOG_SEGMENT_BYTES": "2097152",
        "ODRADEK_LISTENER_NAME_MY__TLS_SSL_CLIENT_AUTH": "required",
        "ODRADEK_LISTENER_NAME_MY___TLS_SSL_CLIENT_AUTH": "none",
    }
    settings = parse_environment(environment)
    assert settings.warnings == ()
    assert {name: setting.value for name, setting in settings.by_name.items()} == {
        "log.segment.bytes": "2097152",
        "listener.name.my-tls.ssl.client.auth": "required",
        "listener.name.my_tls.ssl.client.auth": "none",
    }
    unknown = parse_environment({"ODRADEK_NO_SUCH": "1"})
    assert [str(warning) for warning in unknown.warnings] == [
        "environment variable ODRADEK_NO_SUCH: no.such is unknown and has no effect"
    ]


def test_unknown_names_and_duplicates_are_warned_of_with_their_lines() -> None:
    text = "\nlog.segment.byte=5\nnum.partitions=2\n\nnum.partitions=3\nrsm.config.x=1\n"
    settings = parse_server_properties(text, "server.properties")
    assert [str(warning) for warning in settings.warnings] == [
        "server.properties, line 2: log.segment.byte is unknown and has no effect; "
        "did you mean 'log.segment.bytes'?",
        "server.properties, line 5: num.partitions was set before (server.properties, line 3); "
        "the later value counts",
    ]
    assert load(text).num_partitions == 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "\n\nnum.partitions=0",
            "s.properties, line 3: Invalid value 0 for configuration num.partitions: "
            "Value must be at least 1",
        ),
        (
            "a=1\nnum.partitions=many",
            "s.properties, line 2: Invalid value many for configuration num.partitions: "
            "Not a number of type INT; allowed: [1,...]",
        ),
        (
            "log.segment.bytes=1000",
            "s.properties, line 1: Invalid value 1000 for configuration log.segment.bytes: "
            "Value must be at least 1048576",
        ),
        (
            "process.roles=broker,queen",
            "s.properties, line 1: Invalid value queen for configuration process.roles: "
            "String must be one of: broker, controller",
        ),
        (
            "listener.name.x.max.connections=-1",
            "s.properties, line 1: Invalid value -1 for configuration max.connections: "
            "Value must be at least 0",
        ),
        (
            "leader.replication.throttled.rate=5",
            "s.properties, line 1: leader.replication.throttled.rate can only be set while the "
            "broker runs: use kafka-configs",
        ),
        ("a=1\nb=\\u12", "s.properties: line 2: malformed escape \\u12"),
        (
            "max.connections.per.ip.overrides=localhost",
            "s.properties, line 1: Invalid value localhost for configuration "
            "max.connections.per.ip.overrides: expected host:count, separated by commas",
        ),
    ],
)
def test_a_wrong_value_is_refused_with_its_line(text: str, expected: str) -> None:
    assert refusal(text) == expected


def test_a_wrong_override_is_refused() -> None:
    assert refusal("", "num.partitions=-1") == (
        "--override: Invalid value -1 for configuration num.partitions: Value must be at least 1"
    )
    assert refusal("", "num.partitions") == "--override: expected name=value, not num.partitions"


def test_what_is_required_must_be_given() -> None:
    assert refusal("node.id=1", base={}) == (
        'Missing required configuration "process.roles" which has no default value.'
    )


def test_small_segments_are_for_tests() -> None:
    config = load("log.segment.bytes=1000", small_segments=True)
    assert resolve_topic_values(config.levels, {})["segment.bytes"] == 1000
    again = reconfigure(config, {"log.segment.bytes": "500"}, {})
    assert resolve_topic_values(again.levels, {})["segment.bytes"] == 500
    with pytest.raises(ConfigError, match=r"Value must be at least 1$"):
        load("log.segment.bytes=0", small_segments=True)


def test_broker_id_stands_for_node_id() -> None:
    base = {name: value for name, value in STANDALONE.items() if name != "node.id"}
    loaded = load_broker_config(parse_overrides(["broker.id=7"]), base=base)
    assert loaded.config.node_id == 7
    assert load("node.id=5").levels.static["broker.id"] == "5"


BROKER_ONLY = {
    "process.roles": "broker",
    "node.id": "2",
    "controller.quorum.bootstrap.servers": "c:9093",
    "controller.listener.names": "CONTROLLER",
}


def test_a_broker_alone_knows_the_controllers_listener_but_does_not_open_it() -> None:
    config = load_broker_config(base=BROKER_ONLY).config
    assert config.listeners == (Listener("PLAINTEXT", "", 9092),)
    assert config.security_protocols["CONTROLLER"] is SecurityProtocol.PLAINTEXT
    assert refusal("controller.listener.names=PLAINTEXT", base=BROKER_ONLY).startswith(
        "s.properties, line 1: controller.listener.names must name the controllers' listener"
    )


def test_a_controller_alone_opens_only_its_own_listeners() -> None:
    base = {**BROKER_ONLY, "process.roles": "controller", "listeners": "CONTROLLER://:9093"}
    config = load_broker_config(base=base).config
    assert config.advertised_listeners == ()
    message = refusal("listeners=CONTROLLER://:9093,PLAINTEXT://:9092", base=base)
    assert message.startswith("s.properties, line 1: listeners must only have names from")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("broker.id=3", "node.id (1) and broker.id (3) must be the same"),
        ("listeners=9092", "expected NAME://host:port"),
        ("listeners=A://:99999", "the port must be no more than 65535"),
        ("listeners=PLAINTEXT://:1,plaintext://:2", "each listener must have a different name"),
        ("listeners=PLAINTEXT://:9092,SSL://:9092", "listeners uses port 9092 twice"),
        ("listeners=MINE://:9092", "no protocol for the listener MINE"),
        ("listener.security.protocol.map=PLAINTEXT", "expected NAME:PROTOCOL"),
        ("listener.security.protocol.map=PLAINTEXT:TLS", "the protocol must be one of: PLAINTEXT"),
        ("listeners=PLAINTEXT://0.0.0.0:9092", "cannot use 0.0.0.0"),
        ("advertised.listeners=SSL://x:1", "inter.broker.listener.name is PLAINTEXT, but must be"),
        (
            "advertised.listeners=PLAINTEXT://x:1,SSL://x:2",
            "advertised.listeners must only have names from listeners: PLAINTEXT.",
        ),
        ("controller.listener.names=PLAINTEXT", "There must be a listener for clients"),
        ("controller.listener.names=C", "controller.listener.names has C, which listeners does"),
        ("inter.broker.listener.name=SSL", "inter.broker.listener.name is SSL, but must be"),
        (
            "inter.broker.listener.name=PLAINTEXT\nsecurity.inter.broker.protocol=PLAINTEXT",
            "Only one of inter.broker.listener.name and security.inter.broker.protocol",
        ),
        ("controller.quorum.voters=2@c:1", "controller.quorum.voters must contain node.id 1"),
        ("controller.quorum.voters=c:1", "expected id@host:port, not c:1"),
        ("process.roles=broker", "(or controller.quorum.voters) must name the controllers"),
        ("process.roles=", "process.roles must not be empty"),
        ("default.replication.factor=0", "default.replication.factor: Value must be at least 1"),
        ("offsets.topic.replication.factor=0", "Value must be at least 1"),
        ("replica.selector.class=com.example.Nearest", "com.example.Nearest cannot be found"),
        ("log.retention.ms=0", "log.retention.ms must be unlimited (-1) or at least 1."),
        ("log.roll.ms=0", "log.roll.ms must be at least 1."),
        ("log.cleaner.max.compaction.lag.ms=1\nlog.cleaner.min.compaction.lag.ms=2", "not be more"),
        ("log.cleaner.dedupe.buffer.size=1048576", "must be more than 1 MiB"),
        ("log.dirs=", "Configuration 'log.dirs' must not be empty."),
        ("cordoned.log.dirs=/x", "only have directories from log.dirs"),
        ("queued.max.request.bytes=1", "queued.max.request.bytes must not be less than"),
        ("max.connections.per.ip=0", "max.connections.per.ip can be 0 only if"),
        ("connections.max.idle.ms=50", "connections.max.idle.ms must be more than"),
        ("replica.lag.time.max.ms=10", "replica.lag.time.max.ms must be at least"),
        ("group.min.session.timeout.ms=9999999", "group.max.session.timeout.ms must be at least"),
        ("group.consumer.session.timeout.ms=5", "group.consumer.session.timeout.ms must lie"),
    ],
)  # fmt: skip
def test_configs_that_contradict_each_other_are_refused(text: str, expected: str) -> None:
    assert expected in refusal(text)


def test_a_contradiction_is_reported_where_it_was_set() -> None:
    message = refusal("\nadvertised.listeners=PLAINTEXT://0.0.0.0:9092")
    assert message.startswith("s.properties, line 2: advertised.listeners cannot use 0.0.0.0")
    message = refusal("listeners=PLAINTEXT://0.0.0.0:9092")
    assert message.startswith("s.properties, line 1: advertised.listeners cannot use 0.0.0.0")
    assert refusal("\n\nlog.retention.hours=0").startswith("s.properties, line 3: log.retention.ms")


def test_one_port_may_serve_ipv4_and_ipv6() -> None:
    config = load("listeners=PLAINTEXT://127.0.0.1:9092,SSL://[::1]:9092")
    assert config.listeners[1] == Listener("SSL", "::1", 9092)


def test_a_controller_does_not_become_open_where_others_are_secured() -> None:
    text = "listeners=SSL://:9092,CONTROLLER://:9093\ncontroller.listener.names=CONTROLLER"
    message = refusal(text + "\nsecurity.inter.broker.protocol=SSL")
    assert "no protocol for the listener CONTROLLER" in message


def test_limits_for_some_addresses() -> None:
    config = load("max.connections.per.ip=0\nmax.connections.per.ip.overrides=10.0.0.1:5, ::1:7")
    assert config.max_connections_per_ip_overrides == {"10.0.0.1": 5, "::1": 7}


def test_doubtful_heartbeats_are_warned_of() -> None:
    source = parse_server_properties("broker.heartbeat.interval.ms=5000", "s")
    (warning,) = load_broker_config(source, base=STANDALONE).warnings
    assert (warning.name, warning.origin) == ("broker.heartbeat.interval.ms", "s, line 1")


def test_a_change_while_the_broker_runs() -> None:
    config = load("max.connections=10")
    changed = reconfigure(config, {"max.connections": "20"}, {"fetch.max.bytes": "5000"})
    assert (config.max_connections, changed.max_connections) == (10, 20)
    assert changed.levels == BrokerLevels(
        config.levels.static, {"max.connections": "20"}, {"fetch.max.bytes": "5000"}
    )
    with pytest.raises(ConfigError, match="dedupe"):
        reconfigure(config, {"log.cleaner.threads": "200"}, {})
