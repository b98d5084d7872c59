"""A controller registers with the active one until the metadata log names it (KIP-919).

The log then holds where each controller listens, for tools that ask a controller
(``--bootstrap-controller``), and which features it supports: none is switched on that a voter does
not know. An incarnation is one start of the process; a registration of another one does not count.

Nothing is sent before the cluster's metadata.version allows it. An answer without an error means
that the log will have the registration; should it not, because a failover lost it, the next change
of the features or of this registration leads to another try, as in Kafka, and so does a timer.
"""

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from typing import Final, NamedTuple

from odradek.control.periodic import CallLater, Timer
from odradek.core.errors import ApiError
from odradek.core.ids import Uuid
from odradek.metadata.features import (
    CONTROLLER_REGISTRATION_FROM,
    KRAFT_VERSION,
    KRAFT_VERSIONS,
    SUPPORTED_FEATURES,
)
from odradek.metadata.image import ClusterImage
from odradek.metadata.nodes import Endpoint
from odradek.protocol.generated.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    Feature,
    Listener,
)
from odradek.protocol.message import Message
from odradek.quorum.active_controller import ControllerChannel
from odradek.wire.backoff import Backoff

BACKOFF_FIRST_MS: Final = 100
BACKOFF_MAX_MS: Final = 120_000
UNSEEN_MS: Final = 5_000
"""How long an accepted registration may take to appear in the image before it is sent again."""


class RegisteredController(NamedTuple):
    """What a controller says about itself."""

    node_id: int
    incarnation_id: Uuid
    endpoints: Mapping[str, Endpoint]

    def to_request(self) -> ControllerRegistrationRequest:
        features = {**SUPPORTED_FEATURES, KRAFT_VERSION: KRAFT_VERSIONS}
        return ControllerRegistrationRequest(
            controller_id=self.node_id,
            incarnation_id=self.incarnation_id,
            listeners=[
                Listener(
                    name=each.name,
                    host=each.host,
                    port=each.port,
                    security_protocol=each.security_protocol,
                )
                for _, each in sorted(self.endpoints.items())
            ],
            features=[
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in sorted(features.items())
            ],
        )


class ControllerRegistration:
    def __init__(
        self,
        controller: RegisteredController,
        channel: ControllerChannel,
        random: Random,
        call_later: CallLater | None = None,
    ) -> None:
        """The channel is closed with this."""
        self._controller = controller
        self._channel = channel
        self._backoff = Backoff(BACKOFF_FIRST_MS, BACKOFF_MAX_MS, random)
        self._call_later = call_later or _call_later
        self._image: ClusterImage | None = None
        self._is_asking = False
        self._is_stopped = False
        self._timer: Timer | None = None

    @property
    def is_registered(self) -> bool:
        """Whether the committed image has this incarnation."""
        if self._image is None:
            return False
        known = self._image.controllers.get(self._controller.node_id)
        return known is not None and known.incarnation_id == self._controller.incarnation_id

    def on_image(self, image: ClusterImage) -> None:
        """Take a new committed image: this node may be in it, or has to register now."""
        self._image = image
        if self._timer is None:
            self._register_if_needed()

    def stop(self) -> None:
        self._is_stopped = True
        self._cancel_timer()
        self._channel.close()

    def _register_if_needed(self) -> None:
        if self._is_stopped or self._is_asking or self.is_registered:
            return
        version = None if self._image is None else self._image.metadata_version
        if version is None or version < CONTROLLER_REGISTRATION_FROM:
            return
        self._is_asking = True
        self._channel.ask(self._controller.to_request(), self._on_answer, self._on_failed)

    def _on_answer(self, response: Message) -> None:
        assert isinstance(response, ControllerRegistrationResponse)
        self._is_asking = False
        if response.error_code:
            self._retry_in(self._backoff.next_ms())
        else:
            self._backoff.reset()
            self._retry_in(UNSEEN_MS)

    def _on_failed(self, _error: ApiError) -> None:
        self._is_asking = False
        self._retry_in(self._backoff.next_ms())

    def _retry_in(self, wait_ms: float) -> None:
        if not self._is_stopped and not self.is_registered:
            self._timer = self._call_later(wait_ms / 1_000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._register_if_needed()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _call_later(seconds: float, call: Callable[[], None]) -> Timer:
    return asyncio.get_running_loop().call_later(seconds, call)
