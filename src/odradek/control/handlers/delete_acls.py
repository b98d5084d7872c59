"""DeleteAcls (key 31), versions 1-3: remove the ACLs that match filters.

v2  flexible.  v3  users as resources.

Not implemented: an authorizer. As in Kafka without one each filter is refused with
SECURITY_DISABLED.
"""

from odradek.control.context import ControlContext
from odradek.core.errors import ErrorCode
from odradek.protocol.generated.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


def handle(_context: ControlContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    refused = DeleteAclsFilterResult(
        error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured."
    )
    return DeleteAclsResponse(filter_results=[refused for _ in request.filters])
