"""CreatePartitions (key 37), versions 0-3: add partitions to topics.

v2  flexible.  Answered when the metadata log has committed it.

Not implemented: throttling.
"""

from odradek.broker.context import Answer, RequestContext
from odradek.core.errors import ApiError
from odradek.protocol.generated.create_partitions import CreatePartitionsRequest
from odradek.protocol.refusals import refusal


def handle(context: RequestContext, request: CreatePartitionsRequest) -> Answer:
    try:
        if not request.validate_only:
            context.broker.refuse_if_full()
    except ApiError as error:
        return refusal(context.api, request, error)
    return context.broker.controller.forward(context, request)
