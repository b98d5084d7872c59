"""SaslAuthenticate (key 36), versions 0-2: one message of a SASL exchange.

v1  how long the session lasts.  v2  flexible.

On a listener with SASL the exchange comes before any handler (``odradek.net.sasl``). Requests that
get here come after it, or on a listener without SASL.
"""

from odradek.control.context import ControlContext
from odradek.core.errors import ErrorCode
from odradek.protocol.generated.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)


def handle(_context: ControlContext, _request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
    )
