"""CreateTopics (key 19), versions 2-7: create topics.

v4  partition count and replication factor -1 mean the controller's defaults.  v5  flexible; the
answer has the topic's configs.  v7  topic ids.  Answered when the metadata log has committed it.

Not implemented: throttling.
"""

from odradek.control.context import ControlContext
from odradek.protocol.generated.create_topics import CreateTopicsRequest


def handle(context: ControlContext, request: CreateTopicsRequest) -> None:
    random = context.control.random
    context.change(lambda controller: controller.create_topics_in_steps(request, random))
