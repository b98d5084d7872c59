"""SaslHandshake (key 17), versions 0-1: choose a SASL mechanism.

v1  tokens come in SaslAuthenticate requests instead of bare.

On a listener with SASL the exchange comes before any handler (``odradek.net.sasl``). Requests that
get here come after it, or on a listener without SASL.
"""

from odradek.control.context import ControlContext
from odradek.core.errors import ErrorCode
from odradek.protocol.generated.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(_context: ControlContext, _request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
