"""UnregisterBroker (key 64), version 0: forget a broker for good, alive or not.

A living one is answered STALE_BROKER_EPOCH to its next heartbeat, and comes back only by a restart.
"""

from odradek.control.context import ControlContext
from odradek.protocol.generated.unregister_broker import UnregisterBrokerRequest


def handle(context: ControlContext, request: UnregisterBrokerRequest) -> None:
    context.change(lambda controller: controller.unregister_broker_in_steps(request.broker_id))
