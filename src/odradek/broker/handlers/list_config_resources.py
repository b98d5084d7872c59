"""ListConfigResources (key 74), versions 0-1: what there are configs of.

v0  subscriptions to client metrics.  v1  the types asked for, or all: topics and brokers, whether
anything is set for them or not; groups and subscriptions that have something set.

Loggers can be asked for, and there are none.
"""

from collections.abc import Iterable

from odradek.broker.context import Answer, RequestContext
from odradek.core.errors import ErrorCode
from odradek.metadata.config_resource import ResourceType
from odradek.protocol.generated.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

_SUPPORTED = {
    0: (ResourceType.CLIENT_METRICS,),
    1: tuple(each for each in ResourceType if each is not ResourceType.UNKNOWN),
}


def handle(context: RequestContext, request: ListConfigResourcesRequest) -> Answer:
    supported = _SUPPORTED[context.version]
    wanted = set(request.resource_types or supported)
    if not wanted <= set(supported):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    resources = [
        ConfigResource(resource_name=name, resource_type=kind)
        for kind in supported
        if kind in wanted
        for name in sorted(_names(context, kind))
    ]
    return ListConfigResourcesResponse(config_resources=resources)


def _names(context: RequestContext, kind: ResourceType) -> Iterable[str]:
    image = context.broker.image
    match kind:
        case ResourceType.TOPIC:
            return image.topics
        case ResourceType.BROKER:
            brokers = image.brokers.items()
            return (str(node_id) for node_id, each in brokers if context.listener in each.endpoints)
        case _:
            return (resource.name for resource in image.configs if resource.type is kind)
