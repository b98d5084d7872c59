"""AssignReplicasToDirs (key 73), version 0: in which log directories replicas lie (KIP-858)."""

from odradek.control.context import ControlContext
from odradek.protocol.generated.assign_replicas_to_dirs import AssignReplicasToDirsRequest


def handle(context: ControlContext, request: AssignReplicasToDirsRequest) -> None:
    context.change(lambda controller: controller.assign_replicas_to_dirs_in_steps(request))
