"""How the parts of a node reach the active controller: in this process, or on another node."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Final

from odradek.broker.forwarding import ForwardedRequest
from odradek.control.controller_apis import ControllerApis
from odradek.core.config import BrokerConfig
from odradek.net.settings import ANONYMOUS
from odradek.protocol.apis import ALL_APIS
from odradek.protocol.message import Message
from odradek.quorum.active_controller import (
    ActiveController,
    Caller,
    ChannelSettings,
    Leadership,
)

if TYPE_CHECKING:
    from odradek.quorum.remote_controller import RemoteController
    from odradek.wire.lane import LaneSettings

_APIS: Final = {f"{api.name}Request": api for api in ALL_APIS}
FORWARDING_IN_FLIGHT_MAX: Final = 10


class ControllerAccess:
    """Makes channels to the active controller, and keeps them posted of who that is."""

    def __init__(
        self,
        config: BrokerConfig,
        leadership: Leadership,
        lanes: "Callable[[], LaneSettings]",
        random: Random,
        apis: ControllerApis | None,
    ) -> None:
        """``lanes`` gives the settings of lanes, when the first is needed.

        ``apis`` are those of the controller in this process, if there is one.
        """
        self._config = config
        self._leadership = leadership
        self._lanes = lanes
        self._random = random
        self._apis = apis
        self._channels: list[ActiveController] = []

    def channel(
        self, purpose: str, *, repeats_lost: bool, timeout_ms: int, in_flight_max: int = 1
    ) -> ActiveController:
        try_timeout_ms = self._config.integer("controller.socket.timeout.ms")

        def make_remote() -> "RemoteController":
            from odradek.quorum.remote_controller import RemoteController  # with all of lanes

            lanes = replace(
                self._lanes(), in_flight_max=in_flight_max, request_timeout_ms=try_timeout_ms
            )
            return RemoteController(purpose, self._leadership, lanes, self._random)

        channel = ActiveController(
            self._leadership,
            make_remote,
            ChannelSettings(
                repeats_lost=repeats_lost, timeout_ms=timeout_ms, try_timeout_ms=try_timeout_ms
            ),
            self._random,
            None if self._apis is None else self._ask_own,
        )
        self._channels.append(channel)
        return channel

    def on_leader_changed(self) -> None:
        for channel in self._channels:
            channel.on_leader_changed()

    def close(self) -> None:
        for channel in self._channels:
            channel.close()

    def _ask_own(self, request: Message, reply: Callable[[Message], None]) -> None:
        assert self._apis is not None
        if isinstance(request, ForwardedRequest):
            self._apis.handle(request.message, request.caller, reply)
            return
        api = _APIS[type(request).__name__]
        caller = Caller(api, api.version_stable_max, ANONYMOUS, "", "127.0.0.1", None)
        self._apis.handle(request, caller, reply)
