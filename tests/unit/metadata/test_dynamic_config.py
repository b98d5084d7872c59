"""What was configured while brokers ran counts, unless it does not fit any more."""

from collections.abc import Mapping

from odradek.core.config import STANDALONE, BrokerConfig, load_broker_config, parse_overrides
from odradek.metadata.config_resource import CLUSTER_DEFAULTS, ConfigResource
from odradek.metadata.dynamic_config import broker_levels, is_for_broker, with_dynamic_configs
from odradek.metadata.image import ClusterImage

HERE = ConfigResource.broker(1)


def started(*overrides: str) -> BrokerConfig:
    return load_broker_config(parse_overrides(overrides), base=STANDALONE).config


def image(everywhere: Mapping[str, str], here: Mapping[str, str]) -> ClusterImage:
    return ClusterImage(configs={CLUSTER_DEFAULTS: everywhere, HERE: here})


def test_this_broker_is_stronger_than_all_and_both_than_the_file() -> None:
    config = started("log.retention.ms=1", "log.retention.bytes=1", "compression.type=zstd")
    everywhere = {"log.retention.ms": "2", "log.retention.bytes": "2"}
    changed, refused = with_dynamic_configs(config, image(everywhere, {"log.retention.ms": "3"}))
    assert refused == ()
    assert changed.integer("log.retention.ms") == 3
    assert changed.integer("log.retention.bytes") == 2
    assert changed.text("compression.type") == "zstd"


def test_what_is_deleted_again_leaves_the_file() -> None:
    config = started("log.retention.ms=1")
    changed, _ = with_dynamic_configs(config, image({}, {"log.retention.ms": "3"}))
    back, _ = with_dynamic_configs(changed, image({}, {}))
    assert back == config


def test_what_does_not_parse_is_left_out_alone() -> None:
    everywhere = {"log.retention.ms": "soon", "log.retention.bytes": "2"}
    changed, refused = with_dynamic_configs(started(), image(everywhere, {}))
    assert refused == ("log.retention.ms",)
    assert changed.integer("log.retention.bytes") == 2
    assert "log.retention.ms" not in changed.levels.dynamic_default


def test_what_does_not_fit_the_file_any_more_is_left_out() -> None:
    config = started("log.cleaner.max.compaction.lag.ms=10")
    everywhere = {"log.cleaner.min.compaction.lag.ms": "20"}
    changed, refused = with_dynamic_configs(config, image(everywhere, {}))
    assert refused == ("log.cleaner.min.compaction.lag.ms",)
    assert changed == config


def test_if_a_rule_names_the_file_all_that_is_dynamic_goes() -> None:
    config = started("log.cleaner.min.compaction.lag.ms=20")
    here = {"log.cleaner.max.compaction.lag.ms": "10", "log.retention.bytes": "2"}
    changed, refused = with_dynamic_configs(config, image({}, here))
    assert refused == ("log.cleaner.max.compaction.lag.ms", "log.retention.bytes")
    assert changed == config


def test_levels_are_those_of_the_image() -> None:
    levels = broker_levels(started(), image({"a": "1"}, {"b": "2"}))
    assert (levels.dynamic_default, levels.dynamic_broker) == ({"a": "1"}, {"b": "2"})


def test_only_two_resources_concern_a_broker() -> None:
    others = [ConfigResource.broker(2), ConfigResource.topic("1"), ConfigResource.topic("")]
    assert is_for_broker(CLUSTER_DEFAULTS, 1)
    assert is_for_broker(HERE, 1)
    assert not any(is_for_broker(each, 1) for each in others)
