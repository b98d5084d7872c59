"""CreatePartitions (key 37), versions 0-3: add partitions to topics.

v2  flexible.  Answered when the metadata log has committed it.

Not implemented: throttling.
"""

from odradek.control.context import ControlContext
from odradek.protocol.generated.create_partitions import CreatePartitionsRequest


def handle(context: ControlContext, request: CreatePartitionsRequest) -> None:
    random = context.control.random
    context.change(lambda controller: controller.create_partitions_in_steps(request, random))
