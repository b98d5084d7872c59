"""Every default is the one that CONVENTIONS gives for Kafka 4.4, and the tables are sound."""

import inspect
from dataclasses import MISSING, fields
from typing import get_args

import pytest

from odradek.core.config import (
    BROKER_CONFIGS,
    TOPIC_CONFIGS,
    TOPIC_SYNONYMS,
    BrokerConfig,
    BrokerLevels,
    ConfigDefinition,
    ConfigType,
    UpdateMode,
    log_config_values,
    render_markdown,
)
from odradek.core.config.broker_config import _derive
from odradek.core.config.definitions import CONFIGS
from odradek.records import TimestampType
from odradek.storage.config import CleanupPolicy, LogConfig

# CONVENTIONS.md, section 3.1; a dash is "no default".
BROKER_DEFAULTS = """
process.roles=-                                 node.id=-
controller.quorum.bootstrap.servers=            controller.quorum.voters=
controller.listener.names=-                     listeners=PLAINTEXT://:9092
advertised.listeners=-                          inter.broker.listener.name=-
security.inter.broker.protocol=PLAINTEXT        num.network.threads=3
num.io.threads=8                                background.threads=10
queued.max.requests=500                         socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400              socket.request.max.bytes=104857600
socket.listen.backlog.size=50                   max.connections=2147483647
max.connections.per.ip=2147483647               connections.max.idle.ms=600000
connection.failed.authentication.delay.ms=100   log.dirs=-
log.dir=/tmp/kafka-logs                         metadata.log.dir=-
num.partitions=1                                default.replication.factor=1
auto.create.topics.enable=true                  delete.topic.enable=true
log.retention.hours=168                         log.retention.minutes=-
log.retention.ms=-                              log.retention.bytes=-1
log.retention.check.interval.ms=300000          log.segment.bytes=1073741824
log.roll.hours=168                              log.roll.ms=-
log.segment.delete.delay.ms=60000               log.index.size.max.bytes=10485760
log.index.interval.bytes=4096                   log.flush.interval.messages=9223372036854775807
log.flush.interval.ms=-                         log.flush.offset.checkpoint.interval.ms=60000
log.cleaner.enable=true                         log.cleaner.threads=1
log.cleaner.dedupe.buffer.size=134217728        log.cleaner.delete.retention.ms=86400000
log.cleaner.min.cleanable.ratio=0.5             log.cleaner.min.compaction.lag.ms=0
log.cleaner.max.compaction.lag.ms=9223372036854775807  log.cleanup.policy=delete
log.message.timestamp.type=CreateTime  log.message.timestamp.before.max.ms=9223372036854775807
log.message.timestamp.after.max.ms=3600000      message.max.bytes=1048588
compression.type=producer                       num.recovery.threads.per.data.dir=2
min.insync.replicas=1                           unclean.leader.election.enable=false
replica.lag.time.max.ms=30000                   num.replica.fetchers=1
replica.fetch.max.bytes=1048576                 replica.fetch.min.bytes=1
replica.fetch.response.max.bytes=10485760       replica.fetch.wait.max.ms=500
replica.socket.timeout.ms=30000                 replica.high.watermark.checkpoint.interval.ms=5000
replica.selector.class=-                        broker.rack=-
auto.leader.rebalance.enable=true               leader.imbalance.check.interval.seconds=300
fetch.max.bytes=57671680                        max.incremental.fetch.session.cache.slots=1000
controlled.shutdown.enable=true                 request.timeout.ms=30000
broker.heartbeat.interval.ms=2000               broker.session.timeout.ms=9000
initial.broker.registration.timeout.ms=60000    controller.quorum.election.timeout.ms=1000
controller.quorum.fetch.timeout.ms=2000         controller.quorum.election.backoff.max.ms=1000
controller.quorum.append.linger.ms=25           controller.quorum.auto.join.enable=false
metadata.log.max.snapshot.interval.ms=3600000   offsets.topic.num.partitions=50
offsets.topic.replication.factor=3              offsets.topic.segment.bytes=104857600
offsets.retention.minutes=10080                 offset.metadata.max.bytes=4096
offsets.commit.timeout.ms=5000                  group.min.session.timeout.ms=6000
group.max.session.timeout.ms=1800000            group.initial.rebalance.delay.ms=3000
group.consumer.session.timeout.ms=45000         group.consumer.heartbeat.interval.ms=5000
group.consumer.assignors=uniform,range          group.consumer.assignment.interval.ms=1000
group.consumer.migration.policy=bidirectional   group.share.record.lock.duration.ms=30000
group.coordinator.rebalance.protocols=classic,consumer,streams
group.share.delivery.count.limit=5              transaction.state.log.num.partitions=50
transaction.state.log.replication.factor=3      transaction.state.log.min.isr=2
transaction.max.timeout.ms=900000               transactional.id.expiration.ms=604800000
producer.id.expiration.ms=86400000              transaction.partition.verification.enable=true
transaction.two.phase.commit.enable=false       authorizer.class.name=
super.users=                                    allow.everyone.if.no.acl.found=false
sasl.enabled.mechanisms=GSSAPI                  delegation.token.max.lifetime.ms=604800000
delegation.token.expiry.time.ms=86400000        quota.window.num=11
quota.window.size.seconds=1                     telemetry.max.bytes=1048576
remote.log.storage.system.enable=false          share.coordinator.state.topic.num.partitions=50
share.coordinator.state.topic.replication.factor=3  share.coordinator.state.topic.min.isr=2
"""
TOPIC_DEFAULTS = """
cleanup.policy=delete compression.type=producer compression.gzip.level=-1 compression.lz4.level=9
compression.zstd.level=3 delete.retention.ms=86400000 file.delete.delay.ms=60000
flush.messages=9223372036854775807 flush.ms=9223372036854775807 index.interval.bytes=4096
max.compaction.lag.ms=9223372036854775807 max.message.bytes=1048588
message.timestamp.type=CreateTime message.timestamp.before.max.ms=9223372036854775807
message.timestamp.after.max.ms=3600000 min.cleanable.dirty.ratio=0.5 min.compaction.lag.ms=0
min.insync.replicas=1 preallocate=false retention.bytes=-1 retention.ms=604800000
segment.bytes=1073741824 segment.index.bytes=10485760 segment.jitter.ms=0 segment.ms=604800000
unclean.leader.election.enable=false leader.replication.throttled.replicas=
follower.replication.throttled.replicas= remote.storage.enable=false local.retention.ms=-2
local.retention.bytes=-2 errors.deadletterqueue.group.enable=false internal.segment.bytes=-
remote.copy.lag.ms=0 remote.copy.lag.bytes=-1 remote.log.copy.disable=false
remote.log.delete.on.disable=false
"""
ALL = [row for definitions in CONFIGS.values() for row in definitions.values()]


