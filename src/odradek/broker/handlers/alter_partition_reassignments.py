"""AlterPartitionReassignments (key 45), versions 0-1: move replicas to other brokers, or cancel.

v1  may refuse a change of the replication factor (KIP-860).  Answered when the metadata log has
committed it.

Not implemented: throttling.
"""

from odradek.broker.context import Answer, RequestContext
from odradek.protocol.generated.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
)


def handle(context: RequestContext, request: AlterPartitionReassignmentsRequest) -> Answer:
    return context.broker.controller.forward(context, request)
