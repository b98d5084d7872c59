"""Changes that Kafka's recorded answers (test_config_describe) do not cover."""

from collections.abc import Callable

import pytest

from odradek.core.config import (
    STANDALONE,
    BrokerLevels,
    ConfigResourceType,
    make_broker_config,
    validate_client_metrics_configs,
    validate_group_configs,
    validate_topic_config,
    validate_topic_configs,
)
from odradek.core.errors import ApiError, ErrorCode

TOPIC = ConfigResourceType.TOPIC


def refusal(act: Callable[[], object]) -> tuple[ErrorCode, str]:
    with pytest.raises(ApiError) as caught:
        act()
    return caught.value.code, caught.value.message


def test_a_topic_config() -> None:
    validate_topic_config("segment.bytes", "1048576")
    validate_topic_config("segment.bytes", "100", small_segments=True)
    assert refusal(lambda: validate_topic_config("segment.bytes", "100")) == (
        ErrorCode.INVALID_CONFIG,
        "Invalid value 100 for configuration segment.bytes: Value must be at least 1048576",
    )
    assert refusal(lambda: validate_topic_config("x", "1"))[1] == "Unknown topic config name: x"


def test_topic_configs_without_a_value_are_refused() -> None:
    assert refusal(lambda: validate_topic_configs({"flush.ms": None}, BrokerLevels()))[1] == (
        "Null value not supported for topic configs: flush.ms"
    )


def test_a_topic_config_is_held_against_its_brokers() -> None:
    levels = BrokerLevels({"log.cleaner.max.compaction.lag.ms": "50"})
    code, message = refusal(lambda: validate_topic_configs({"min.compaction.lag.ms": "60"}, levels))
    assert code is ErrorCode.INVALID_CONFIG
    assert "min.compaction.lag.ms (60) > max.compaction.lag.ms (50)" in message


def test_configs_of_groups_and_client_metrics() -> None:
    config = make_broker_config(BrokerLevels(STANDALONE))
    validate_group_configs({"share.auto.offset.reset": "earliest"}, config)
    assert refusal(lambda: validate_group_configs({"x": "1"}, config)) == (
        ErrorCode.INVALID_CONFIG,
        "Unknown group config name: x",
    )
    assert refusal(lambda: validate_group_configs({"share.isolation.level": "x"}, config))[0] is (
        ErrorCode.INVALID_CONFIG
    )
    validate_client_metrics_configs({"interval.ms": "100"})
    assert refusal(lambda: validate_client_metrics_configs({"x": "1"})) == (
        ErrorCode.INVALID_REQUEST,
        "Unknown client metrics configuration: x",
    )
    assert refusal(lambda: validate_client_metrics_configs({"interval.ms": "99"})) == (
        ErrorCode.INVALID_REQUEST,
        "Invalid value 99 for interval.ms, interval must be between 100 and 3600000 (1 hour)",
    )
    assert refusal(lambda: validate_client_metrics_configs({"interval.ms": "x"}))[0] is (
        ErrorCode.INVALID_CONFIG
    )
