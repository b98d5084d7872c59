"""From a request to the controller's handler and back: of the controller listener, or in-process.

A handler's module is imported when its first request comes.

Requests that only the active controller can answer are refused with NOT_CONTROLLER elsewhere. That
is the host's doing; what is answered from the committed image needs no active controller.
"""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from types import GeneratorType
from typing import Any

from odradek.control.context import Answer, Control, ControlContext
from odradek.control.envelope import Envelope, open_envelope, wrap_response
from odradek.control.served_apis import HANDLERS, QUORUM_APIS, is_served
from odradek.core.errors import ApiError, CorruptionError, ErrorCode
from odradek.core.slices import raise_on_loop
from odradek.protocol.apis import Api
from odradek.protocol.generated.describe_quorum import DescribeQuorumResponse
from odradek.protocol.generated.envelope import EnvelopeRequest, EnvelopeResponse
from odradek.protocol.message import Buffer, Message
from odradek.protocol.refusals import refusal
from odradek.quorum.active_controller import Caller

Handle = Callable[[ControlContext, Any], Answer]


class ControllerApis:
    def __init__(self, control: Control) -> None:
        self._control = control
        self._handlers: dict[int, Handle] = {}

    def handle(self, request: Message, caller: Caller, reply: Callable[[Message], None]) -> None:
        """Have a request answered; ``reply`` is called now or later, exactly once.

        The caller has made sure that the API and its version are served.
        """

        def refuse(error: ApiError) -> None:
            reply(refusal(caller.api, request, error))

        self._handle(request, caller, reply, refuse)

    def _handle(
        self,
        request: Message,
        caller: Caller,
        reply: Callable[[Message], None],
        refuse: Callable[[ApiError], None],
    ) -> None:
        if isinstance(request, EnvelopeRequest):
            self._open(request, caller, reply)
            return
        if caller.api.name in QUORUM_APIS:
            self._control.quorum.handle(request, caller.version, reply)
            return
        handle = self._handlers.get(caller.api.key) or self._load(caller.api)
        try:
            answered = handle(ControlContext(self._control, caller, reply, refuse), request)
        except ApiError as error:
            refuse(error)
            return
        if isinstance(answered, Message):
            reply(answered)
        elif answered is not None:
            assert isinstance(answered, GeneratorType)
            self._control.slices.run(answered, reply, partial(_fail, refuse))

    def _open(
        self, request: EnvelopeRequest, caller: Caller, reply: Callable[[Message], None]
    ) -> None:
        """Answer what a broker forwards, in the name of its client."""
        try:
            envelope = open_envelope(request, caller)
            inner = envelope.caller
            if not is_served(inner.api, inner.version):
                problem = f"{inner.api.name} version {inner.version} is not served here"
                raise ApiError(ErrorCode.UNSUPPORTED_VERSION, problem)
        except ApiError as error:
            reply(EnvelopeResponse(error_code=error.code))
            return
        answer = partial(self._answer_envelope, envelope, reply)

        def refuse(error: ApiError) -> None:
            if error.code == ErrorCode.NOT_CONTROLLER:
                # On the envelope: the broker is to look for another controller.
                reply(EnvelopeResponse(error_code=error.code))
            else:
                answer(refusal(inner.api, envelope.request, error))

        self._handle(envelope.request, inner, answer, refuse)

    def _answer_envelope(
        self, envelope: Envelope, reply: Callable[[Message], None], response: Message
    ) -> None:
        if isinstance(response, DescribeQuorumResponse) and _is_led_elsewhere(response):
            # The answer itself cannot say NOT_CONTROLLER, which alone has a broker of Kafka look
            # for another controller: it would ask here for as long as this node runs.
            reply(EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER))
            return

        def wrapped(data: Buffer) -> None:
            reply(EnvelopeResponse(response_data=bytes(data)))

        def failed(error: Exception) -> None:
            if not isinstance(error, ApiError | CorruptionError):
                raise_on_loop(error)
            reply(EnvelopeResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR))

        self._control.slices.run(wrap_response(envelope, response), wrapped, failed)

    def _load(self, api: Api) -> Handle:
        module = import_module(f"odradek.control.handlers.{HANDLERS[api.name]}")
        handle: Handle = module.handle
        self._handlers[api.key] = handle
        return handle


def _fail(refuse: Callable[[ApiError], None], error: Exception) -> None:
    problem = "the controller failed to answer; its log says why"
    refuse(ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, problem))
    raise_on_loop(error)


def _is_led_elsewhere(response: DescribeQuorumResponse) -> bool:
    return any(
        each.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        for topic in response.topics
        for each in topic.partitions
    )
