"""CreatePartitions (key 37), versions 0-3: add partitions to topics.

v2  flexible.  Answered when the metadata log has committed it.

Not implemented: throttling.
"""

from odradek.broker.context import PENDING, Answer, RequestContext
from odradek.protocol.generated.create_partitions import CreatePartitionsRequest


def handle(context: RequestContext, request: CreatePartitionsRequest) -> Answer:
    node = context.node
    node.change(
        lambda controller: controller.create_partitions(request, node.random), context.reply
    )
    return PENDING
