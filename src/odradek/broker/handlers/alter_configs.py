"""AlterConfigs (key 33), versions 0-2: replace all that is set for a resource.

v2  flexible.  Deprecated since KIP-339, because what a client does not know of is lost; for this
reason a request for all brokers must name ``min.insync.replicas`` while ELR is on. Answered when
the metadata log has committed it.

Not implemented: throttling.
"""

from odradek.broker.context import Answer, RequestContext
from odradek.protocol.generated.alter_configs import AlterConfigsRequest


def handle(context: RequestContext, request: AlterConfigsRequest) -> Answer:
    return context.broker.controller.forward(context, request)
