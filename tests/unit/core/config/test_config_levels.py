"""What a topic gets when its broker says it in other units, at other levels."""

import pytest

from odradek.core.config import BrokerLevels, log_config_values, resolve_topic_configs


@pytest.mark.parametrize(
    ("static", "name", "expected"),
    [
        ({}, "retention.ms", "604800000"),
        ({"log.retention.hours": "2"}, "retention.ms", "7200000"),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, "retention.ms", "180000"),
        ({"log.retention.minutes": "3", "log.retention.ms": "4"}, "retention.ms", "4"),
        ({"log.retention.hours": "-1"}, "retention.ms", "-1"),
        ({"log.retention.ms": "-7"}, "retention.ms", "-1"),
        ({"log.roll.hours": "1"}, "segment.ms", "3600000"),
        ({"log.roll.hours": "1", "log.roll.ms": "5"}, "segment.ms", "5"),
        ({"log.roll.jitter.hours": "1"}, "segment.jitter.ms", "3600000"),
        ({"log.flush.scheduler.interval.ms": "9"}, "flush.ms", "9"),
        ({"log.flush.scheduler.interval.ms": "9", "log.flush.interval.ms": "8"}, "flush.ms", "8"),
        ({"message.max.bytes": "77"}, "max.message.bytes", "77"),
        ({"log.cleanup.policy": "compact , delete"}, "cleanup.policy", "compact,delete"),
        ({"log.preallocate": "TRUE"}, "preallocate", "true"),
    ],
)
def test_a_broker_config_in_the_units_of_the_topic(
    static: dict[str, str], name: str, expected: str
) -> None:
    assert resolve_topic_configs(BrokerLevels(static), {})[name] == expected


def test_each_level_beats_the_one_below() -> None:
    static = {"log.retention.hours": "1", "log.segment.bytes": "1048577"}
    default, broker, topic = ({"log.retention.ms": str(value)} for value in (2000, 3000, 4000))
    assert resolve_topic_configs(BrokerLevels(static), {})["retention.ms"] == "3600000"
    levels = BrokerLevels(static, default)
    assert resolve_topic_configs(levels, {})["retention.ms"] == "2000"
    levels = BrokerLevels(static, default, broker)
    assert resolve_topic_configs(levels, {})["retention.ms"] == "3000"
    configs = resolve_topic_configs(levels, {"retention.ms": topic["log.retention.ms"]})
    assert configs["retention.ms"] == "4000"
    assert configs["segment.bytes"] == "1048577"
    assert "internal.segment.bytes" not in configs


def test_a_dynamic_config_takes_its_static_synonyms_with_it() -> None:
    static = {"log.retention.hours": "1", "log.roll.hours": "1", "ssl.key.password": "a"}
    dynamic = {"log.retention.ms": "5", "listener.name.x.ssl.key.password": "b"}
    assert BrokerLevels(static, dynamic).merge() == {
        "log.retention.ms": "5",
        "log.roll.hours": "1",
        "ssl.key.password": "a",
        "listener.name.x.ssl.key.password": "b",
    }


def test_a_log_takes_the_segment_size_that_is_for_tests() -> None:
    topic = {"segment.bytes": "1048577", "internal.segment.bytes": "100"}
    assert log_config_values(BrokerLevels(), topic)["segment_bytes"] == 100
    del topic["internal.segment.bytes"]
    assert log_config_values(BrokerLevels(), topic)["segment_bytes"] == 1_048_577
