"""The settings of logs: resolved once for the topics that say the same, and anew after a change."""

from odradek.broker.config_rules import LastLogSettings
from odradek.core.config import STANDALONE, load_broker_config


def test_topics_that_say_the_same_share_their_settings_until_the_broker_says_otherwise() -> None:
    config = load_broker_config(base=STANDALONE).config
    other = load_broker_config(base={**STANDALONE, "log.segment.bytes": "2097152"}).config
    known = LastLogSettings()
    first = known.find(config, {})
    assert known.find(config, {}) is first
    own = known.find(config, {"segment.bytes": "1048576"})
    assert own.config.segment_bytes == 1_048_576
    assert known.find(config, {}).config.segment_bytes == first.config.segment_bytes
    assert known.find(other, {}).config.segment_bytes == 2_097_152
