"""DescribeConfigs as brokers and controllers answer it: from an image and a node's own configs."""

from collections.abc import Generator
from typing import NamedTuple

from odradek.core.config import (
    BrokerConfig,
    BrokerLevels,
    ConfigEntry,
    ConfigError,
    describe_broker,
    describe_broker_defaults,
    describe_client_metrics,
    describe_group,
    describe_topic,
)
from odradek.core.errors import ApiError, ErrorCode, short_message
from odradek.core.topic_names import check_topic_name
from odradek.metadata.config_resource import CLUSTER_DEFAULTS, ConfigResource, ResourceType
from odradek.metadata.dynamic_config import broker_levels
from odradek.metadata.image import ClusterImage
from odradek.protocol.generated.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from odradek.protocol.message import Message

Made = dict[int, tuple[ConfigEntry, DescribeConfigsResourceResult]]
"""Topics mostly share their entries: what is said of one is made once. By ``id`` of the entry,
which is kept beside it; its hash would cost more than that."""


class _Node(NamedTuple):
    """The node that answers: its id, what it was configured with, and the cluster as it sees it."""

    node_id: int
    levels: BrokerLevels
    image: ClusterImage


def describe_configs(
    config: BrokerConfig, image: ClusterImage, request: DescribeConfigsRequest
) -> Generator[None, None, Message]:
    """Answer a request on the node that has ``config``, a resource in each step."""
    node = _Node(config.node_id, broker_levels(config, image), image)
    response, made = DescribeConfigsResponse(), Made()
    for wanted in request.resources:
        yield
        response.results.append(_result(node, request, wanted, made))
    return response


def _result(
    node: _Node,
    request: DescribeConfigsRequest,
    wanted: DescribeConfigsResource,
    made: Made,
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        error_message=None,
        resource_type=wanted.resource_type,
        resource_name=wanted.resource_name,
    )
    try:
        entries = _entries(node, wanted)
    except ApiError as error:  # one bad resource must not fail its neighbours
        result.error_code, result.error_message = error.code, error.message or None
    except ConfigError as error:  # in the metadata log, from software that allowed it
        result.error_code = ErrorCode.INVALID_CONFIG
        result.error_message = short_message(error.message)
    else:
        for entry in entries:
            found = made.get(id(entry))
            if found is None:
                found = made[id(entry)] = entry, _config(request, entry)
            result.configs.append(found[1])
    return result


def _entries(node: _Node, wanted: DescribeConfigsResource) -> list[ConfigEntry]:
    levels, name, names = node.levels, wanted.resource_name, wanted.configuration_keys
    resource = ConfigResource(ResourceType(wanted.resource_type), name)
    configs = node.image.config_of(resource)
    match resource.type:
        case ResourceType.TOPIC:
            check_topic_name(name)
            if name not in node.image.topics:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
            return describe_topic(levels, configs, names)
        case ResourceType.BROKER if resource == CLUSTER_DEFAULTS:
            return describe_broker_defaults(configs, names)
        case ResourceType.BROKER:
            _check_is_this_broker(node.node_id, name)
            return describe_broker(levels, names)
        case ResourceType.CLIENT_METRICS:
            _check_named(name, "Client metrics subscription")
            return describe_client_metrics(configs, names)
        case ResourceType.GROUP:
            _check_named(name, "Group")
            return describe_group(levels, configs, names)
        case _:
            problem = f"Unsupported resource type: {wanted.resource_type}"
            raise ApiError(ErrorCode.INVALID_REQUEST, problem)


def _check_is_this_broker(node_id: int, name: str) -> None:
    # Only a broker itself knows its server.properties; clients send the request to it.
    if name != str(node_id):
        problem = f"Unexpected broker id, expected {node_id} or empty string, but received {name}"
        raise ApiError(ErrorCode.INVALID_REQUEST, problem)


def _check_named(name: str, what: str) -> None:
    if not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{what} name must not be empty")


def _config(request: DescribeConfigsRequest, entry: ConfigEntry) -> DescribeConfigsResourceResult:
    synonyms = [
        DescribeConfigsSynonym(name=each.name, value=each.value, source=each.source)
        for each in (entry.synonyms if request.include_synonyms else ())
    ]
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=synonyms,
        config_type=entry.type,
        documentation=entry.documentation if request.include_documentation else None,
    )
