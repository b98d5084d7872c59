"""Frames of a client that authenticates, one after another, and what becomes of each."""

from typing import TypeVar

import pytest

from odradek.core.errors import CorruptionError, ErrorCode
from odradek.net.gate import Verdict
from odradek.net.sasl.exchange import SaslExchange, SaslSettings
from odradek.net.sasl.mechanisms import Plain
from odradek.net.settings import ANONYMOUS, ConnectionInfo
from odradek.protocol.apis import api_for_key
from odradek.protocol.framing import frame_request, open_response
from odradek.protocol.generated.api_versions import ApiVersionsRequest
from odradek.protocol.generated.metadata import MetadataRequest
from odradek.protocol.generated.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from odradek.protocol.generated.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from odradek.protocol.message import Message

M = TypeVar("M", bound=Message)
ANN = b"\0ann\0secret"
BOB = b"\0bob\0secret"
CORRELATION_ID = 7
DELAY_MS = 100


class Peer:
    """A client at a gate, and a clock."""

    def __init__(self, lifetime_ms: int = 0) -> None:
        self.now_ms = 5_000
        self.info = ConnectionInfo("SASL", "SASL_PLAINTEXT", "127.0.0.1", 1, "id")
        users = {"ann": "secret", "bob": "secret"}
        settings = SaslSettings(
            mechanisms={"PLAIN": lambda: Plain(users), "OTHER": lambda: Plain(users)},
            frame_bytes_max=1_000,
            failure_delay_ms=DELAY_MS,
            session_ms_max={"PLAIN": lifetime_ms, "OTHER": lifetime_ms},
        )
        self.gate = SaslExchange(self.info, settings, lambda: self.now_ms)

    def send(self, request: Message, version: int) -> Verdict | None:
        parts = frame_request(request, api_for_key(request.ID), version, CORRELATION_ID, "c")
        return self.gate.judge(memoryview(b"".join(parts))[4:])

    def ask(self, request: Message, version: int, response: type[M]) -> M:
        verdict = self.send(request, version)
        assert verdict is not None
        assert verdict.reply is not None
        frame = memoryview(b"".join(verdict.reply))[4:]
        correlation_id, body = open_response(frame, api_for_key(request.ID), version)
        assert correlation_id == CORRELATION_ID
        return response.decode(body, version)

    def choose(self, mechanism: str = "PLAIN", version: int = 1) -> SaslHandshakeResponse:
        return self.ask(SaslHandshakeRequest(mechanism=mechanism), version, SaslHandshakeResponse)

    def prove(self, token: bytes = ANN, version: int = 2) -> SaslAuthenticateResponse:
        request = SaslAuthenticateRequest(auth_bytes=token)
        return self.ask(request, version, SaslAuthenticateResponse)

    def frame_bytes_max(self) -> int | None:
        return self.gate.frame_bytes_max

    def passes(self, request: Message | None = None) -> bool:
        return self.send(request or MetadataRequest(), 12) is None


def test_a_client_asks_for_versions_chooses_proves_and_is_let_in() -> None:
    peer = Peer()
    assert peer.frame_bytes_max() == 1_000
    assert peer.send(ApiVersionsRequest(), 3) is None
    assert peer.choose().error_code == 0
    assert peer.info.principal == ANONYMOUS
    answer = peer.prove()
    assert (answer.error_code, answer.session_lifetime_ms) == (0, 0)
    assert peer.info.principal == "User:ann"
    assert peer.frame_bytes_max() is None
    assert peer.passes()
    # What comes later is for handlers, which say that it is out of place.
    assert peer.send(SaslHandshakeRequest(mechanism="PLAIN"), 1) is None
    assert peer.send(SaslAuthenticateRequest(auth_bytes=BOB), 2) is None


def test_a_client_of_old_sends_its_tokens_without_requests() -> None:
    peer = Peer()
    assert peer.choose(version=0).error_code == 0
    verdict = peer.gate.judge(memoryview(ANN))
    assert verdict == Verdict([b"\0\0\0\0", b""])
    assert peer.info.principal == "User:ann"
    assert peer.passes()


