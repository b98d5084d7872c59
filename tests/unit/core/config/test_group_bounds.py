"""The configs of a group stay within the broker's bounds."""

from odradek.core.config import GROUP_CONFIGS, STANDALONE, BrokerLevels, make_broker_config
from odradek.core.config.group_bounds import BOUNDS, clamp, find_refusals

CONFIG = make_broker_config(BrokerLevels(STANDALONE))


def test_only_configs_that_groups_have_are_bounded() -> None:
    assert BOUNDS.keys() <= GROUP_CONFIGS.keys()


def test_what_lies_beyond_the_bounds_is_refused_in_kafkas_words() -> None:
    assert list(find_refusals({"consumer.session.timeout.ms": "50000"}, CONFIG)) == []
    assert list(find_refusals({"consumer.session.timeout.ms": "44999"}, CONFIG)) == [
        "consumer.session.timeout.ms must be greater than or equal to "
        "group.consumer.min.session.timeout.ms"
    ]
    assert list(find_refusals({"streams.num.standby.replicas": "3"}, CONFIG)) == [
        "streams.num.standby.replicas must be less than or equal to "
        "group.streams.max.standby.replicas"
    ]


def test_a_session_lasts_longer_than_the_time_between_heartbeats() -> None:
    lower = {"group.consumer.min.session.timeout.ms": "1"}
    wide = make_broker_config(BrokerLevels({**STANDALONE, **lower}))
    assert list(find_refusals({"consumer.session.timeout.ms": "5000"}, wide)) == [
        "consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms"
    ]


def test_what_was_set_under_other_bounds_counts_as_the_nearest_value() -> None:
    configs = {
        "consumer.session.timeout.ms": "1",
        "consumer.heartbeat.interval.ms": "99999",
        "consumer.assignment.interval.ms": "7",
        "share.auto.offset.reset": "earliest",
    }
    assert clamp(configs, CONFIG) == {
        "consumer.session.timeout.ms": 45_000,
        "consumer.heartbeat.interval.ms": 15_000,
        "consumer.assignment.interval.ms": 7,
    }
