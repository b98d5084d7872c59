"""UnregisterBroker (key 64), version 0: forget a broker, whether it is alive or not.

A living one stops then, and is back when it is started again. Answered when the metadata log has
committed it.

Not implemented: throttling.
"""

from odradek.broker.context import Answer, RequestContext
from odradek.protocol.generated.unregister_broker import UnregisterBrokerRequest


def handle(context: RequestContext, request: UnregisterBrokerRequest) -> Answer:
    return context.broker.controller.forward(context, request)
