"""The definitions of configs as the controller asks for them: validated, with their defaults."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from odradek.core.config import (
    BROKER_CONFIGS,
    CLIENT_METRICS_CONFIGS,
    GROUP_CONFIGS,
    TOPIC_CONFIGS,
    BrokerConfig,
    BrokerLevels,
    ConfigEntry,
    ConfigType,
    describe_topic,
    reconfigure,
    validate_broker_configs,
    validate_client_metrics_configs,
    validate_group_configs,
    validate_topic_configs,
)
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.topic_names import check_topic_name
from odradek.metadata.config_resource import ConfigResource, ResourceType
from odradek.metadata.image import ClusterImage
from odradek.protocol.generated.create_topics import CreatableTopicConfigs

_DEFINITIONS: Final = {
    ResourceType.TOPIC: TOPIC_CONFIGS,
    ResourceType.BROKER: BROKER_CONFIGS,
    ResourceType.GROUP: GROUP_CONFIGS,
    ResourceType.CLIENT_METRICS: CLIENT_METRICS_CONFIGS,
}
CORDONED_LOG_DIRS: Final = "cordoned.log.dirs"
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,10}")


class TopicConfigRules:
    """What the controller asks before it writes configs into the metadata log."""

    def __init__(
        self,
        current: Callable[[], BrokerConfig],
        check_listeners: Callable[[BrokerConfig], None] = lambda _config: None,
        *,
        any_node: bool = False,
    ) -> None:
        """``current`` gives the node's config as it is now: it changes while the node runs.

        ``check_listeners`` raises ApiError if the node's listeners could not work with another.
        ``any_node``: configs of all nodes are accepted, as a controller must; whether they are good
        for another node, that node has found out before it forwarded them.
        """
        self._current = current
        self._check_listeners = check_listeners
        self._any_node = any_node
        self._usual: tuple[BrokerLevels, list[CreatableTopicConfigs]] | None = None

    def validate(
        self,
        resource: ConfigResource,
        configs: Mapping[str, str],
        existing: Mapping[str, str],  # noqa: ARG002
    ) -> None:
        if resource.type is ResourceType.TOPIC:
            if not resource.name:
                problem = "Default topic resources are not allowed."
                raise ApiError(ErrorCode.INVALID_REQUEST, problem)
            check_topic_name(resource.name)
            config = self._current()
            small = config.small_segments
            validate_topic_configs(configs, config.levels, small_segments=small)
        elif resource.type is ResourceType.BROKER:
            if resource.name:
                self._check_is_this_node(resource.name)
            checked = dict(configs)
            if resource.name != str(self._current().node_id):
                checked.pop(CORDONED_LOG_DIRS, None)  # by that broker, which knows its log.dirs
            validate_broker_configs(checked, self._current(), per_broker=bool(resource.name))
            if resource.name == str(self._current().node_id):
                config = self._current()
                everywhere = config.levels.dynamic_default
                self._check_listeners(reconfigure(config, everywhere, configs))
        elif resource.type is ResourceType.GROUP:
            if not resource.name:
                problem = "Default group resources are not allowed."
                raise ApiError(ErrorCode.INVALID_REQUEST, problem)
            validate_group_configs(configs, self._current())
        elif resource.type is ResourceType.CLIENT_METRICS:
            if not resource.name:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
            validate_client_metrics_configs(configs)

    def _check_is_this_node(self, name: str) -> None:
        """Only a broker itself can tell whether a config is good for it."""
        expected = self._current().node_id
        if not _INTEGER.fullmatch(name):
            problem = f"Node id must be an integer, but it is: {name}"
            raise ApiError(ErrorCode.INVALID_REQUEST, problem)
        if int(name) != expected and not self._any_node:
            problem = f"Unexpected broker id, expected {expected}, but received {name}"
            raise ApiError(ErrorCode.INVALID_REQUEST, problem)

    def is_list(self, resource: ConfigResource, name: str) -> bool | None:
        definition = _DEFINITIONS.get(resource.type, {}).get(name)
        return None if definition is None else definition.type is ConfigType.LIST

    def default_value(self, resource: ConfigResource, name: str) -> str | None:
        definition = _DEFINITIONS.get(resource.type, {}).get(name)
        return None if definition is None else definition.default_text

    def effective_topic_configs(
        self,
        image: ClusterImage,  # noqa: ARG002
        configs: Mapping[str, str],
    ) -> list[CreatableTopicConfigs]:
        levels = self._current().levels
        if configs:
            return _creatable(describe_topic(levels, configs))
        # Ten thousand topics of one request all have the same: one list for all of them.
        if self._usual is None or self._usual[0] is not levels:
            self._usual = levels, _creatable(describe_topic(levels, {}))
        return self._usual[1]


def _creatable(entries: Iterable[ConfigEntry]) -> list[CreatableTopicConfigs]:
    return [
        CreatableTopicConfigs(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.source,
            is_sensitive=entry.is_sensitive,
        )
        for entry in entries
    ]
