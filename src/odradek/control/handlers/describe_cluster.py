"""DescribeCluster (key 60), versions 0-2: cluster id, active controller, and all controllers.

v1  endpoint type: only 2, controllers, is known here (KIP-919).  v2  fenced brokers; there are none
among controllers.  Answered by every controller, from the committed image.
"""

from typing import Final

from odradek.control.context import ControlContext
from odradek.core.errors import ApiError, ErrorCode
from odradek.metadata.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED_FOR
from odradek.metadata.features import CONTROLLER_REGISTRATION_FROM
from odradek.protocol.generated.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

_BROKERS: Final = 1
_CONTROLLERS: Final = 2
_NO_CONTROLLER: Final = -1


def handle(context: ControlContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    _check_endpoint_type(context, request.endpoint_type)
    image, quorum = context.control.image, context.control.quorum
    if (image.metadata_version or 0) < CONTROLLER_REGISTRATION_FROM:
        problem = "Direct-to-controller communication is not supported with the current"
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"{problem} MetadataVersion.")
    controllers = []
    for controller_id, controller in sorted(image.controllers.items()):
        endpoint = controller.endpoints.get(context.caller.listener)
        if endpoint is not None:
            controllers.append(
                DescribeClusterBroker(
                    broker_id=controller_id, host=endpoint.host, port=endpoint.port, rack=None
                )
            )
    # A leader that has not registered yet could not be found by the client.
    leader_id = _NO_CONTROLLER if quorum.leader_id is None else quorum.leader_id
    is_known = any(each.broker_id == leader_id for each in controllers)
    wants_operations = request.include_cluster_authorized_operations
    return DescribeClusterResponse(
        endpoint_type=_CONTROLLERS,
        cluster_id=context.control.cluster_id,
        controller_id=leader_id if is_known else _NO_CONTROLLER,
        brokers=controllers,
        cluster_authorized_operations=CLUSTER_OPERATIONS if wants_operations else NOT_ASKED_FOR,
    )


def _check_endpoint_type(context: ControlContext, endpoint_type: int) -> None:
    if endpoint_type == _CONTROLLERS:
        return
    if endpoint_type == _BROKERS:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        problem = "The request was sent to an endpoint of type CONTROLLER, but we wanted an"
        problem += " endpoint of type BROKER"
    else:
        code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        problem = f"Unsupported endpoint type {endpoint_type}"
    if context.caller.version == 0:  # which has no endpoint types
        code = ErrorCode.INVALID_REQUEST
    raise ApiError(code, problem)
