"""AlterPartitionReassignments (key 45), versions 0-1: move replicas to other brokers, or cancel.

v1  may refuse a change of the replication factor (KIP-860).  Answered when the metadata log has
committed it.

Not implemented: throttling.
"""

from odradek.control.context import ControlContext
from odradek.protocol.generated.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
)


def handle(context: ControlContext, request: AlterPartitionReassignmentsRequest) -> None:
    context.change(lambda controller: controller.alter_partition_reassignments_in_steps(request))