def expected(table: str) -> dict[str, str | None]:
    pairs = (word.partition("=") for word in table.split())
    return {name: None if value == "-" else value for name, _, value in pairs}


@pytest.mark.seed_row("1.2", "4.3")
def test_broker_defaults_are_kafkas() -> None:
    names = expected(BROKER_DEFAULTS)
    assert len(names) == 121
    assert {name: BROKER_CONFIGS[name].default_text for name in names} == names


def test_topic_defaults_are_kafkas() -> None:
    defaults = {name: row.default_text for name, row in TOPIC_CONFIGS.items()}
    assert defaults == expected(TOPIC_DEFAULTS)


def test_only_what_kafka_requires_is_required() -> None:
    assert {row.name for row in ALL if row.required} == {"process.roles", "node.id"}


@pytest.mark.parametrize("definition", ALL, ids=lambda row: row.name)
def test_a_default_is_allowed(definition: ConfigDefinition) -> None:
    if definition.default_text is not None:
        assert definition.parse(definition.default_text) == definition.default


@pytest.mark.parametrize("definition", ALL, ids=lambda row: row.name)
def test_documentation_is_one_sentence(definition: ConfigDefinition) -> None:
    text = definition.documentation
    assert text[0].isupper()
    assert text.endswith(".")
    assert ". " not in text


def test_what_is_secret_is_a_password() -> None:
    secret = {row.name for row in ALL if row.sensitive}
    assert {"ssl.keystore.password", "ssl.keystore.key", "sasl.jaas.config"} < secret
    assert not {
        row.name for row in ALL if row.name.endswith((".password", ".secret"))
    } - secret  # fmt: skip


def test_topics_fall_back_to_configs_of_the_same_type_that_change_while_the_broker_runs() -> None:
    for name, synonyms in TOPIC_SYNONYMS.items():
        first = BROKER_CONFIGS[synonyms[0].name]
        assert first.type is TOPIC_CONFIGS[name].type, name
        assert first.update_mode is UpdateMode.CLUSTER_WIDE, name
        assert all(synonym.name in BROKER_CONFIGS for synonym in synonyms), name


def test_a_topic_config_works_if_and_only_if_its_broker_config_does() -> None:
    for name, synonyms in TOPIC_SYNONYMS.items():
        for synonym in synonyms:
            broker = BROKER_CONFIGS[synonym.name]
            assert broker.implemented == TOPIC_CONFIGS[name].implemented, name


def test_a_log_has_the_defaults_of_its_topic() -> None:
    values = log_config_values(BrokerLevels(), {})
    for field in fields(LogConfig):
        if not field.init:
            continue
        assert field.default is not MISSING
        value: object = values[field.name]
        if field.name == "cleanup_policy":
            assert isinstance(value, tuple)
            value = frozenset(map(CleanupPolicy, value))
        elif field.name == "message_timestamp_type":
            assert value == "CreateTime"
            value = TimestampType.CREATE_TIME
        assert field.default == value, field.name


PYTHON_TYPES = {
    ConfigType.BOOLEAN: bool,
    ConfigType.SHORT: int,
    ConfigType.INT: int,
    ConfigType.LONG: int,
    ConfigType.DOUBLE: float,
    ConfigType.LIST: tuple[str, ...],
    ConfigType.STRING: str,
    ConfigType.PASSWORD: str,
}


def plain_fields() -> dict[str, object]:
    derived = {"levels", "values", "small_segments"}
    derived |= set(_derive({name: row.default for name, row in BROKER_CONFIGS.items()}, {}))
    annotations = inspect.get_annotations(BrokerConfig)
    return {name: kind for name, kind in annotations.items() if name not in derived}


@pytest.mark.parametrize(("field", "kind"), plain_fields().items())
def test_a_field_has_the_type_of_its_config(field: str, kind: object) -> None:
    definition = BROKER_CONFIGS[field.replace("_", ".")]
    python_type = PYTHON_TYPES[definition.type]
    if definition.default is None and not definition.required:
        assert set(get_args(kind)) == {python_type, type(None)}
    else:
        assert kind == python_type


def test_the_documentation_has_a_row_for_every_config() -> None:
    lines = render_markdown().splitlines()
    rows = [line for line in lines if line.startswith("| `")]
    assert len(rows) == len(ALL)
    assert (
        "| `log.segment.bytes` | int | `1073741824` | [1048576,...] | cluster-wide | yes "
        "| The size at which a segment is closed and the next begun. |"
    ) in rows
    for row in rows:
        assert row.replace("\\|", "").count("|") in (7, 8), row
