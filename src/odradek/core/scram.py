"""SCRAM credentials (RFC 5802): mechanisms, their limits, and keys from passwords. Pure.

Who stores ``stored_key`` and ``server_key`` can check a client without knowing its password. Who
knows the *salted* password can log in: it is as secret as the password itself.
"""

import hashlib
import hmac
from enum import IntEnum
from typing import Final, NamedTuple

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16_384


class ScramMechanism(IntEnum):
    """The numbers are Kafka's, on the wire and in the metadata log."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def mechanism_name(self) -> str:
        """The name in SASL, as in ``SCRAM-SHA-256``."""
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"


class ScramKeys(NamedTuple):
    """What a broker keeps of a password."""

    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return "ScramKeys([hidden])"


def salted_password(
    mechanism: ScramMechanism, password: bytes, salt: bytes, iterations: int
) -> bytes:
    """Return what stands for a password on its way to a broker; slow, by design."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password, salt, iterations)


def keys_of(mechanism: ScramMechanism, salted: bytes) -> ScramKeys:
    client_key = hmac.digest(salted, b"Client Key", mechanism.hash_name)
    stored_key = hashlib.new(mechanism.hash_name, client_key).digest()
    return ScramKeys(stored_key, hmac.digest(salted, b"Server Key", mechanism.hash_name))
