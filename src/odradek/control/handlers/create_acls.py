"""CreateAcls (key 30), versions 1-3: add ACLs.

v2  flexible.  v3  users as resources.

Not implemented: an authorizer. As in Kafka without one each ACL is refused with SECURITY_DISABLED.
"""

from odradek.control.context import ControlContext
from odradek.core.errors import ErrorCode
from odradek.protocol.generated.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)


def handle(_context: ControlContext, request: CreateAclsRequest) -> CreateAclsResponse:
    refused = AclCreationResult(
        error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured."
    )
    return CreateAclsResponse(results=[refused for _ in request.creations])
