"""What a handler of the controller gets besides its request."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Protocol, TypeVar

from odradek.control.controller_host import ControllerHost, Plan, QuorumPort
from odradek.core.clock import Clock
from odradek.core.config import BrokerConfig
from odradek.core.errors import ApiError
from odradek.core.slices import Slices, Steps
from odradek.metadata.image import ClusterImage
from odradek.protocol.message import Message
from odradek.quorum.active_controller import Caller
from odradek.raft.messages import ReplicaKey
from odradek.raft.voters import VoterSet

R = TypeVar("R", bound=Message)


class ControlQuorum(QuorumPort, Protocol):
    """What handlers need of the metadata quorum, besides the host."""

    @property
    def replica_key(self) -> ReplicaKey: ...

    @property
    def leader_id(self) -> int | None: ...

    @property
    def voter_ids(self) -> tuple[int, ...]: ...

    @property
    def kraft_version(self) -> int: ...

    @property
    def appended_kraft_version(self) -> int:
        """The level that will be, when all that is appended is committed."""

    @property
    def upgraded_voters(self) -> VoterSet | None:
        """The voters as the log could name them, while it does not; only the leader has them."""

    def handle(self, request: Message, version: int, reply: Callable[[Message], None]) -> None:
        """Answer a request of the quorum's own APIs."""


@dataclass(slots=True)
class Control:
    """The parts of a controller that its handlers use."""

    host: ControllerHost
    quorum: ControlQuorum
    config: BrokerConfig
    """As it is now: parts of it change while the node runs."""
    cluster_id: str
    clock: Clock
    random: Random
    slices: Slices

    @property
    def image(self) -> ClusterImage:
        """The committed image: also a controller that is not active has it."""
        return self.quorum.committed_image


class ControlContext:
    """One request: who asks, in which version, and how to answer later."""

    __slots__ = ("caller", "control", "refuse", "reply")

    def __init__(
        self,
        control: Control,
        caller: Caller,
        reply: Callable[[Message], None],
        refuse: Callable[[ApiError], None],
    ) -> None:
        """``refuse`` answers with an error, wherever the API's response has a place for it."""
        self.control = control
        self.caller = caller
        self.reply = reply
        self.refuse = refuse

    def change(self, plan: Plan[R]) -> None:
        """Have the active controller plan something; it is answered when that is committed."""
        self.control.host.submit(plan, self.reply, self.refuse)


Answer = Message | Steps[Message] | None
"""What a handler returns: the response, steps that lead to it, or None if it comes later."""
