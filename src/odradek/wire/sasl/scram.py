"""SCRAM (RFC 5802, RFC 7677), the client's side, without channel binding. Pure.

The password never goes over the wire, and the broker has to show in the end that it knew it as
well: one that does not is not believed. As with Kafka's own client, names and passwords are used
as they are (no SASLprep).
"""

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from typing import Final

from odradek.wire.errors import AuthenticationError

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 1_000_000
"""Kafka itself stops at 16,384. A broker that asks for more than this wants our time."""

_HEADER: Final = "n,,"
_SERVER_FIRST: Final = re.compile(
    r"(?:m=[^,]*,)?r=([\x21-\x2b\x2d-\x7e]+),s=([A-Za-z0-9+/=]+),i=([1-9][0-9]{0,9})(?:,.*)?"
)
_SERVER_FINAL: Final = re.compile(r"(?:e=([^,]*)|v=([A-Za-z0-9+/=]+))(?:,.*)?")


class Scram:
    def __init__(
        self,
        mechanism: str,
        username: str,
        password: str,
        *,
        nonce: str,
        is_delegation_token: bool = False,
    ) -> None:
        """``nonce`` is new for every exchange; a delegation token is a name with its HMAC."""
        self._name = mechanism
        self._hash = HASHES[mechanism]
        self._password = password.encode()
        self._nonce = nonce
        escaped = username.replace("=", "=3D").replace(",", "=2C")
        extension = ",tokenauth=true" if is_delegation_token else ""
        self._client_first = f"n={escaped},r={nonce}{extension}"
        self._server_signature: bytes | None = None

    def first(self) -> bytes:
        return (_HEADER + self._client_first).encode()

    def respond(self, challenge: bytes) -> bytes | None:
        text = challenge.decode(errors="replace")
        if self._server_signature is None:
            return self._prove(text)
        self._check_server(text)
        return None

    def _prove(self, server_first: str) -> bytes:
        match = _SERVER_FIRST.fullmatch(server_first)
        if match is None or server_first.startswith("m="):
            raise AuthenticationError(f"{self._name}: the broker's first message makes no sense")
        nonce, salt, iterations = match[1], _decoded(match[2]), int(match[3])
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise AuthenticationError(f"{self._name}: the broker's nonce does not go on from ours")
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            limits = f"{ITERATIONS_MIN} to {ITERATIONS_MAX}"
            raise AuthenticationError(f"{self._name}: {iterations} iterations are not {limits}")
        final = f"c={b64encode(_HEADER.encode()).decode()},r={nonce}"
        spoken = ",".join([self._client_first, server_first, final]).encode()
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, iterations)
        client_key = self._hmac(salted, b"Client Key")
        stored_key = hashlib.new(self._hash, client_key).digest()
        signature = self._hmac(stored_key, spoken)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), spoken)
        return f"{final},p={b64encode(proof).decode()}".encode()

    def _check_server(self, server_final: str) -> None:
        match = _SERVER_FINAL.fullmatch(server_final)
        if match is None:
            raise AuthenticationError(f"{self._name}: the broker's last message makes no sense")
        if match[1] is not None:
            raise AuthenticationError(f"{self._name}: the broker says {match[1]!r}")
        assert self._server_signature is not None
        if not hmac.compare_digest(_decoded(match[2]), self._server_signature):
            raise AuthenticationError(
                f"{self._name}: the broker does not know the password itself: it may be another's"
            )

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError as error:
        raise AuthenticationError("SCRAM: the broker sent what is no base64") from error
