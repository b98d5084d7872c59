"""Checks ``cordoned.log.dirs`` of this broker: a controller does not know the paths of others.

Admin clients send the configs of a broker to that broker, which forwards what it finds good.
"""

from typing import TYPE_CHECKING, Final

from odradek.core.config import ConfigError, reconfigure
from odradek.core.errors import ErrorCode
from odradek.metadata.config_resource import ResourceType
from odradek.protocol.generated.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
)

if TYPE_CHECKING:
    from odradek.broker.broker_server import BrokerServer

_CORDONED: Final = "cordoned.log.dirs"
_DELETE: Final = 1


def refused_cordon(
    broker: "BrokerServer", resource: AlterConfigsResource
) -> AlterConfigsResourceResponse | None:
    """Return the refusal of a change that names a directory which this broker does not have."""
    if resource.resource_type != ResourceType.BROKER:
        return None
    if resource.resource_name != str(broker.node_id):
        return None
    for change in resource.configs:
        if change.name != _CORDONED or change.config_operation == _DELETE or not change.value:
            continue
        try:
            reconfigure(broker.config, {}, {_CORDONED: change.value})
        except ConfigError as error:
            return AlterConfigsResourceResponse(
                error_code=ErrorCode.INVALID_CONFIG,
                error_message=str(error),
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
    return None
