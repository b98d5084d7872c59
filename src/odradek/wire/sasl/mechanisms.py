"""Mechanisms of one message: PLAIN (RFC 4616) and OAUTHBEARER (RFC 7628). Pure.

A mechanism is good for one exchange: ``first`` gives what is sent, ``respond`` what to answer to
what came back, None when all is said.
"""

import re
from typing import Final, Protocol

from odradek.wire.errors import AuthenticationError

_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_DETAILS_CHARACTERS_MAX: Final = 500


class Mechanism(Protocol):
    def first(self) -> bytes:
        """Return what the client begins with."""
        ...

    def respond(self, challenge: bytes) -> bytes | None:
        """Return the answer to what the broker said; None: the exchange is over.

        Raises:
            AuthenticationError: The broker is not who it should be, or talks nonsense.
        """
        ...


class Plain:
    def __init__(self, username: str, password: str) -> None:
        self._token = b"\0".join([b"", username.encode(), password.encode()])

    def first(self) -> bytes:
        return self._token

    def respond(self, challenge: bytes) -> bytes | None:
        if challenge:
            raise AuthenticationError("PLAIN: the broker asks for more, which it never does")
        return None


class OauthBearer:
    def __init__(self, token: str) -> None:
        if not _TOKEN.fullmatch(token):
            raise AuthenticationError("OAUTHBEARER: what should be a token is none")
        self._token = token
        self._is_refused = False

    def first(self) -> bytes:
        return f"n,,\x01auth=Bearer {self._token}\x01\x01".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        if not challenge:
            return None
        if self._is_refused:
            details = challenge.decode(errors="replace")[:_DETAILS_CHARACTERS_MAX]
            raise AuthenticationError(f"OAUTHBEARER: the broker refuses the token: {details}")
        # What is wrong comes as a challenge; only after this answer to it the broker says no.
        self._is_refused = True
        return b"\x01"
