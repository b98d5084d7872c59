"""ListPartitionReassignments (key 46), version 0: the moves of replicas that are under way.

Null topics mean all.  Answered by the active controller.
"""

from odradek.broker.context import Answer, RequestContext
from odradek.protocol.generated.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)


def handle(context: RequestContext, request: ListPartitionReassignmentsRequest) -> Answer:
    return context.broker.controller.forward(context, request)
