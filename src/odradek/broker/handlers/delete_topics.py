"""DeleteTopics (key 20), versions 1-6: delete topics by name or, from v6 on, by id.

v4  flexible.  v5  error messages.  Answered when the metadata log has committed it; the files go
``file.delete.delay.ms`` later.

Not implemented: throttling.
"""

from odradek.broker.context import Answer, RequestContext
from odradek.core.errors import ErrorCode
from odradek.protocol.generated.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)


def handle(context: RequestContext, request: DeleteTopicsRequest) -> Answer:
    if not context.broker.config.delete_topic_enable:
        return _disabled(context, request)
    return context.broker.controller.forward(context, request)


def _disabled(context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    # A client of before v3 does not know the code that says it best.
    code = ErrorCode.INVALID_REQUEST if context.version < 3 else ErrorCode.TOPIC_DELETION_DISABLED
    names = [*request.topic_names, *(topic.name for topic in request.topics)]
    return DeleteTopicsResponse(
        responses=[DeletableTopicResult(name=name, error_code=code) for name in names]
    )
