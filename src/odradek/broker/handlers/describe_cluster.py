"""DescribeCluster (key 60), versions 0-2: cluster id, controller and brokers.

v1  endpoint type (1 brokers, 2 controllers).  v2  fenced brokers on request.

Not implemented: controllers' endpoints. A broker's listener refuses them as Kafka's does.
"""

from typing import Final

from odradek.broker.context import Answer, RequestContext
from odradek.core.errors import ErrorCode
from odradek.metadata.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED_FOR
from odradek.protocol.generated.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS: Final = 1
CONTROLLERS: Final = 2


def handle(context: RequestContext, request: DescribeClusterRequest) -> Answer:
    if request.endpoint_type == CONTROLLERS:
        problem = "The request was sent to an endpoint of type BROKER, "
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message=f"{problem}but we wanted an endpoint of type CONTROLLER",
        )
    if request.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"Unsupported endpoint type {request.endpoint_type}",
        )
    brokers = []
    for broker_id, broker in sorted(context.broker.image.brokers.items()):
        endpoint = broker.endpoints.get(context.listener)
        if endpoint is None or (broker.fenced and not request.include_fenced_brokers):
            continue
        brokers.append(
            DescribeClusterBroker(
                broker_id=broker_id,
                host=endpoint.host,
                port=endpoint.port,
                rack=broker.rack,
                is_fenced=broker.fenced,
            )
        )
    alive = [each.broker_id for each in brokers if not each.is_fenced]
    wants_operations = request.include_cluster_authorized_operations
    return DescribeClusterResponse(
        cluster_id=context.broker.cluster_id,
        controller_id=context.broker.choose_controller(alive),
        brokers=brokers,
        cluster_authorized_operations=CLUSTER_OPERATIONS if wants_operations else NOT_ASKED_FOR,
    )
