"""Raft's requests from other nodes: checked, handed to the quorum, answered by token.

The order of the checks is Kafka's: cluster id (INCONSISTENT_CLUSTER_ID), shape (INVALID_REQUEST),
then what raft says of epoch, leader and log. A request that makes no sense is answered and has no
effect; the first of each kind is logged.

Most requests are answered at once. A Fetch may wait for news, for as long as it says but no longer
than ``WAIT_MS_MAX``; a change of the voters waits for its commit. A peer that has gone meanwhile is
answered all the same, into the void, so that nothing is left of it here.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple, Protocol

from odradek.core.errors import ApiError, ErrorCode
from odradek.core.event import Event
from odradek.protocol.generated import describe_quorum
from odradek.protocol.message import Message
from odradek.quorum.raft_channel_port import LeaderAddress
from odradek.quorum.raft_requests import leader_named_by, request_from_wire
from odradek.quorum.raft_responses import Leader, refusal_to_wire, response_to_wire
from odradek.raft.config import PARKED_FETCHES_MAX
from odradek.raft.messages import FetchRequest, QuorumError, Request, Response

_logger: Final = logging.getLogger("odradek.quorum")

WAIT_MS_MAX: Final = 30_000
PENDING_MAX: Final = PARKED_FETCHES_MAX + 1

Reply = Callable[[Message], None]
"""Gets the response, exactly once; does nothing if the peer has gone."""


class QuorumOfService(Protocol):
    """What the service needs of the quorum."""

    @property
    def cluster_id(self) -> str: ...

    @property
    def node_id(self) -> int: ...

    @property
    def epoch(self) -> int: ...

    @property
    def leader_id(self) -> int | None: ...

    @property
    def is_leader(self) -> bool: ...

    @property
    def listener(self) -> str:
        """The name of the listener on which controllers talk to each other."""

    def find_leader_address(self) -> LeaderAddress | None: ...

    def on_leader_address(self, leader: LeaderAddress) -> None: ...

    def step_request(self, request: Request) -> None:
        """Hand a request to raft.

        Raises:
            QuorumError: It contradicts what is decided; nothing has changed.
        """

    def describe(
        self, request: describe_quorum.DescribeQuorumRequest, version: int
    ) -> describe_quorum.DescribeQuorumResponse: ...


class _Pending(NamedTuple):
    request: Message
    reply: Reply
    version: int
    max_bytes: int


class RaftService:
    def __init__(self, quorum: QuorumOfService) -> None:
        self._quorum = quorum
        self._pending: dict[int, _Pending] = {}
        self._next_token = 0
        self._refused: set[tuple[str, ErrorCode]] = set()
        self._is_closed = False

    @property
    def pending_count(self) -> int:
        """How many requests wait for their answer."""
        return len(self._pending)

    def handle(self, request: Message, version: int, reply: Reply) -> None:
        """Answer a request of the quorum, now or when there is news for it."""
        match request:
            case describe_quorum.DescribeQuorumRequest():
                reply(self._quorum.describe(request, version))
            case _:
                self._handle_raft(request, version, reply)

    def _handle_raft(self, request: Message, version: int, reply: Reply) -> None:
        if self._is_closed or len(self._pending) >= PENDING_MAX:
            reply(refusal_to_wire(request, ErrorCode.BROKER_NOT_AVAILABLE))
            return
        self._next_token += 1
        token = self._next_token
        try:
            asked = self._translate(request, token)
        except ApiError as error:
            self._refuse(request, error.code, error.message, reply)
            return
        max_bytes: int = getattr(request, "max_bytes", 0)
        self._pending[token] = _Pending(request, reply, version, max_bytes)
        try:
            self._quorum.step_request(asked)
        except QuorumError as error:
            # A peer is mistaken about what is decided, or makes it up. This node is not.
            if self._pending.pop(token, None) is not None:
                self._refuse(request, ErrorCode.INVALID_REQUEST, str(error), reply)

    def _translate(self, request: Message, token: int) -> Request:
        quorum = self._quorum
        asked = request_from_wire(
            request,
            token,
            cluster_id=quorum.cluster_id,
            own_id=quorum.node_id,
            listener=quorum.listener,
        )
        leader = leader_named_by(request, quorum.listener)
        if leader is not None:
            quorum.on_leader_address(leader)
        if not isinstance(asked, FetchRequest):
            return asked
        if asked.max_wait_ms < 0:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"a wait of {asked.max_wait_ms} ms")
        return replace(asked, max_wait_ms=min(asked.max_wait_ms, WAIT_MS_MAX))

    def bytes_max(self, token: int) -> int:
        """Return how many bytes a request that waits for its answer asks for."""
        pending = self._pending.get(token)
        return 0 if pending is None else pending.max_bytes

    def reply(self, response: Response) -> None:
        """Send what raft answers to where its request came from."""
        pending = self._pending.pop(response.correlation_id, None)
        if pending is not None:  # else this node stops, and has answered
            leader = self._quorum.find_leader_address()
            pending.reply(response_to_wire(response, leader, pending.version))

    def close(self) -> None:
        """Answer all that wait: this node stops."""
        self._is_closed = True
        pending, self._pending = self._pending, {}
        for each in pending.values():  # a Fetch, or a change of the voters
            each.reply(refusal_to_wire(each.request, ErrorCode.BROKER_NOT_AVAILABLE))

    def _refuse(self, request: Message, code: ErrorCode, why: str, reply: Reply) -> None:
        name = type(request).__name__
        if (name, code) not in self._refused:  # at most a few dozen kinds
            self._refused.add((name, code))
            event = Event("request of the quorum refused", request=name, code=code.name, why=why)
            _logger.warning(event)
        quorum = self._quorum
        leader = Leader(quorum.leader_id, quorum.epoch, quorum.find_leader_address())
        reply(refusal_to_wire(request, code, why, leader))
