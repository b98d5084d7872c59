"""SCRAM (RFC 5802, RFC 7677), the server's side, without channel binding. Pure.

The server keeps neither passwords nor what a client could log in with. Stricter than Kafka in two
points:

- A name that does not exist gets a salt all the same, always the same one, and is refused in the
  end, as for a wrong password. Kafka refuses it at once, and so tells which users exist.
- ``c=`` must repeat the header of the first message, as the RFC asks for.
"""

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable
from typing import Final, NamedTuple

from odradek.core.scram import ITERATIONS_MIN, ScramKeys, ScramMechanism
from odradek.net.sasl.mechanisms import AuthenticationFailedError, Proceeding

NONCE_BYTES: Final = 24
_FAKE_SALT_BYTES: Final = 20
_CLIENT_FIRST: Final = re.compile(
    r"(n,(?:a=([^,]*))?,)(n=([^,]+),r=([\x21-\x2b\x2d-\x7e]+)((?:,[A-Za-z]+=[^,]*)*))"
)
_CLIENT_FINAL: Final = re.compile(
    r"(c=([A-Za-z0-9+/=]+),r=([\x21-\x2b\x2d-\x7e]+)(?:,[A-Za-z]=[^,]*)*),p=([A-Za-z0-9+/=]+)"
)
_ESCAPE: Final = re.compile(r"=(2C|3D|.{0,2})", re.DOTALL)
_ESCAPED: Final = {"2C": ",", "3D": "="}
_BY_TOKEN: Final = ",tokenauth=true"  # noqa: S105


class ScramCredential(NamedTuple):
    """What the cluster keeps for a user and a mechanism."""

    salt: bytes
    iterations: int
    keys: ScramKeys

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"


FindCredential = Callable[[ScramMechanism, str], ScramCredential | None]


class _First(NamedTuple):
    """The client's first message, and what was answered."""

    header: str
    bare: str
    username: str
    server_first: str
    nonce: str
    credential: ScramCredential | None


class Scram:
    def __init__(
        self,
        mechanism: ScramMechanism,
        find: FindCredential,
        *,
        nonce: str,
        unknown_user_secret: bytes,
    ) -> None:
        """``nonce`` is new for every exchange.

        Every broker of a cluster needs the same ``unknown_user_secret``: it makes the salts of
        users that do not exist.
        """
        self._mechanism = mechanism
        self._find = find
        self._nonce = nonce
        self._secret = unknown_user_secret
        self._first: _First | None = None

    def respond(self, message: bytes) -> Proceeding:
        try:
            text = message.decode()
        except UnicodeDecodeError:
            raise AuthenticationFailedError("a message is not UTF-8") from None
        if self._first is None:
            self._first = self._begin(text)
            return Proceeding(self._first.server_first.encode())
        return self._check(self._first, text)

    def _begin(self, text: str) -> _First:
        match = _CLIENT_FIRST.fullmatch(text)
        if match is None:
            raise AuthenticationFailedError("the first message is malformed")
        header, authorization_id, bare, escaped_name, client_nonce, extensions = match.groups()
        username = _unescaped(escaped_name)
        if authorization_id and _unescaped(authorization_id) != username:
            raise AuthenticationFailedError(f"{username!r} asks to act as another user")
        if _BY_TOKEN in extensions.lower():
            raise AuthenticationFailedError("delegation tokens are not supported yet")
        credential = self._find(self._mechanism, username)
        salt, iterations = self._fake_salt(username), ITERATIONS_MIN
        if credential is not None:
            salt, iterations = credential.salt, credential.iterations
        nonce = client_nonce + self._nonce
        server_first = f"r={nonce},s={b64encode(salt).decode()},i={iterations}"
        return _First(header, bare, username, server_first, nonce, credential)

    def _fake_salt(self, username: str) -> bytes:
        text = f"{self._mechanism.mechanism_name} {username}".encode()
        return hmac.digest(self._secret, text, "sha256")[:_FAKE_SALT_BYTES]

    def _check(self, first: _First, text: str) -> Proceeding:
        match = _CLIENT_FINAL.fullmatch(text)
        if match is None:
            raise AuthenticationFailedError("the final message is malformed")
        without_proof, binding, nonce, proof = match.groups()
        if nonce != first.nonce:
            raise AuthenticationFailedError(f"{first.username!r}: the nonce is not ours")
        if _decoded(binding) != first.header.encode():
            raise AuthenticationFailedError(f"{first.username!r}: the channel binding differs")
        if first.credential is None:
            raise AuthenticationFailedError(f"unknown user {first.username!r}")
        keys, hash_name = first.credential.keys, self._mechanism.hash_name
        signed = f"{first.bare},{first.server_first},{without_proof}".encode()
        signature = hmac.digest(keys.stored_key, signed, hash_name)
        client_key = _xor(_decoded(proof), signature)
        stored_key = hashlib.new(hash_name, client_key).digest()
        if not hmac.compare_digest(stored_key, keys.stored_key):
            raise AuthenticationFailedError(f"{first.username!r}: password")
        server_signature = hmac.digest(keys.server_key, signed, hash_name)
        return Proceeding(b"v=" + b64encode(server_signature), first.username)


def _unescaped(name: str) -> str:
    def character(match: re.Match[str]) -> str:
        try:
            return _ESCAPED[match[1]]
        except KeyError:
            raise AuthenticationFailedError("an escape in the name is malformed") from None

    return _ESCAPE.sub(character, name)


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError):
        raise AuthenticationFailedError("a part of the message is not base64") from None


def _xor(one: bytes, other: bytes) -> bytes:
    if len(one) != len(other):
        raise AuthenticationFailedError("the proof has a wrong length")
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
