"""IncrementalAlterConfigs (key 44), versions 0-1: set, delete, append to, subtract from configs.

v1  flexible.  Answered when the metadata log has committed it.

Not implemented: loggers (refused with INVALID_REQUEST), throttling.
"""

from odradek.broker.context import Answer, RequestContext
from odradek.broker.own_directories import refused_cordon
from odradek.protocol.generated.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


def handle(context: RequestContext, request: IncrementalAlterConfigsRequest) -> Answer:
    refused = [refused_cordon(context.broker, each) for each in request.resources]
    if len(refused) == 1 and refused[0] is not None:  # of several the controller takes the others
        return IncrementalAlterConfigsResponse(responses=[refused[0]])
    return context.broker.controller.forward(context, request)
