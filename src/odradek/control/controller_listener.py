"""Requests that come in on a controller listener: opened, handed to the APIs, framed."""

from odradek.control.context import Control
from odradek.control.controller_apis import ControllerApis
from odradek.control.envelope import frame_in_steps
from odradek.control.handlers.api_versions import unsupported_version
from odradek.control.served_apis import is_served
from odradek.core.errors import ApiError, ErrorCode
from odradek.net.server import ConnectionInfo, Reply
from odradek.protocol.framing import Request, frame_response
from odradek.protocol.message import Message
from odradek.quorum.active_controller import Caller


class ControllerListener:
    """``handle`` is the handler of a :class:`odradek.net.server.Server`'s controller listeners."""

    def __init__(self, apis: ControllerApis, control: Control) -> None:
        self._apis = apis
        self._control = control

    def handle(self, request: Request, connection: ConnectionInfo, reply: Reply) -> None:
        """Have a request handled; ``reply`` is called now or later, exactly once.

        Raises:
            ApiError: UNSUPPORTED_VERSION: not an API of controllers, or not that version of it;
                the server closes the connection.
            CorruptionError: The request is malformed: the server closes the connection.
        """
        api, version = request.api, request.version
        if request.is_unknown_api_versions:
            answer = unsupported_version(api)
            reply(frame_response(answer, api, 0, request.correlation_id))
            return
        if not is_served(api, version):
            problem = f"{api.name} version {version} on the controller listener"
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"{problem} {connection.listener}")

        def send(response: Message) -> None:
            steps = frame_in_steps(response, api, version, request.correlation_id)
            self._control.slices.run(steps, reply)

        caller = Caller(
            api=api,
            version=version,
            principal=connection.principal,
            listener=connection.listener,
            peer_host=connection.peer_host,
            client_id=request.client_id,
        )
        self._apis.handle(request.decode(), caller, send)
