"""ElectLeaders (key 43), versions 0-2: elect preferred leaders, or any where there is none.

v1  unclean elections, top-level error.  v2  flexible.  Null topics mean all partitions.

Not implemented: throttling.
"""

from odradek.control.context import ControlContext
from odradek.protocol.generated.elect_leaders import ElectLeadersRequest


def handle(context: ControlContext, request: ElectLeadersRequest) -> None:
    context.change(lambda controller: controller.elect_leaders_in_steps(request))
