"""DescribeConfigs (key 32), versions 1-4: configs with their values, sources and synonyms.

v1  sources; synonyms on request.  v3  types; documentation on request.  v4  flexible.  Answered by
every controller, from the committed image and its own configs.

Not implemented: loggers (refused with INVALID_REQUEST).
"""

from odradek.control.context import ControlContext
from odradek.core.slices import Steps
from odradek.metadata.described_configs import describe_configs
from odradek.protocol.generated.describe_configs import DescribeConfigsRequest
from odradek.protocol.message import Message


def handle(context: ControlContext, request: DescribeConfigsRequest) -> Steps[Message]:
    return describe_configs(context.control.config, context.control.image, request)
