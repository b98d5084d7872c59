"""CreateAcls (key 30), versions 1-3: add ACLs.

v2  flexible.  v3  users as resources.

Not implemented: an authorizer. As in Kafka without one the controller refuses with
SECURITY_DISABLED.
"""

from odradek.broker.context import Answer, RequestContext
from odradek.protocol.generated.create_acls import CreateAclsRequest


def handle(context: RequestContext, request: CreateAclsRequest) -> Answer:
    return context.broker.controller.forward(context, request)
