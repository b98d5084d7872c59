"""The controller of another process; ``active_controller`` decides what is asked of it.

A module of its own because a node that is alone never needs it, and all that lanes need is a good
part of a start.
"""

from collections.abc import Callable
from random import Random

from odradek.protocol.message import Message
from odradek.quorum.active_controller import Leadership
from odradek.wire.connection import Versions
from odradek.wire.lane import Address, Lane, LaneError, LaneSettings


class RemoteController:
    """The controller of another process, over a lane to the leader's controller listener."""

    def __init__(
        self, name: str, leadership: Leadership, settings: LaneSettings, random: Random
    ) -> None:
        self._leadership = leadership
        self._lane = Lane(name, self._find_address, settings, random)

    def send(
        self,
        request: Message,
        then: Callable[[Message], None],
        failed: Callable[[LaneError], None],
        timeout_ms: int,
    ) -> None:
        self._lane.send(request, then, failed, timeout_ms)

    @property
    def versions(self) -> Versions | None:
        """What the controller speaks, while there is a connection to it."""
        return self._lane.versions

    def on_leader_changed(self) -> None:
        """Give up what is with an earlier leader."""
        self._lane.on_address_changed()

    def close(self) -> None:
        self._lane.close()

    def _find_address(self) -> Address | None:
        leader = self._leadership.find_leader_address()
        return None if leader is None else (leader.host, leader.port)
