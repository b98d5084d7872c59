"""Configs get from where they are set to the part of a running node that goes by them.

What that part does with each is seen by tests of its own; ``tests/config_effects.py`` names them.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from odradek.coordinator.group.consumer.config import MigrationPolicy
from odradek.core.ids import TopicPartition
from odradek.quorum.metadata_upkeep import MetadataLogConfig
from odradek.records import TimestampType
from odradek.storage.cleaner.task import CleanerSettings
from odradek.storage.config import CleanupPolicy
from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection
from tests.transaction_requests import TransactionalProducer
from tests.unit.broker.test_group_protocols import heartbeat

T0 = TopicPartition("t", 0)
COMPACT = frozenset({CleanupPolicy.COMPACT})
HOUR_MS = 3_600_000

# As a topic says it, and what its log then goes by.
TOPIC_CONFIGS: Mapping[str, tuple[str, object]] = {
    "cleanup.policy": ("compact", COMPACT),
    "compression.type": ("zstd", "zstd"),
    "compression.gzip.level": ("3", 3),
    "compression.lz4.level": ("4", 4),
    "compression.zstd.level": ("5", 5),
    "delete.retention.ms": ("1234", 1234),
    "file.delete.delay.ms": ("1234", 1234),
    "flush.messages": ("12", 12),
    "flush.ms": ("1234", 1234),
    "index.interval.bytes": ("1234", 1234),
    "max.compaction.lag.ms": ("1234", 1234),
    "max.message.bytes": ("12345", 12345),
    "message.timestamp.after.max.ms": ("1234", 1234),
    "message.timestamp.before.max.ms": ("1234", 1234),
    "message.timestamp.type": ("LogAppendTime", TimestampType.LOG_APPEND_TIME),
    "min.cleanable.dirty.ratio": ("0.25", 0.25),
    "min.compaction.lag.ms": ("1234", 1234),
    "preallocate": ("true", True),
    "retention.bytes": ("12345", 12345),
    "retention.ms": ("1234", 1234),
    "segment.bytes": ("2000000", 2_000_000),
    "segment.index.bytes": ("1240", 1240),
    "segment.jitter.ms": ("12", 12),
    "segment.ms": ("1234", 1234),
}
# What a broker says for topics that say nothing, where it is not ``log.`` and the topic's name.
BROKER_NAMES = {
    "compression.type": "compression.type",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.zstd.level": "compression.zstd.level",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
}
BROKER_DEFAULTS: Mapping[str, tuple[str, str, object]] = {
    **{
        BROKER_NAMES.get(topic, f"log.{topic}"): (topic, *given)
        for topic, given in TOPIC_CONFIGS.items()
    },
    "log.flush.scheduler.interval.ms": ("flush.ms", "1234", 1234),
    "log.retention.hours": ("retention.ms", "2", 2 * HOUR_MS),
    "log.retention.minutes": ("retention.ms", "2", 120_000),
    "log.roll.hours": ("segment.ms", "2", 2 * HOUR_MS),
    "log.roll.jitter.hours": ("segment.jitter.ms", "2", 2 * HOUR_MS),
}


def setting_of(broker: Broker, topic_config: str) -> object:
    log = broker.node.broker.store.get(T0)
    assert log is not None
    setting: object = getattr(log.config, topic_config.replace(".", "_"))
    return setting


def test_a_topics_configs_reach_its_log() -> None:
    with Broker(memory=True) as broker:
        configs: dict[str, Any] = {
            name.replace(".", "_"): text for name, (text, _) in TOPIC_CONFIGS.items()
        }
        broker.create_topic("t", **configs)
        for name, (_, value) in TOPIC_CONFIGS.items():
            assert setting_of(broker, name) == value, name


def test_a_segment_size_for_tests_reaches_the_log() -> None:
    with Broker(memory=True) as broker:
        broker.create_topic("t", internal_segment_bytes="1234")
        assert setting_of(broker, "segment.bytes") == 1234


@pytest.mark.parametrize("name", BROKER_DEFAULTS)
def test_a_brokers_defaults_reach_the_logs_of_its_topics(name: str) -> None:
    topic_config, text, value = BROKER_DEFAULTS[name]
    with Broker(topics=["t"], memory=True, config={name: text}) as broker:
        assert setting_of(broker, topic_config) == value


def test_configs_reach_the_metadata_log() -> None:
    config = {
        "metadata.log.max.record.bytes.between.snapshots": "1001",
        "metadata.log.max.snapshot.interval.ms": "1002",
        "metadata.log.segment.bytes": "9000000",
        "metadata.log.segment.ms": "1003",
        "metadata.max.retention.bytes": "1004",
        "metadata.max.retention.ms": "1005",
    }
    with Broker(memory=True, config=config) as broker:
        assert broker.node.metadata.upkeep._config == MetadataLogConfig(
            segment_bytes=9_000_000,
            segment_ms=1003,
            segment_index_bytes=26_388,  # as many entries as such a segment can need
            max_record_bytes_between_snapshots=1001,
            max_snapshot_interval_ms=1002,
            max_retention_bytes=1004,
            max_retention_ms=1005,
        )
        log_config = broker.node.metadata.log.config
        assert (log_config.segment_bytes, log_config.segment_ms) == (9_000_000, 1003)


def test_configs_reach_the_cleaner() -> None:
    config = {
        "log.cleaner.enable": "true",
        "log.cleaner.backoff.ms": "1234",
        "log.cleaner.dedupe.buffer.size": "12345678",
        "log.cleaner.io.buffer.load.factor": "0.5",
    }
    with Broker(config=config) as broker:
        compaction = broker.node.broker._compaction
        assert compaction is not None
        assert compaction._backoff_ms == 1234
        (cleaner,) = compaction._cleaners.values()
        assert cleaner.settings == CleanerSettings(12_345_678, 0.5)


def test_without_a_cleaner_there_is_no_compaction() -> None:
    with Broker(config={"log.cleaner.enable": "false"}) as broker:
        assert broker.node.broker._compaction is None


def test_configs_reach_the_groups() -> None:
    config = {
        "group.initial.rebalance.delay.ms": "1001",
        "group.max.size": "1002",
        "group.min.session.timeout.ms": "1003",
        "group.max.session.timeout.ms": "1004",
        "group.consumer.assignors": "range",
        "group.consumer.assignment.interval.ms": "1005",
        "group.consumer.heartbeat.interval.ms": "6001",
        "group.consumer.max.size": "1006",
        "group.consumer.migration.policy": "downgrade",
        "group.consumer.regex.refresh.interval.ms": "10001",
        "group.consumer.session.timeout.ms": "45001",
        "offset.metadata.max.bytes": "1007",
        "offsets.retention.check.interval.ms": "1008",
        "offsets.retention.minutes": "2",
    }
    with (
        Broker(topics=["t"], memory=True, config=config) as broker,
        BrokerConnection(broker.port) as connection,
    ):
        assert heartbeat(connection).heartbeat_interval_ms == 6001
        settings = broker.node.broker.groups.settings
        assert settings is not None
        classic, consumer = settings.classic, settings.consumer
        assert classic.group_initial_rebalance_delay_ms == 1001
        assert classic.group_max_size == 1002
        assert classic.group_min_session_timeout_ms == 1003
        assert classic.group_max_session_timeout_ms == 1004
        assert consumer.assignors == ("range",)
        assert consumer.assignment_interval_ms == 1005
        assert consumer.heartbeat_interval_ms == 6001
        assert consumer.group_size_max == 1006
        assert consumer.migration_policy is MigrationPolicy.DOWNGRADE
        assert consumer.regex_refresh_interval_ms == 10_001
        assert consumer.session_timeout_ms == 45_001
        assert settings.offset_metadata_bytes_max == 1007
        assert settings.offsets_retention_check_interval_ms == 1008
        assert settings.offsets_retention_ms == 120_000


def test_configs_reach_the_transactions() -> None:
    config = {
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1001",
        "transaction.max.timeout.ms": "70000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "1002",
        "transaction.two.phase.commit.enable": "true",
        "transactional.id.expiration.ms": "1003",
    }
    with (
        Broker(topics=["t"], memory=True, config=config) as broker,
        BrokerConnection(broker.port) as connection,
    ):
        TransactionalProducer(connection, timeout_ms=60_000).begin()
        settings = broker.node.broker.transactions._settings
        assert settings is not None
        assert settings.transaction_abort_timed_out_transaction_cleanup_interval_ms == 1001
        assert settings.transaction_max_timeout_ms == 70_000
        assert settings.transaction_remove_expired_transaction_cleanup_interval_ms == 1002
        assert settings.transaction_two_phase_commit_enable
        assert settings.transactional_id_expiration_ms == 1003
