"""DescribeQuorum (key 55), versions 0-2: who votes on the metadata log, and how far each has read.

Only the leader knows it, so the request is forwarded. What it answers, and in which version, is in
``odradek.quorum.quorum_description``.
"""

from odradek.broker.context import Answer, RequestContext
from odradek.protocol.generated.describe_quorum import DescribeQuorumRequest


def handle(context: RequestContext, request: DescribeQuorumRequest) -> Answer:
    return context.broker.controller.forward(context, request)
