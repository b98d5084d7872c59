"""Settings of the consumer: what their texts mean, and what does not go together."""

from typing import Any

import pytest

from odradek.client.consumer.settings import (
    EARLIEST,
    LATEST,
    NOWHERE,
    ResetPolicy,
    assignors,
    consumer_settings,
    reset_policy,
)
from odradek.client.errors import ConfigurationError
from odradek.client.settings import Settings


def settings(**keywords: Any) -> Settings:
    return consumer_settings({"bootstrap.servers": "localhost:9092"}, keywords)


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("earliest", EARLIEST),
        ("latest", LATEST),
        ("none", NOWHERE),
        ("by_duration:PT1H", ResetPolicy(age_ms=3_600_000)),
        ("by_duration:P1DT2H3M4.5S", ResetPolicy(age_ms=93_784_500)),
        ("by_duration:P7D", ResetPolicy(age_ms=604_800_000)),
    ],
)
def test_resets_have_kafkas_names(text: str, policy: ResetPolicy) -> None:
    assert reset_policy(settings(auto_offset_reset=text)) == policy


def test_an_age_is_counted_from_now() -> None:
    assert ResetPolicy(age_ms=1_000).timestamp_at(5_000) == 4_000
    assert ResetPolicy(age_ms=9_000).timestamp_at(5_000) == 0
    assert EARLIEST.timestamp_at(5_000) == -2


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("auto_offset_reset", "smallest", "by_duration"),
        ("auto_offset_reset", "by_duration:", "not a duration"),
        ("auto_offset_reset", "by_duration:PT", "not a duration"),
        ("auto_offset_reset", "by_duration:1h", "not a duration"),
        ("partition_assignment_strategy", "range,fair", "'fair' is not one of"),
        ("isolation_level", "serializable", "not one of"),
        ("heartbeat_interval_ms", 45_000, "less than session"),
        ("group_instance_id", "i", r"needs a group\.id"),
        ("max_poll_record", 5, r"did you mean 'max\.poll\.records'"),
    ],
)
def test_what_is_wrong_is_said_at_once(name: str, value: Any, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        settings(**{name: value})


def test_the_group_chooses_its_timeouts_in_the_consumer_protocol() -> None:
    with pytest.raises(ConfigurationError, match=r"session\.timeout\.ms is the group's own"):
        settings(group_id="g", group_protocol="consumer", session_timeout_ms=1)
    settings(group_id="g", group_protocol="consumer")


def test_assignors_are_offered_in_their_order() -> None:
    chosen = assignors(settings(partition_assignment_strategy=["sticky", "range", "sticky"]))
    assert [each.name for each in chosen] == ["sticky", "range"]
    assert [each.name for each in assignors(settings())] == ["range", "cooperative-sticky"]
