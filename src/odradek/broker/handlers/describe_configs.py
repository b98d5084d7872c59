"""DescribeConfigs (key 32), versions 1-4: configs with their values, sources and synonyms.

v1  sources; synonyms on request.  v3  types; documentation on request.  v4  flexible.

Topics, this broker, all brokers (a broker resource without a name), groups and subscriptions to
client metrics. Values of passwords, and of broker configs that nobody knows, are null.

Not implemented: loggers (refused with INVALID_REQUEST).
"""

from odradek.broker.context import RequestContext
from odradek.core.slices import Steps
from odradek.metadata.described_configs import describe_configs
from odradek.protocol.generated.describe_configs import DescribeConfigsRequest
from odradek.protocol.message import Message


def handle(context: RequestContext, request: DescribeConfigsRequest) -> Steps[Message]:
    return describe_configs(context.broker.config, context.broker.image, request)
