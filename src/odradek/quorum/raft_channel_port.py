"""Between a quorum and the way to its other members; ``raft_channel`` has the real one."""

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

from odradek.core.config import Address
from odradek.raft.messages import Request, Response, VoterEndpoint


class LeaderAddress(NamedTuple):
    """What a message says about where the leader listens."""

    leader_id: int
    host: str
    port: int


class Sender(NamedTuple):
    """What a node puts into all requests that it sends."""

    cluster_id: str
    endpoints: tuple[VoterEndpoint, ...]
    fetch_max_bytes: int


class RaftChannel(Protocol):
    """The way to the other members of the quorum.

    It calls its owner back with the response (``step``), or says that none will come
    (``on_send_failed``): exactly one of the two for each request, and never before ``send`` has
    returned.
    """

    def send(self, target: int, request: Request) -> None:
        """Send to a node by id, or to a bootstrap server by its negative one."""

    def close(self) -> None: ...


class ChannelOwner(Protocol):
    """What a channel to the other members needs of its owner; a ``MetadataQuorum`` is one."""

    @property
    def sender(self) -> Sender: ...

    @property
    def listener(self) -> str:
        """The name of the listener on which controllers talk to each other."""

    @property
    def epoch(self) -> int: ...

    def find_address(self, node_id: int) -> Address | None: ...

    def on_leader_address(self, leader: LeaderAddress) -> None:
        """Take in where a response says that the leader listens; before ``step``."""

    def step(self, response: Response) -> None: ...

    def on_send_failed(self, target: int, correlation_id: int) -> None: ...


MakeChannel: TypeAlias = Callable[[ChannelOwner], RaftChannel]
