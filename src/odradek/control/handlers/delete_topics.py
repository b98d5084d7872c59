"""DeleteTopics (key 20), versions 1-6: delete topics by name or, from v6 on, by id.

v4  flexible.  v5  error messages.  Answered when the metadata log has committed it.

Not implemented: throttling.
"""

from odradek.control.context import ControlContext
from odradek.core.errors import ApiError, ErrorCode
from odradek.protocol.generated.delete_topics import DeleteTopicsRequest


def handle(context: ControlContext, request: DeleteTopicsRequest) -> None:
    if not context.control.config.delete_topic_enable:
        # A client of before v3 does not know the code that says it best.
        if context.caller.version < 3:
            problem = "This version does not support topic deletion."
            raise ApiError(ErrorCode.INVALID_REQUEST, problem)
        raise ApiError(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
    context.change(lambda controller: controller.delete_topics_in_steps(request))
