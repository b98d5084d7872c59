"""The exchange with a broker: SaslHandshake, then SaslAuthenticate until both sides have enough.

Brokers before 1.0 take bare tokens after the handshake (its version 0): not supported.
"""

from collections.abc import Awaitable
from typing import Final, Protocol, TypeVar

from odradek.core.errors import ErrorCode
from odradek.protocol.generated.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from odradek.protocol.generated.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from odradek.protocol.message import Message
from odradek.wire.errors import AuthenticationError, BrokerError, UnsupportedError
from odradek.wire.sasl.login import Login

HANDSHAKE_VERSION: Final = 1
R_co = TypeVar("R_co", bound=Message, covariant=True)


class Ask(Protocol):
    """Sends a request and returns its answer."""

    def __call__(self, request: Message, response: type[R_co], /) -> Awaitable[R_co]: ...


async def authenticate(ask: Ask, login: Login) -> int:
    """Log in, or log in again; return for how many milliseconds that is good, 0 for ever.

    Raises:
        AuthenticationError: The broker refuses, or cannot prove that it is who it should be.
        UnsupportedError: The broker knows no SASL.
    """
    mechanism = await login.begin()
    handshake = await ask(
        SaslHandshakeRequest(mechanism=login.mechanism),
        SaslHandshakeResponse,
    )
    _check_handshake(handshake, login)
    token: bytes | None = mechanism.first()
    lifetime_ms = 0
    while token is not None:
        answer = await ask(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse)
        if answer.error_code:
            code = BrokerError(answer.error_code).code
            raise AuthenticationError(f"{login!r}: {answer.error_message or code.name}")
        lifetime_ms = answer.session_lifetime_ms
        token = mechanism.respond(answer.auth_bytes)
    return lifetime_ms


def _check_handshake(handshake: SaslHandshakeResponse, login: Login) -> None:
    code = handshake.error_code
    if code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        known = ", ".join(handshake.mechanisms) or "none"
        raise AuthenticationError(f"the broker does not know {login.mechanism}, but {known}")
    if code == ErrorCode.ILLEGAL_SASL_STATE:
        raise UnsupportedError("this listener wants no SASL: use PLAINTEXT or SSL")
    if code:
        raise AuthenticationError(f"{login!r}: {BrokerError(code).code.name}")
