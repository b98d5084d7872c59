"""Keys from passwords, by the example of RFC 7677 (section 3): user "user", password "pencil"."""

import hmac
from base64 import b64decode

from odradek.core.scram import ScramMechanism, keys_of, salted_password

SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
NONCE = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SPOKEN = ",".join(
    [
        "n=user,r=rOprNGfwEbeRWgbNEkqO",
        f"r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        f"c=biws,r={NONCE}",
    ]
).encode()
SERVER_SIGNATURE = b64decode("6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
CLIENT_PROOF = b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")


def test_the_example_of_the_standard_is_believed() -> None:
    salted = salted_password(ScramMechanism.SCRAM_SHA_256, b"pencil", SALT, 4096)
    keys = keys_of(ScramMechanism.SCRAM_SHA_256, salted)
    assert hmac.digest(keys.server_key, SPOKEN, "sha256") == SERVER_SIGNATURE
    signature = hmac.digest(keys.stored_key, SPOKEN, "sha256")
    client_key = bytes(a ^ b for a, b in zip(CLIENT_PROOF, signature, strict=True))
    assert client_key == hmac.digest(salted, b"Client Key", "sha256")


def test_mechanisms_have_their_names_in_sasl() -> None:
    names = [each.mechanism_name for each in ScramMechanism]
    assert names == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
