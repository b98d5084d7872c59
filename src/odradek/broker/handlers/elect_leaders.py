"""ElectLeaders (key 43), versions 0-2: elect preferred leaders, or any where there is none.

v1  unclean elections, top-level error.  v2  flexible.  Null topics mean all partitions, and then
only those that needed an election are answered for. Answered when the metadata log has committed
it.

Not implemented: throttling.
"""

from odradek.broker.context import Answer, RequestContext
from odradek.protocol.generated.elect_leaders import ElectLeadersRequest


def handle(context: RequestContext, request: ElectLeadersRequest) -> Answer:
    return context.broker.controller.forward(context, request)
