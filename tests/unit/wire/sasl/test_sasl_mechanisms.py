"""What a client says to prove who it is, by the examples of the RFCs; and what it does not take."""

import base64
import hashlib
import hmac

import pytest

from odradek.client.errors import AuthenticationError
from odradek.wire.sasl.mechanisms import OauthBearer, Plain
from odradek.wire.sasl.scram import ITERATIONS_MAX, Scram

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = NONCE + "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SERVER_FIRST = f"r={SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def scram(**others: bool) -> Scram:
    return Scram("SCRAM-SHA-256", "user", "pencil", nonce=NONCE, **others)


def test_scram_says_what_rfc_7677_says() -> None:
    client = scram()
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    proof = b"dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert client.respond(SERVER_FIRST) == b"c=biws,r=%b,p=%b" % (SERVER_NONCE.encode(), proof)
    assert client.respond(SERVER_FINAL) is None


def test_scram_with_the_longer_hash_is_what_a_server_of_it_expects() -> None:
    client = Scram("SCRAM-SHA-512", "user", "pencil", nonce="mine")
    salt = b"\x00salt\xff"
    server_first = f"r=mineyours,s={base64.b64encode(salt).decode()},i=5000"
    final = client.respond(server_first.encode())
    assert final is not None
    without_proof, _, proof = final.decode().rpartition(",p=")
    spoken = f"n=user,r=mine,{server_first},{without_proof}".encode()
    # As a server has it: it keeps two keys, and no password.
    salted = hashlib.pbkdf2_hmac("sha512", b"pencil", salt, 5000)
    client_key = hmac.digest(salted, b"Client Key", "sha512")
    stored_key = hashlib.sha512(client_key).digest()
    server_key = hmac.digest(salted, b"Server Key", "sha512")
    signature = hmac.digest(stored_key, spoken, "sha512")
    shown = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
    assert hashlib.sha512(shown).digest() == stored_key
    verifier = base64.b64encode(hmac.digest(server_key, spoken, "sha512"))
    assert client.respond(b"v=" + verifier) is None


def test_names_with_signs_of_the_protocol_are_escaped_and_tokens_are_told() -> None:
    client = Scram("SCRAM-SHA-256", "a=b,c", "x", nonce="n", is_delegation_token=True)
    assert client.first() == b"n,,n=a=3Db=2Cc,r=n,tokenauth=true"


@pytest.mark.parametrize(
    ("server_first", "problem"),
    [
        (b"", "makes no sense"),
        (b"m=ext," + SERVER_FIRST, "makes no sense"),
        (SERVER_FIRST.replace(NONCE.encode(), b"somebody-elses"), "nonce"),
        (SERVER_FIRST.replace(SERVER_NONCE.encode(), NONCE.encode()), "nonce"),
        (SERVER_FIRST.replace(b"4096", b"4095"), "iterations"),
        (SERVER_FIRST.replace(b"4096", b"%d" % (ITERATIONS_MAX + 1)), "iterations"),
        (SERVER_FIRST.replace(b"W22ZaJ0SNY7soEsUEjb6gQ==", b"W22"), "base64"),
        (b"\xff\xfe", "makes no sense"),
    ],
)
def test_a_server_that_asks_for_something_else_is_not_answered(
    server_first: bytes, problem: str
) -> None:
    with pytest.raises(AuthenticationError, match=problem):
        scram().respond(server_first)


@pytest.mark.parametrize(
    ("server_final", "problem"),
    [
        (b"v=" + base64.b64encode(b"x" * 32), "does not know the password"),
        (b"e=invalid-proof", "invalid-proof"),
        (b"", "makes no sense"),
    ],
)
def test_a_server_that_cannot_prove_itself_is_not_believed(
    server_final: bytes, problem: str
) -> None:
    client = scram()
    client.respond(SERVER_FIRST)
    with pytest.raises(AuthenticationError, match=problem):
        client.respond(server_final)


def test_plain_is_a_name_and_a_password_between_zeros() -> None:
    assert Plain("tim", "tanstaaftanstaaf").first() == b"\0tim\0tanstaaftanstaaf"  # RFC 4616
    assert Plain("tim", "t").respond(b"") is None
    with pytest.raises(AuthenticationError):
        Plain("tim", "t").respond(b"more?")


def test_a_bearer_shows_its_token_and_hears_why_it_is_no_good() -> None:
    client = OauthBearer("vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==")
    assert (
        client.first() == b"n,,\x01auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==\x01\x01"
    )
    assert client.respond(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(AuthenticationError, match="invalid_token"):
        client.respond(b'{"status":"invalid_token"}')
    assert OauthBearer("good").respond(b"") is None


def test_what_is_no_token_is_not_sent() -> None:
    with pytest.raises(AuthenticationError) as told:
        OauthBearer("a\x01auth=Bearer b")
    assert "Bearer b" not in str(told.value)
