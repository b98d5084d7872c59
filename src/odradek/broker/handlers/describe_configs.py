"""DescribeConfigs (key 32), versions 1-4: configs with their values, sources and synonyms.

v1  sources; synonyms on request.  v3  types; documentation on request.  v4  flexible.

Topics, this broker, all brokers (a broker resource without a name), groups and subscriptions to
client metrics. Values of passwords, and of broker configs that nobody knows, are null.

Not implemented: loggers (refused with INVALID_REQUEST).
"""

from odradek.broker.context import Answer, RequestContext
from odradek.broker.dynamic_config import broker_levels
from odradek.core.config import (
    ConfigEntry,
    ConfigError,
    describe_broker,
    describe_broker_defaults,
    describe_client_metrics,
    describe_group,
    describe_topic,
)
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.topic_names import check_topic_name
from odradek.metadata.config_resource import CLUSTER_DEFAULTS, ConfigResource, ResourceType
from odradek.protocol.generated.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


def handle(context: RequestContext, request: DescribeConfigsRequest) -> Answer:
    results = [_result(context, request, wanted) for wanted in request.resources]
    return DescribeConfigsResponse(results=results)


def _result(
    context: RequestContext, request: DescribeConfigsRequest, wanted: DescribeConfigsResource
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        error_message=None,
        resource_type=wanted.resource_type,
        resource_name=wanted.resource_name,
    )
    try:
        entries = _entries(context, wanted)
    except ApiError as error:  # one bad resource must not fail its neighbours
        result.error_code, result.error_message = error.code, error.message or None
    except ConfigError as error:  # in the metadata log, from software that allowed it
        result.error_code, result.error_message = ErrorCode.INVALID_CONFIG, error.message
    else:
        result.configs = [_config(request, entry) for entry in entries]
    return result


def _entries(context: RequestContext, wanted: DescribeConfigsResource) -> list[ConfigEntry]:
    node, name, names = context.node, wanted.resource_name, wanted.configuration_keys
    resource = ConfigResource(ResourceType(wanted.resource_type), name)
    configs = node.image.config_of(resource)
    levels = broker_levels(node.config, node.image)
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
