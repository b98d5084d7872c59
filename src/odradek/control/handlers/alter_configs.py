"""AlterConfigs (key 33), versions 0-2: replace all that is set for a resource.

v2  flexible.  Answered when the metadata log has committed it.

Not implemented: loggers (refused with INVALID_REQUEST), throttling.
"""

from odradek.control.context import ControlContext
from odradek.protocol.generated.alter_configs import AlterConfigsRequest


def handle(context: ControlContext, request: AlterConfigsRequest) -> None:
    context.change(lambda controller: controller.alter_configs_in_steps(request))
