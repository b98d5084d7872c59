"""Which configs rule replication throttles: rates, lists of replicas, windows."""

import pytest

from odradek.broker.throttles import FOLLOWER_REPLICAS, LEADER_REPLICAS, Throttles
from odradek.core.config import STANDALONE, BrokerConfig, load_broker_config, parse_overrides
from odradek.metadata.config_resource import ConfigResource
from odradek.metadata.image import ClusterImage
from odradek.replication.quota import UNBOUNDED, ReplicationQuota

NODE_ID = 1
SIDES = ["leader", "follower", "log_dirs"]
ORDERS = ConfigResource.topic("orders")


def config_with(*overrides: str) -> BrokerConfig:
    return load_broker_config(parse_overrides(overrides), base=STANDALONE).config


def quota_with(side: str, seconds: str, count: str) -> ReplicationQuota:
    window = f"{'alter.log.dirs.' * (side == 'log_dirs')}replication.quota.window"
    config = config_with(f"{window}.size.seconds={seconds}", f"{window}.num={count}")
    found = getattr(Throttles(config, lambda: 0), side)
    assert isinstance(found, ReplicationQuota)
    return found


@pytest.mark.parametrize("side", SIDES)
def test_a_window_has_as_many_samples_as_the_config_says(side: str) -> None:
    for count in (2, 20):
        rate = quota_with(side, "1", str(count)).rate
        rate.record(1_000, 0)
        assert rate.per_second(count * 1_000 - 1) > 0
        assert rate.per_second(count * 1_000) == 0


@pytest.mark.parametrize("side", SIDES)
def test_a_sample_is_as_long_as_the_config_says(side: str) -> None:
    for seconds in (1, 5):
        rate = quota_with(side, str(seconds), "11").rate
        rate.record(1_000, 0)
        assert rate.per_second(0) == 1_000 / seconds


def test_topics_say_which_replicas_and_an_update_says_which_topics() -> None:
    throttles = Throttles(config_with("node.id=1"), lambda: 0)
    configs = {LEADER_REPLICAS: "0:1,1:2,2:1", FOLLOWER_REPLICAS: "*"}
    image = ClusterImage(configs={ORDERS: configs})
    throttles.on_topics(image, [ConfigResource.topic("others"), ConfigResource.broker(1)])
    assert not throttles.leader.is_used
    throttles.on_topics(image, image.configs)
    assert throttles.leader.throttled == {"orders": frozenset({0, 2})}
    assert throttles.follower.throttled == {"orders": None}
    throttles.on_topics(ClusterImage(), [ORDERS])  # the topic is gone, or its configs are
    assert not throttles.leader.is_used
    assert not throttles.follower.is_used


def test_without_configs_there_is_no_bound() -> None:
    throttles = Throttles(config_with(), lambda: 0)
    bounds = {each.bound for each in (throttles.leader, throttles.follower, throttles.log_dirs)}
    assert bounds == {UNBOUNDED}