def test_a_wrong_password_is_answered_late_and_ends_the_connection() -> None:
    peer = Peer()
    peer.choose()
    verdict = peer.send(SaslAuthenticateRequest(auth_bytes=b"\0ann\0wrong"), 2)
    assert verdict is not None
    assert verdict.delay_ms == DELAY_MS
    assert verdict.refusal == "authentication failed: PLAIN: 'ann': password"
    peer = Peer()
    peer.choose()
    answer = peer.prove(b"\0ann\0wrong")
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == "Authentication failed: Invalid username or password"
    assert peer.info.principal == ANONYMOUS
    peer = Peer()
    peer.choose(version=0)
    bare = peer.gate.judge(memoryview(b"\0ann\0wrong"))
    assert bare is not None
    assert (bare.reply, bare.delay_ms) == (None, DELAY_MS)


def test_nonsense_gets_a_general_text() -> None:
    peer = Peer()
    peer.choose()
    assert peer.prove(b"nonsense").error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL "
        "mechanism PLAIN"
    )


def test_another_mechanism_is_refused_with_those_there_are() -> None:
    peer = Peer()
    answer = peer.choose("GSSAPI")
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == ["PLAIN", "OTHER"]
    verdict = Peer().send(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
    assert verdict is not None
    assert verdict.refusal is not None


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_anything_else_before_the_end_ends_the_connection(steps: int) -> None:
    peer = Peer()
    if steps > 0:
        peer.send(ApiVersionsRequest(), 3)
    if steps > 1:
        peer.choose()
    with pytest.raises(CorruptionError, match="Metadata where Sasl"):
        peer.passes()
    assert peer.info.principal == ANONYMOUS


def test_versions_are_told_once() -> None:
    peer = Peer()
    # From the future: answered with what there is, and then it may be asked again.
    assert peer.gate.judge(memoryview(bytes.fromhex("001203e700000007ffff00"))) is None
    assert peer.send(ApiVersionsRequest(), 3) is None
    with pytest.raises(CorruptionError, match="ApiVersions where SaslHandshake should come"):
        peer.send(ApiVersionsRequest(), 3)


def test_a_session_ends_unless_the_client_authenticates_again() -> None:
    peer = Peer(lifetime_ms=60_000)
    peer.choose()
    assert peer.prove().session_lifetime_ms == 60_000
    peer.now_ms += 59_999
    assert peer.passes()
    assert peer.choose().error_code == 0
    assert peer.frame_bytes_max() == 1_000
    assert peer.prove().session_lifetime_ms == 60_000
    peer.now_ms += 59_999
    assert peer.passes()
    peer.now_ms += 1
    for request in (MetadataRequest(), ApiVersionsRequest()):
        verdict = peer.send(request, 3)
        assert verdict is not None
        assert verdict.reply is None
        assert verdict.refusal is not None
    assert peer.choose().error_code == 0  # which may still begin


def test_a_second_time_is_the_same_client_by_the_same_mechanism() -> None:
    peer = Peer(lifetime_ms=60_000)
    peer.choose()
    peer.prove()
    peer.now_ms += 1_000
    peer.choose()
    answer = peer.prove(BOB)
    assert answer.error_message == (
        "Cannot change principals during re-authentication from User:ann to User:bob"
    )
    assert peer.info.principal == "User:ann"

    peer = Peer(lifetime_ms=60_000)
    peer.choose()
    peer.prove()
    peer.now_ms += 1_000
    assert peer.choose("OTHER").error_code == 0
    assert peer.prove().error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_second_time_within_a_second_does_not_count() -> None:
    peer = Peer(lifetime_ms=60_000)
    peer.choose()
    peer.prove()
    peer.now_ms += 999
    assert peer.send(SaslHandshakeRequest(mechanism="PLAIN"), 1) is None
    peer.now_ms += 1
    assert peer.choose().error_code == 0
    with pytest.raises(CorruptionError, match="Metadata where SaslAuthenticate"):
        peer.passes()
