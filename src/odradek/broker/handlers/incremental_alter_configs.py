"""IncrementalAlterConfigs (key 44), versions 0-1: set, delete, append to, subtract from configs.

v1  flexible.  Answered when the metadata log has committed it.

Not implemented: loggers (refused with INVALID_REQUEST), throttling.
"""

from odradek.broker.context import Answer, RequestContext
from odradek.protocol.generated.incremental_alter_configs import IncrementalAlterConfigsRequest


def handle(context: RequestContext, request: IncrementalAlterConfigsRequest) -> Answer:
    return context.broker.controller.forward(context, request)
