"""IncrementalAlterConfigs (key 44), versions 0-1: set, delete, append to, subtract from configs.

v1  flexible.  Answered when the metadata log has committed it.

Not implemented: loggers (refused with INVALID_REQUEST), throttling.
"""

from odradek.broker.context import PENDING, Answer, RequestContext
from odradek.protocol.generated.incremental_alter_configs import IncrementalAlterConfigsRequest


def handle(context: RequestContext, request: IncrementalAlterConfigsRequest) -> Answer:
    context.node.change(
        lambda controller: controller.incremental_alter_configs(request), context.reply
    )
    return PENDING
