"""CreateTopics (key 19), versions 2-7: create topics.

v4  partition count and replication factor -1 mean the broker's defaults.  v5  flexible; the answer
has the topic's configs.  v7  topic ids.  Answered when the metadata log has committed it.

Not implemented: throttling.
"""

from odradek.broker.context import PENDING, Answer, RequestContext
from odradek.protocol.generated.create_topics import CreateTopicsRequest


def handle(context: RequestContext, request: CreateTopicsRequest) -> Answer:
    node = context.node
    node.change(lambda controller: controller.create_topics(request, node.random), context.reply)
    return PENDING
