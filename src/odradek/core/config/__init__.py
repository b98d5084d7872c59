"""Configs: what there is, how it is read, what counts, and what may be changed.

Text in, values out: files and the environment are read by the caller. ``definitions`` holds every
config of Kafka by name; ``loading`` makes a :class:`BrokerConfig` at the start; ``levels`` resolves
what a topic gets; ``describe`` and ``alteration`` answer DescribeConfigs and the two AlterConfigs.
"""

from odradek.core.config.alteration import (
    validate_broker_configs,
    validate_client_metrics_configs,
    validate_group_configs,
    validate_topic_config,
    validate_topic_configs,
)
from odradek.core.config.broker_config import STANDALONE, BrokerConfig
from odradek.core.config.definition import ConfigDefinition
from odradek.core.config.definitions import (
    BROKER_CONFIGS,
    CLIENT_METRICS_CONFIGS,
    GROUP_CONFIGS,
    TOPIC_CONFIGS,
    TOPIC_SYNONYMS,
)
from odradek.core.config.describe import (
    ConfigEntry,
    ConfigSynonym,
    describe_broker,
    describe_broker_defaults,
    describe_client_metrics,
    describe_group,
    describe_topic,
)
from odradek.core.config.levels import (
    BrokerLevels,
    log_config_values,
    resolve_topic_configs,
    resolve_topic_values,
)
from odradek.core.config.listeners import Listener, SecurityProtocol
from odradek.core.config.loading import (
    ConfigWarning,
    LoadedConfig,
    Settings,
    check_known,
    load_broker_config,
    make_broker_config,
    parse_environment,
    parse_overrides,
    parse_server_properties,
    reconfigure,
)
from odradek.core.config.markdown import render_markdown
from odradek.core.config.quorum_addresses import Address
from odradek.core.config.values import (
    ConfigError,
    ConfigResourceType,
    ConfigSource,
    ConfigType,
    ConfigValue,
    UpdateMode,
)

__all__ = [
    "BROKER_CONFIGS",
    "CLIENT_METRICS_CONFIGS",
    "GROUP_CONFIGS",
    "STANDALONE",
    "TOPIC_CONFIGS",
    "TOPIC_SYNONYMS",
    "Address",
    "BrokerConfig",
    "BrokerLevels",
    "ConfigDefinition",
    "ConfigEntry",
    "ConfigError",
    "ConfigResourceType",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigType",
    "ConfigValue",
    "ConfigWarning",
    "Listener",
    "LoadedConfig",
    "SecurityProtocol",
    "Settings",
    "UpdateMode",
    "check_known",
    "describe_broker",
    "describe_broker_defaults",
    "describe_client_metrics",
    "describe_group",
    "describe_topic",
    "load_broker_config",
    "log_config_values",
    "make_broker_config",
    "parse_environment",
    "parse_overrides",
    "parse_server_properties",
    "reconfigure",
    "render_markdown",
    "resolve_topic_configs",
    "resolve_topic_values",
    "validate_broker_configs",
    "validate_client_metrics_configs",
    "validate_group_configs",
    "validate_topic_config",
    "validate_topic_configs",
]
