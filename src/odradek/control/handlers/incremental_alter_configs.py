"""IncrementalAlterConfigs (key 44), versions 0-1: set, delete, append to, subtract from configs.

v1  flexible.  Answered when the metadata log has committed it.

Not implemented: loggers (refused with INVALID_REQUEST), throttling.
"""

from odradek.control.context import ControlContext
from odradek.protocol.generated.incremental_alter_configs import IncrementalAlterConfigsRequest


def handle(context: ControlContext, request: IncrementalAlterConfigsRequest) -> None:
    context.change(lambda controller: controller.incremental_alter_configs_in_steps(request))
