"""DescribeAcls (key 29), versions 1-3: which ACLs there are.

v2  flexible.  v3  users as resources.

Not implemented: an authorizer. As in Kafka without one the answer is SECURITY_DISABLED; ACLs that a
Kafka wrote stay in the metadata.
"""

from odradek.control.context import ControlContext
from odradek.core.errors import ErrorCode
from odradek.protocol.generated.describe_acls import DescribeAclsRequest, DescribeAclsResponse


def handle(_context: ControlContext, _request: DescribeAclsRequest) -> DescribeAclsResponse:
    return DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED,
        error_message="No Authorizer is configured on the broker",
    )
