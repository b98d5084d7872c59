"""Admin requests of clients, handed on to the active controller in the client's name (KIP-590).

A controller of this process gets the decoded request and who sent it, without encoding. Another one
gets an Envelope: the request as the client sent it, its principal and its address. What it answers
goes to the client as it is: the inner response has the client's correlation id already.

NOT_CONTROLLER and lost connections are the channel's business, which tries until its deadline; the
client is answered REQUEST_TIMED_OUT then. An envelope that the controller does not understand
(UNSUPPORTED_VERSION) closes the client's connection, so that it asks again which versions there
are. Every other error of an envelope is between the two nodes and none of the client's business:
UNKNOWN_SERVER_ERROR.
"""

import logging
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, Protocol

from odradek.broker.context import PENDING, Answer, RequestContext
from odradek.broker.controller_port import Failed, Then
from odradek.core.errors import ApiError, CorruptionError, ErrorCode
from odradek.core.event import Event
from odradek.protocol.apis import Api, api_named
from odradek.protocol.forwarded import FORWARDED
from odradek.protocol.framing import Request, open_response, request_bytes
from odradek.protocol.generated.envelope import EnvelopeRequest, EnvelopeResponse
from odradek.protocol.generated.principal import DefaultPrincipalData
from odradek.protocol.message import Message
from odradek.protocol.refusals import refusal
from odradek.protocol.versioned import encode_versioned
from odradek.quorum.active_controller import Caller, ControllerChannel

if TYPE_CHECKING:
    from odradek.wire.connection import Versions

_log: Final = logging.getLogger("odradek.forwarding")
_NO_ADDRESS: Final = bytes(4)


class ForwardedRequest(EnvelopeRequest):
    """An envelope, and what is in it for a controller that needs none."""

    __slots__ = ("caller", "message")

    def __init__(self, message: Message, caller: Caller, request_data: bytes) -> None:
        super().__init__(
            request_data=request_data,
            request_principal=_principal_bytes(caller.principal),
            client_host_address=_address_bytes(caller.peer_host),
        )
        self.message = message
        self.caller = caller


class ForwardingChannel(ControllerChannel, Protocol):
    @property
    def versions(self) -> "Versions | None":
        """What the active controller speaks, if it is another node's and that is known."""


class ForwardingController:
    """A :class:`~odradek.broker.controller_port.ControllerPort` over a channel.

    The local end of the channel may be given a :class:`ForwardedRequest`, whose ``message`` it is
    to answer for its ``caller``.
    """

    def __init__(self, channel: ForwardingChannel) -> None:
        self._channel = channel

    def forward(self, context: RequestContext, request: Message) -> Answer:
        assert context.api.name in FORWARDED, f"{context.api.name} is not in FORWARDED"
        # Copied: the frame is a view of the connection's buffer.
        envelope = ForwardedRequest(request, _caller(context), request_bytes(context.request))
        self._channel.ask(
            envelope,
            partial(_answer, context, request),
            partial(_refuse, context, request),
        )
        return PENDING

    @property
    def versions(self) -> "Versions | None":
        return self._channel.versions

    def ask(
        self,
        request: Message,
        then: Then,
        failed: Failed,
        *,
        client: RequestContext | None = None,
    ) -> None:
        if client is None:
            self._channel.ask(request, then, failed)
            return
        api = api_named(type(request).__name__.removesuffix("Request"))
        version = api.version_stable_max
        caller = _caller(client)._replace(api=api, version=version)
        body = memoryview(request.to_bytes(version))
        data = request_bytes(Request(api, version, _OWN_CORRELATION_ID, client.client_id, body))
        self._channel.ask(
            ForwardedRequest(request, caller, data),
            partial(_unwrap, api, version, then, failed),
            failed,
        )


_OWN_CORRELATION_ID: Final = 0


def _caller(context: RequestContext) -> Caller:
    return Caller(
        context.api,
        context.version,
        context.principal,
        context.listener,
        context.peer_host,
        context.client_id,
    )


def _principal_bytes(principal: str) -> bytes:
    kind, _, name = principal.partition(":")
    return encode_versioned(DefaultPrincipalData(type=kind, name=name), 0)


def _address_bytes(host: str) -> bytes:
    try:
        return ip_address(host.partition("%")[0]).packed
    except ValueError:
        return _NO_ADDRESS  # a simulated peer has a name


# What came back.


def _answer(context: RequestContext, request: Message, answer: Message) -> None:
    if not isinstance(answer, EnvelopeResponse):
        context.reply(answer)
        return
    if answer.error_code:
        _refuse(context, request, _envelope_error(context.api, answer))
        return
    data = answer.response_data or b""
    try:
        correlation_id, _ = open_response(memoryview(data), context.api, context.version)
        if correlation_id != context.request.correlation_id:
            raise CorruptionError(f"the response is to request {correlation_id}")
    except CorruptionError as error:
        _log.error(Event("unreadable response of a controller", api=context.api.name, error=error))
        _refuse(context, request, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))
        return
    context.reply_bytes(data)


def _refuse(context: RequestContext, request: Message, error: ApiError) -> None:
    if error.code is ErrorCode.UNSUPPORTED_VERSION:
        context.broker.server.fail_one(context.connection, error)
    else:
        context.reply(refusal(context.api, request, error))


def _envelope_error(api: Api, answer: EnvelopeResponse) -> ApiError:
    code = ErrorCode(answer.error_code)
    if code is ErrorCode.UNSUPPORTED_VERSION:
        return ApiError(code, f"the controller does not know this version of {api.name}")
    _log.error(Event("a controller refused an envelope", api=api.name, error=code.name))
    problem = "the controller refused to take the request from this broker; the broker's log has it"
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, problem)


def _unwrap(api: Api, version: int, then: Then, failed: Failed, answer: Message) -> None:
    if not isinstance(answer, EnvelopeResponse):
        then(answer)
        return
    if answer.error_code:
        failed(_envelope_error(api, answer))
        return
    try:
        _, body = open_response(memoryview(answer.response_data or b""), api, version)
        response: Any = api.response().decode(body, version)
    except CorruptionError as error:
        failed(ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))
        return
    then(response)
