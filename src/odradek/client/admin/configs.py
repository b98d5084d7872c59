"""Configs of topics, brokers, groups and client metrics: describe, alter, list who has some."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from odradek.client.admin.driver import Driver, Places, refusal
from odradek.client.admin.results import Results
from odradek.client.errors import BrokerError, KafkaError, check
from odradek.core.config import ConfigResourceType, ConfigSource, ConfigType
from odradek.core.errors import ErrorCode
from odradek.protocol.generated.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from odradek.protocol.generated.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from odradek.protocol.generated.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

VALUE_BYTES_MAX: Final = 2**15 - 1
"""Of the value of a config: no string in a request may be longer."""
_FINAL: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
_SET: Final = 0
_DELETE: Final = 1
_APPEND: Final = 2
_SUBTRACT: Final = 3
_TYPED_LIST: Final = 1


class ConfigResource(NamedTuple):
    """Whose configs: a topic, group or subscription by name, a broker by its id, "" for all."""

    type: ConfigResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> "ConfigResource":
        return cls(ConfigResourceType.TOPIC, name)

    @classmethod
    def broker(cls, node_id: int | None = None) -> "ConfigResource":
        """Return one broker, or with None what holds for all of them."""
        return cls(ConfigResourceType.BROKER, "" if node_id is None else str(node_id))

    @classmethod
    def group(cls, group_id: str) -> "ConfigResource":
        return cls(ConfigResourceType.GROUP, group_id)

    @classmethod
    def client_metrics(cls, name: str) -> "ConfigResource":
        return cls(ConfigResourceType.CLIENT_METRICS, name)

    def __str__(self) -> str:
        return f"{self.type.name.lower()} {self.name}"


class ConfigSynonym(NamedTuple):
    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One config. ``value`` is None where it is secret; ``synonyms`` are in the order of weight."""

    name: str
    value: str | None
    source: ConfigSource
    is_sensitive: bool = False
    is_read_only: bool = False
    type: ConfigType = ConfigType.UNKNOWN
    documentation: str | None = None
    synonyms: tuple[ConfigSynonym, ...] = ()

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT_CONFIG


class Append(NamedTuple):
    """Add to a config that is a list."""

    value: str


class Subtract(NamedTuple):
    """Take from a config that is a list."""

    value: str


ConfigChange: TypeAlias = str | Append | Subtract | None
"""A new value, None to go back to the default, or a change of a list."""


