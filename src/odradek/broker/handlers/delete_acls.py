"""DeleteAcls (key 31), versions 1-3: remove the ACLs that match filters.

v2  flexible.  v3  users as resources.

Not implemented: an authorizer. As in Kafka without one the controller refuses with
SECURITY_DISABLED.
"""

from odradek.broker.context import Answer, RequestContext
from odradek.protocol.generated.delete_acls import DeleteAclsRequest


def handle(context: RequestContext, request: DeleteAclsRequest) -> Answer:
    return context.broker.controller.forward(context, request)
