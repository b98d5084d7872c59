"""DescribeCluster (key 60), versions 0-2: cluster id, controller and brokers.

v1  endpoint type (1 brokers, 2 controllers).  v2  fenced brokers on request.

Not implemented: authorized operations; controllers' endpoints (UNSUPPORTED_ENDPOINT_TYPE).
"""

from odradek.broker.context import Answer, RequestContext
from odradek.core.errors import ErrorCode
from odradek.protocol.generated.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS = 1


def handle(context: RequestContext, request: DescribeClusterRequest) -> Answer:
    if request.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="this node answers for brokers",
            endpoint_type=request.endpoint_type,
        )
    brokers = []
    for broker_id, broker in sorted(context.node.image.brokers.items()):
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
    return DescribeClusterResponse(
        cluster_id=context.node.cluster_id,
        controller_id=context.node.node_id,
        brokers=brokers,
    )
