"""The order of requests on a listener that speaks SASL, for one connection.

    ApiVersions (once), SaslHandshake            choose a mechanism
    SaslAuthenticate …, or bare tokens           until the mechanism knows who the client is
    anything else                                 for the handler, as long as the session lasts
    SaslHandshake, SaslAuthenticate …            again, before the session ends (KIP-368)

Bare tokens, without a request header, come from clients that chose version 0 of SaslHandshake.

Before the end of the exchange a request for anything else ends the connection without an answer,
and frames are small. A client that is refused waits for the answer; guessing is slow that way. It
gets a general text unless the mechanism has one for it; the log has the reason.
"""

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Final, NamedTuple, cast

from odradek.core.errors import CorruptionError, ErrorCode
from odradek.net.gate import Verdict
from odradek.net.sasl.mechanisms import AuthenticationFailedError, Mechanism, Proceeding
from odradek.net.settings import ConnectionInfo
from odradek.protocol.apis import API_VERSIONS_KEY
from odradek.protocol.framing import Request, frame_response, open_request, response_frame
from odradek.protocol.generated.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from odradek.protocol.generated.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from odradek.protocol.message import Buffer, Message

REAUTHENTICATION_MS_MIN: Final = 1_000
"""A SaslHandshake sooner after the last exchange does not begin another one (Kafka's limit)."""
_SESSION_VERSION_MIN: Final = 1
_KEY_BYTES: Final = 2


class SaslSettings(NamedTuple):
    """What a listener expects; the same for all its connections."""

    mechanisms: Mapping[str, Callable[[], Mechanism]]
    """Each makes the mechanism of one exchange; in the order in which clients are told them."""
    frame_bytes_max: int
    """``sasl.server.max.receive.size``"""
    failure_delay_ms: int
    """``connection.failed.authentication.delay.ms``"""
    session_ms_max: Mapping[str, int]
    """``connections.max.reauth.ms`` by mechanism; none: a session has no end."""


class _State(Enum):
    CHOOSING = auto()
    BARE_TOKENS = auto()
    REQUESTS = auto()
    """Tokens in SaslAuthenticate requests."""
    DONE = auto()


