"""ListPartitionReassignments (key 46), version 0: the moves of replicas that are under way.

Null topics mean all.  Answered by the active controller, when all that it has decided before is
committed.
"""

from odradek.control.context import ControlContext
from odradek.protocol.generated.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)


def handle(context: ControlContext, request: ListPartitionReassignmentsRequest) -> None:
    context.change(lambda controller: controller.list_partition_reassignments_in_steps(request))