class ConfigOperations:
    _driver: Driver

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        names: Collection[str] | None = None,
        include_synonyms: bool = False,
        include_documentation: bool = False,
        timeout_ms: float | None = None,
    ) -> Results[ConfigResource, dict[str, ConfigEntry]]:
        """Return the configs of each resource by name: all, or those in ``names``."""
        driver = self._driver
        keys = None if names is None else list(names)

        async def ask(
            node_id: int, asked: Sequence[ConfigResource]
        ) -> Mapping[ConfigResource, dict[str, ConfigEntry] | KafkaError]:
            request = DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(
                        resource_type=kind, resource_name=name, configuration_keys=keys
                    )
                    for kind, name in asked
                ],
                include_synonyms=include_synonyms,
                include_documentation=include_documentation,
            )
            response = await driver.cluster.ask(node_id, request, DescribeConfigsResponse)
            answers: dict[ConfigResource, dict[str, ConfigEntry] | KafkaError] = {}
            for each in response.results:
                resource = _resource(each.resource_type, each.resource_name)
                error = refusal(each.error_code, each.error_message, about=resource)
                configs = {config.name: _entry(config) for config in each.configs}
                answers[resource] = configs if error is None else error
            return answers

        return await driver.bulk(
            resources,
            self._to_owners,
            ask,
            timeout_ms=timeout_ms,
            final=_FINAL,
            by_controllers=True,
        )

    async def alter_configs(
        self,
        changes: Mapping[ConfigResource, Mapping[str, ConfigChange]],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> Results[ConfigResource, None]:
        """Change single configs and leave the others as they are (KIP-339).

        ``{ConfigResource.topic("orders"): {"retention.ms": "1000", "segment.ms": None}}``
        """
        driver = self._driver

        async def ask(
            node_id: int, asked: Sequence[ConfigResource]
        ) -> Mapping[ConfigResource, KafkaError | None]:
            answers: dict[ConfigResource, KafkaError | None] = {
                each: error for each in asked if (error := _refusal_of(changes[each], each))
            }
            request = IncrementalAlterConfigsRequest(
                resources=[
                    _alteration(each, changes[each]) for each in asked if each not in answers
                ],
                validate_only=validate_only,
            )
            if not request.resources:
                return answers
            response = await driver.cluster.ask(node_id, request, IncrementalAlterConfigsResponse)
            for each in response.responses:
                resource = _resource(each.resource_type, each.resource_name)
                answers[resource] = refusal(each.error_code, each.error_message, about=resource)
            return answers

        # Of controllers only the active one changes anything, its own configs or those of others.
        is_direct = driver.cluster.uses_controllers
        route = driver.to_controller if is_direct else self._to_owners
        return await driver.bulk(
            changes, route, ask, timeout_ms=timeout_ms, final=_FINAL, by_controllers=True
        )

    async def list_config_resources(
        self,
        types: Iterable[ConfigResourceType] | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> list[ConfigResource]:
        """Return what there are configs of; of groups and metrics only those that have some set.

        Brokers before 4.1 know of client metrics only.
        """
        driver = self._driver
        wanted = list(types or ())

        async def ask(node_id: int) -> list[ConfigResource]:
            def request(version: int) -> ListConfigResourcesRequest:
                only_metrics = wanted == [ConfigResourceType.CLIENT_METRICS]
                if version < _TYPED_LIST and only_metrics:
                    return ListConfigResourcesRequest()
                return ListConfigResourcesRequest(resource_types=[int(kind) for kind in wanted])

            response = await driver.cluster.ask(node_id, request, ListConfigResourcesResponse)
            check(response.error_code, about="ListConfigResources")
            return sorted(
                _resource(each.resource_type, each.resource_name)
                for each in response.config_resources
            )

        return await driver.single(ask, timeout_ms=timeout_ms)

    async def _to_owners(self, keys: Sequence[ConfigResource]) -> Places[ConfigResource]:
        """Route: a broker answers for its own configs, and checks changes of them."""
        others = await self._driver.to_controller(keys)
        return {
            key: int(key.name) if _is_one_broker(key) and key.name.isdecimal() else others[key]
            for key in keys
        }


def _is_one_broker(resource: ConfigResource) -> bool:
    kinds = (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)
    return resource.type in kinds and resource.name != ""


def _resource(kind: int, name: str) -> ConfigResource:
    return ConfigResource(ConfigResourceType(kind), name)


def _entry(config: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        config.name,
        config.value,
        _source(config.config_source),
        config.is_sensitive,
        config.read_only,
        ConfigType(config.config_type),
        config.documentation,
        tuple(ConfigSynonym(s.name, s.value, _source(s.source)) for s in config.synonyms),
    )


def _source(number: int) -> ConfigSource:
    try:
        return ConfigSource(number)
    except ValueError:  # of a broker newer than this
        return ConfigSource.UNKNOWN


def _refusal_of(changes: Mapping[str, ConfigChange], resource: ConfigResource) -> KafkaError | None:
    """Return why brokers would not take changes: they hang up on a longer string."""
    if all(
        len((_operation(each)[1] or "").encode()) <= VALUE_BYTES_MAX for each in changes.values()
    ):
        return None
    problem = "The configuration value cannot be added because it exceeds the maximum value size of"
    problem += f" {VALUE_BYTES_MAX} bytes."
    return BrokerError(ErrorCode.INVALID_CONFIG, problem, about=str(resource))


def _alteration(
    resource: ConfigResource, changes: Mapping[str, ConfigChange]
) -> AlterConfigsResource:
    configs = []
    for name, change in changes.items():
        operation, value = _operation(change)
        configs.append(AlterableConfig(name=name, config_operation=operation, value=value))
    return AlterConfigsResource(
        resource_type=resource.type, resource_name=resource.name, configs=configs
    )


def _operation(change: ConfigChange) -> tuple[int, str | None]:
    if change is None:
        return _DELETE, None
    if isinstance(change, Append):
        return _APPEND, change.value
    if isinstance(change, Subtract):
        return _SUBTRACT, change.value
    return _SET, str(change)