class SaslExchange:
    """Implements ``Gate``."""

    __slots__ = (
        "_authenticated_as",
        "_began_ms",
        "_ends_ms",
        "_info",
        "_knows_versions",
        "_mechanism",
        "_name",
        "_name_before",
        "_now_ms",
        "_settings",
        "_state",
    )

    def __init__(
        self, info: ConnectionInfo, settings: SaslSettings, now_ms: Callable[[], int]
    ) -> None:
        """``now_ms`` is monotonic."""
        self._info = info
        self._settings = settings
        self._now_ms = now_ms
        self._state = _State.CHOOSING
        self._knows_versions = False
        self._name = self._name_before = ""
        self._mechanism: Mechanism | None = None
        self._authenticated_as: str | None = None
        self._began_ms = 0
        self._ends_ms: int | None = None

    @property
    def frame_bytes_max(self) -> int | None:
        return None if self._state is _State.DONE else self._settings.frame_bytes_max

    def judge(self, frame: memoryview) -> Verdict | None:
        match self._state:
            case _State.DONE:
                return self._judge_authenticated(frame)
            case _State.CHOOSING:
                return self._judge_choice(open_request(frame))
            case _State.REQUESTS:
                return self._judge_token(open_request(frame))
            case _State.BARE_TOKENS:
                return self._judge_bare_token(bytes(frame))

    # The choice of a mechanism.

    def _judge_choice(self, request: Request) -> Verdict | None:
        is_first = not self._knows_versions and self._authenticated_as is None
        if request.api.key == API_VERSIONS_KEY and is_first:
            # One from the future is answered with the versions there are; then it comes again.
            self._knows_versions = not request.is_unknown_api_versions
            return None
        if request.api.key != SaslHandshakeRequest.ID:
            raise CorruptionError(f"{request.api.name} where SaslHandshake should come")
        wanted = cast("SaslHandshakeRequest", request.decode()).mechanism
        mechanisms = self._settings.mechanisms
        answer = SaslHandshakeResponse(mechanisms=list(mechanisms))
        if wanted not in mechanisms:
            answer.error_code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            reason = f"SASL mechanism {wanted!r} is not enabled"
            return self._refuse(reason, _frame(request, answer))
        self._name, self._mechanism = wanted, mechanisms[wanted]()
        has_requests = request.version >= _SESSION_VERSION_MIN
        self._state = _State.REQUESTS if has_requests else _State.BARE_TOKENS
        return Verdict(_frame(request, answer))

    # Tokens.

    def _judge_token(self, request: Request) -> Verdict:
        if request.api.key != SaslAuthenticateRequest.ID:
            raise CorruptionError(f"{request.api.name} where SaslAuthenticate should come")
        token = cast("SaslAuthenticateRequest", request.decode()).auth_bytes
        try:
            proceeding = self._proceed(bytes(token))
        except AuthenticationFailedError as error:
            answer = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
                error_message=error.shown or self._general_text(),
            )
            return self._refuse(str(error), _frame(request, answer))
        answer = SaslAuthenticateResponse(auth_bytes=proceeding.message)
        if proceeding.username is not None:
            lifetime_ms = self._begin_session()
            if request.version >= _SESSION_VERSION_MIN:
                answer.session_lifetime_ms = lifetime_ms
        return Verdict(_frame(request, answer))

    def _judge_bare_token(self, token: bytes) -> Verdict:
        try:
            proceeding = self._proceed(token)
        except AuthenticationFailedError as error:
            return self._refuse(str(error), None)
        if proceeding.username is not None:
            self._begin_session()
        return Verdict(response_frame(proceeding.message))

    def _proceed(self, token: bytes) -> Proceeding:
        assert self._mechanism is not None
        if self._name_before not in ("", self._name):
            raise AuthenticationFailedError(
                f"the mechanism may not change from {self._name_before} to {self._name}"
            )
        proceeding = self._mechanism.respond(token)
        if proceeding.username is not None:
            self._take_principal(f"User:{proceeding.username}")
        return proceeding

    def _take_principal(self, principal: str) -> None:
        before = self._authenticated_as
        if before is not None and before != principal:
            text = f"Cannot change principals during re-authentication from {before} to {principal}"
            raise AuthenticationFailedError(text, text)
        self._authenticated_as = self._info.principal = principal

    def _begin_session(self) -> int:
        """Let requests through; return for how many milliseconds, 0 without an end."""
        self._state, self._mechanism = _State.DONE, None
        self._name_before = self._name
        lifetime_ms = self._settings.session_ms_max.get(self._name, 0)
        self._began_ms = self._now_ms()
        self._ends_ms = self._began_ms + lifetime_ms if lifetime_ms else None
        return lifetime_ms

    def _general_text(self) -> str:
        what = "authentication" if self._authenticated_as is None else "re-authentication"
        return (
            f"Authentication failed during {what} due to invalid credentials with SASL mechanism "
            f"{self._name}"
        )

    def _refuse(self, reason: str, reply: list[Buffer] | None) -> Verdict:
        what = f"{self._name or 'SASL'}: {reason}"
        return Verdict(reply, f"authentication failed: {what}", self._settings.failure_delay_ms)

    # Sessions.

    def _judge_authenticated(self, frame: memoryview) -> Verdict | None:
        ends_ms = self._ends_ms
        if ends_ms is None:
            return None
        now_ms = self._now_ms()
        key = int.from_bytes(frame[:_KEY_BYTES], "big")
        is_again = now_ms - self._began_ms >= REAUTHENTICATION_MS_MIN
        if key == SaslHandshakeRequest.ID and is_again:
            self._state = _State.CHOOSING
            return self._judge_choice(open_request(frame))
        if now_ms >= ends_ms:
            return Verdict(None, "the session is over, and the client did not authenticate again")
        return None


def _frame(request: Request, answer: Message) -> list[Buffer]:
    return frame_response(answer, request.api, request.version, request.correlation_id)
