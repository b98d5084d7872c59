"""AlterPartition (key 56), versions 2-3: leaders propose new ISRs.

v3  the ISR with broker epochs (KIP-903).  Answered when the metadata log has committed it.
"""

from odradek.control.context import ControlContext
from odradek.protocol.generated.alter_partition import AlterPartitionRequest


def handle(context: ControlContext, request: AlterPartitionRequest) -> None:
    context.change(lambda controller: controller.alter_partition_in_steps(request))
