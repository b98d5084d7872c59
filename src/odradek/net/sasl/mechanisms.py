"""What the server's side of a SASL mechanism is, and PLAIN (RFC 4616). Pure.

A mechanism is good for one exchange: it gets the client's messages, and returns what to send back
until it knows who the client is.
"""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

PLAIN: Final = "PLAIN"
_PLAIN_PARTS: Final = 3
_WRONG_PASSWORD: Final = "Authentication failed: Invalid username or password"  # noqa: S105
_OTHER_AUTHORIZATION_ID: Final = (
    "Authentication failed: Client requested an authorization id that is different from username"
)


class Proceeding(NamedTuple):
    """The server's next message."""

    message: bytes
    username: str | None = None
    """Who the client is, when the exchange is over."""


class AuthenticationFailedError(Exception):
    """The client is refused: ``str()`` is for the log, ``shown`` for the client.

    Without ``shown`` the client gets a general text. It must not learn more than that something is
    wrong, such as whether a user exists.
    """

    def __init__(self, reason: str, shown: str | None = None) -> None:
        super().__init__(reason)
        self.shown = shown


class Mechanism(Protocol):
    def respond(self, message: bytes) -> Proceeding:
        """Take the client's next message.

        Raises:
            AuthenticationFailedError: The client is not who it says, or the message is malformed.
        """
        ...


class Plain:
    """Name and password in one message, as they are: for listeners with TLS."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords

    def respond(self, message: bytes) -> Proceeding:
        try:
            parts = message.decode().split("\0")
        except UnicodeDecodeError:
            raise AuthenticationFailedError("the message is not UTF-8") from None
        if len(parts) != _PLAIN_PARTS:
            raise AuthenticationFailedError(f"the message has {len(parts)} parts, not 3")
        authorization_id, username, password = parts
        if not username or not password:
            raise AuthenticationFailedError("the name or the password is empty")
        known = self._passwords.get(username)
        # As long for an unknown user as for a wrong password, whatever the length of either.
        is_right = hmac.compare_digest(_digest(password), _digest(known or ""))
        if known is None or not is_right:
            reason = f"unknown user {username!r}" if known is None else f"{username!r}: password"
            raise AuthenticationFailedError(reason, _WRONG_PASSWORD)
        if authorization_id not in ("", username):
            reason = f"{username!r} asks to act as {authorization_id!r}"
            raise AuthenticationFailedError(reason, _OTHER_AUTHORIZATION_ID)
        return Proceeding(b"", username)


def _digest(password: str) -> bytes:
    return hashlib.sha256(password.encode()).digest()
