"""BrokerHeartbeat (key 63), versions 0-2: a broker lives, and how far it has applied the log.

v1  offline log directories.  v2  cordoned ones.  The session is renewed at arrival, whatever work
is queued before the rest of the request (KAFKA-15019).
"""

from odradek.control.context import ControlContext
from odradek.protocol.generated.broker_heartbeat import BrokerHeartbeatRequest


def handle(context: ControlContext, request: BrokerHeartbeatRequest) -> None:
    control = context.control
    control.host.touch_session(request.broker_id, request.broker_epoch)
    context.change(
        lambda controller: controller.broker_heartbeat_in_steps(
            request, control.clock.monotonic_ms(), control.host.next_offset
        )
    )
