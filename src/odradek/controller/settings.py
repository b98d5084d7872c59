"""What the controller is told from outside: its settings, and the rules of configs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from odradek.core.ids import Uuid
from odradek.metadata import SUPPORTED_FEATURES, ClusterImage, ConfigResource, VersionRange
from odradek.protocol.generated.create_topics import CreatableTopicConfigs


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    node_id: int
    cluster_id: str
    default_partitions: int = 1
    """``num.partitions``"""
    default_replication_factor: int = 1
    """``default.replication.factor``"""
    min_insync_replicas: int = 1
    """``min.insync.replicas`` of server.properties"""
    unclean_leader_election: bool = False
    """``unclean.leader.election.enable`` of server.properties"""
    broker_session_timeout_ms: int = 9_000
    own_incarnation_id: Uuid | None = None
    """Of the broker in the controller's process, if there is one. The process has locked the
    broker's directories: any earlier incarnation has ended, even if its session has not."""
    supported_features: Mapping[str, VersionRange] = field(
        default_factory=lambda: SUPPORTED_FEATURES
    )

    partitions_per_request_max: int = 10_000
    records_per_request_max: int = 10_000
    topics_max: int = 200_000
    partitions_max: int = 1_000_000
    brokers_max: int = 10_000
    config_value_chars_max: int = 32_767


class ConfigRules(Protocol):
    """The definitions of configs: names, types, defaults. The controller only knows resources."""

    def validate(
        self, resource: ConfigResource, configs: Mapping[str, str], existing: Mapping[str, str]
    ) -> None:
        """Check all configs that ``resource`` would have.

        Raises:
            ApiError: INVALID_CONFIG, or another code that the client shall be told.
        """

    def is_list(self, resource: ConfigResource, name: str) -> bool | None:
        """Whether values can be appended and subtracted; None: there is no such config."""

    def default_value(self, resource: ConfigResource, name: str) -> str | None:
        """Return the default to which APPEND adds and from which SUBTRACT takes."""

    def effective_topic_configs(
        self, image: ClusterImage, configs: Mapping[str, str]
    ) -> list[CreatableTopicConfigs]:
        """Return every config of a topic created with ``configs``, for CreateTopics' response.

        The list may be shared: it must not be changed.
        """


class AnyConfig:
    """Rules that refuse nothing and know nothing: for tests, and to replay without validating."""

    def validate(
        self,
        resource: ConfigResource,  # noqa: ARG002
        configs: Mapping[str, str],  # noqa: ARG002
        existing: Mapping[str, str],  # noqa: ARG002
    ) -> None:
        return

    def is_list(self, resource: ConfigResource, name: str) -> bool:  # noqa: ARG002
        return name == "cleanup.policy"

    def default_value(self, resource: ConfigResource, name: str) -> str | None:  # noqa: ARG002
        return None

    def effective_topic_configs(
        self,
        image: ClusterImage,  # noqa: ARG002
        configs: Mapping[str, str],
    ) -> list[CreatableTopicConfigs]:
        return [
            CreatableTopicConfigs(name=name, value=value, config_source=1)
            for name, value in sorted(configs.items())
        ]
