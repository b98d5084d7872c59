"""What a listener makes of a client's proof, by the example of RFC 7677, and of what is none."""

import base64

import pytest

from odradek.core.scram import ScramMechanism, keys_of, salted_password
from odradek.net.sasl.mechanisms import AuthenticationFailedError, Plain
from odradek.net.sasl.scram import Scram, ScramCredential
from odradek.wire.sasl.scram import Scram as ClientScram

SHA_256 = ScramMechanism.SCRAM_SHA_256
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
OWN_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
CLIENT_FIRST = b"n,,n=user,r=" + CLIENT_NONCE.encode()
PROOF = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
CLIENT_FINAL = f"c=biws,r={CLIENT_NONCE}{OWN_NONCE},p={PROOF}".encode()
SECRET = b"of this cluster"


def credential(mechanism: ScramMechanism, password: bytes = b"pencil") -> ScramCredential:
    keys = keys_of(mechanism, salted_password(mechanism, password, SALT, 4096))
    return ScramCredential(SALT, 4096, keys)


def find(mechanism: ScramMechanism, username: str) -> ScramCredential | None:
    return credential(mechanism) if username in ("user", "a=b,c") else None


def scram(mechanism: ScramMechanism = SHA_256) -> Scram:
    return Scram(mechanism, find, nonce=OWN_NONCE, unknown_user_secret=SECRET)


def test_scram_answers_what_rfc_7677_answers() -> None:
    server = scram()
    first = server.respond(CLIENT_FIRST)
    assert first.message == (
        f"r={CLIENT_NONCE}{OWN_NONCE},s={base64.b64encode(SALT).decode()},i=4096".encode()
    )
    assert first.username is None
    final = server.respond(CLIENT_FINAL)
    assert final.message == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert final.username == "user"


@pytest.mark.parametrize("mechanism", ScramMechanism)
@pytest.mark.parametrize("name", ["user", "a=b,c"])
def test_our_client_and_our_listener_understand_each_other(
    mechanism: ScramMechanism, name: str
) -> None:
    server = scram(mechanism)
    client = ClientScram(mechanism.mechanism_name, name, "pencil", nonce="mine")
    challenge = server.respond(client.first()).message
    final = client.respond(challenge)
    assert final is not None
    proceeding = server.respond(final)
    assert proceeding.username == name
    assert client.respond(proceeding.message) is None  # and the client believes the server


@pytest.mark.parametrize(
    "final",
    [
        CLIENT_FINAL.replace(PROOF[:4].encode(), b"AAAA"),  # another password
        CLIENT_FINAL.replace(b"c=biws", b"c=eSws"),  # another header than in the first message
        CLIENT_FINAL.replace(OWN_NONCE.encode(), b"mine"),  # a nonce that is not ours
        CLIENT_FINAL.replace(PROOF.encode(), b"AAAA"),  # too short
        CLIENT_FINAL.replace(PROOF.encode(), b"A"),  # not base64
        CLIENT_FINAL.partition(b",p=")[0],
        b"\xff",
        b"",
    ],
)
def test_what_is_no_proof_is_refused(final: bytes) -> None:
    server = scram()
    server.respond(CLIENT_FIRST)
    with pytest.raises(AuthenticationFailedError) as caught:
        server.respond(final)
    assert caught.value.shown is None


@pytest.mark.parametrize(
    "first",
    [
        b"y,,n=user,r=x",  # the client would bind to a channel
        b"p=tls-unique,,n=user,r=x",
        b"n,a=other,n=user,r=x",  # to act as another user
        b"n,,m=ext,n=user,r=x",  # a mandatory extension
        b"n,,n=us=41er,r=x",  # an escape that there is not
        b"n,,n=,r=x",
        b"n,,n=user,r=x,tokenauth=true",
        b"n,,n=user,r=",
        b"\xff",
        b"",
    ],
)
def test_a_first_message_that_is_none_is_refused(first: bytes) -> None:
    with pytest.raises(AuthenticationFailedError):
        scram().respond(first)


def test_an_unknown_user_looks_like_a_wrong_password() -> None:
    """It gets a salt, the same every time and on every broker, and is refused in the end."""
    messages = [scram().respond(b"n,,n=nobody,r=x").message for _ in range(2)]
    assert messages[0] == messages[1]
    other = scram().respond(b"n,,n=someone,r=x").message
    assert other.partition(b",s=")[2] != messages[0].partition(b",s=")[2]
    server = scram()
    client = ClientScram("SCRAM-SHA-256", "nobody", "pencil", nonce="mine")
    final = client.respond(server.respond(client.first()).message)
    assert final is not None
    with pytest.raises(AuthenticationFailedError, match="unknown user 'nobody'") as caught:
        server.respond(final)
    assert caught.value.shown is None


def test_plain_takes_the_right_password_only() -> None:
    plain = Plain({"ann": "secret"})
    assert plain.respond(b"\0ann\0secret").username == "ann"
    assert plain.respond(b"ann\0ann\0secret").username == "ann"
    refused = {
        b"\0ann\0wrong": "Invalid username or password",
        b"\0bob\0secret": "Invalid username or password",
        b"bob\0ann\0secret": "authorization id that is different from username",
    }
    for message, shown in refused.items():
        with pytest.raises(AuthenticationFailedError) as caught:
            plain.respond(message)
        assert shown in (caught.value.shown or "")


@pytest.mark.parametrize(
    "message", [b"", b"ann\0secret", b"\0\0secret", b"\0ann\0", b"\0a\0b\0c", b"\0\xff\0x"]
)
def test_plain_refuses_what_has_no_name_and_password(message: bytes) -> None:
    with pytest.raises(AuthenticationFailedError) as caught:
        Plain({"ann": "secret", "": ""}).respond(message)
    assert caught.value.shown is None


def test_no_reason_has_a_password_in_it() -> None:
    for message in (b"\0ann\0hunter2", b"\0bob\0hunter2", b"hunter2"):
        with pytest.raises(AuthenticationFailedError) as caught:
            Plain({"ann": "secret"}).respond(message)
        assert "hunter2" not in f"{caught.value}{caught.value.shown}"
    assert "stored" not in repr(credential(SHA_256))
