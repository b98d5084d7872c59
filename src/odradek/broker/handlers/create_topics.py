"""CreateTopics (key 19), versions 2-7: create topics.

v4  partition count and replication factor -1 mean the broker's defaults.  v5  flexible; the answer
has the topic's configs.  v7  topic ids.  Answered when the metadata log has committed it.

Not implemented: throttling.
"""

from odradek.broker.context import Answer, RequestContext
from odradek.core.errors import ApiError
from odradek.protocol.generated.create_topics import CreateTopicsRequest
from odradek.protocol.refusals import refusal


def handle(context: RequestContext, request: CreateTopicsRequest) -> Answer:
    try:
        if not request.validate_only:
            context.broker.refuse_if_full()
    except ApiError as error:
        return refusal(context.api, request, error)
    return context.broker.controller.forward(context, request)
