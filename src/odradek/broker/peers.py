"""The way to other brokers: lanes to their inter-broker listeners, one for each purpose.

Where a broker listens is looked up in the image for each request, so a lane outlives restarts of
its peer. A broker that is fenced, or gone, has no address: what is sent to it fails at once.
"""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from odradek.core.config import BrokerConfig
from odradek.metadata.image import ClusterImage

if TYPE_CHECKING:
    from odradek.wire.lane import Address, Lane, LaneSettings
    from odradek.wire.peer_security import PeerSecurity


class Peers:
    def __init__(
        self, config: BrokerConfig, image: Callable[[], ClusterImage], random: Random
    ) -> None:
        """``image`` gives the newest image: addresses are good as soon as they are committed."""
        self._config = config
        self._image = image
        self._random = random
        self._security: PeerSecurity | None = None

    def open_lane(self, purpose: str, broker_id: int, settings: "LaneSettings") -> "Lane":
        """Return a lane to a broker, with the security of the listener; the caller closes it."""
        from odradek.wire.lane import Lane  # a broker that is alone needs none

        if self._security is None:
            from odradek.wire.peer_security import peer_security  # with all that TLS needs

            self._security = peer_security(self._config, self._config.inter_broker_listener_name)
        tls, login = self._security
        return Lane(
            f"{purpose} to {broker_id}",
            lambda: self.find_address(broker_id),
            replace(settings, tls=tls, login=login),
            self._random,
        )

    def find_address(self, broker_id: int) -> "Address | None":
        """Return where a broker listens for other brokers; None if it is not there."""
        broker = self._image().brokers.get(broker_id)
        if broker is None or broker.fenced:
            return None
        endpoint = broker.endpoints.get(self._config.inter_broker_listener_name)
        return None if endpoint is None else (endpoint.host, endpoint.port)
