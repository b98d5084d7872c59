"""BrokerRegistration (key 62), versions 0-4: a broker starts and gets its epoch.

v2  log directories.  v3  the epoch of the broker's last life.  v4  cordoned log directories.
"""

from odradek.control.context import ControlContext
from odradek.protocol.generated.broker_registration import BrokerRegistrationRequest


def handle(context: ControlContext, request: BrokerRegistrationRequest) -> None:
    control = context.control
    context.change(
        lambda controller: controller.register_broker_in_steps(
            request,
            control.clock.monotonic_ms(),
            control.host.next_offset,
            control.quorum.kraft_version,
        )
    )
