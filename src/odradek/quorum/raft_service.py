"""Raft's requests from other nodes: checked, handed to the quorum, answered by token.

The order of the checks is Kafka's: cluster id (INCONSISTENT_CLUSTER_ID), shape (INVALID_REQUEST),
then what raft says of epoch, leader and log. A request that makes no sense is answered and has no
effect; the first of each kind is logged.

Most requests are answered at once. A Fetch may wait for news, for as long as it says but no longer
than ``WAIT_MS_MAX``. A peer that has gone meanwhile is answered all the same, into the void, so
that nothing is left of it here.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple, Protocol

from odradek.core.errors import ApiError, ErrorCode
from odradek.core.event import Event
from odradek.protocol.generated import (
    add_raft_voter,
    describe_quorum,
    fetch,
    remove_raft_voter,
    update_raft_voter,
)
from odradek.protocol.message import Message
from odradek.quorum.raft_requests import LeaderAddress, leader_named_by, request_from_wire
from odradek.quorum.raft_responses import refusal_to_wire, response_to_wire
from odradek.raft.config import PARKED_FETCHES_MAX
from odradek.raft.messages import FetchRequest, QuorumError, Request, Response

_logger: Final = logging.getLogger("odradek.quorum")

WAIT_MS_MAX: Final = 30_000
PENDING_MAX: Final = PARKED_FETCHES_MAX + 1

Reply = Callable[[Message], None]
"""Gets the response, exactly once; does nothing if the peer has gone."""

VoterChange = (
    add_raft_voter.AddRaftVoterRequest
    | remove_raft_voter.RemoveRaftVoterRequest
    | update_raft_voter.UpdateRaftVoterRequest
)


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
            case (
                add_raft_voter.AddRaftVoterRequest()
                | remove_raft_voter.RemoveRaftVoterRequest()
                | update_raft_voter.UpdateRaftVoterRequest()
            ):
                reply(self._refuse_change(request))
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
        self._pending[token] = _Pending(reply, version, max_bytes)
        try:
            self._quorum.step_request(asked)
        except QuorumError as error:
            # A peer is mistaken about what is decided, or makes it up. This node is not.
            if self._pending.pop(token, None) is not None:
                self._refuse(request, ErrorCode.INVALID_REQUEST, str(error), reply)

    def _translate(self, request: Message, token: int) -> Request:
        quorum = self._quorum
        asked = request_from_wire(
            request, token, cluster_id=quorum.cluster_id, own_id=quorum.node_id
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
        for each in pending.values():  # only a Fetch waits
            each.reply(fetch.FetchResponse(error_code=ErrorCode.BROKER_NOT_AVAILABLE))

    def _refuse(self, request: Message, code: ErrorCode, why: str, reply: Reply) -> None:
        name = type(request).__name__
        if (name, code) not in self._refused:  # at most a few dozen kinds
            self._refused.add((name, code))
            event = Event("request of the quorum refused", request=name, code=code.name, why=why)
            _logger.warning(event)
        reply(refusal_to_wire(request, code))

    def _refuse_change(self, request: VoterChange) -> Message:
        """Refuse to change the voters, which cannot be done yet, as Kafka at kraft.version 0."""
        quorum, code = self._quorum, ErrorCode.UNSUPPORTED_VERSION
        problem = "voters cannot be added, removed or updated while the quorum runs"
        if request.cluster_id not in (None, quorum.cluster_id):
            code, problem = ErrorCode.INCONSISTENT_CLUSTER_ID, f"this is {quorum.cluster_id}"
        elif not quorum.is_leader:
            code, problem = ErrorCode.NOT_LEADER_OR_FOLLOWER, "another controller leads"
        match request:
            case add_raft_voter.AddRaftVoterRequest():
                return add_raft_voter.AddRaftVoterResponse(error_code=code, error_message=problem)
            case remove_raft_voter.RemoveRaftVoterRequest():
                return remove_raft_voter.RemoveRaftVoterResponse(
                    error_code=code, error_message=problem
                )
            case update_raft_voter.UpdateRaftVoterRequest():
                return self._refuse_update(request, code)

    def _refuse_update(
        self, request: update_raft_voter.UpdateRaftVoterRequest, code: ErrorCode
    ) -> Message:
        quorum = self._quorum
        if code is not ErrorCode.INCONSISTENT_CLUSTER_ID:
            if request.current_leader_epoch < quorum.epoch:
                code = ErrorCode.FENCED_LEADER_EPOCH
            elif request.current_leader_epoch > quorum.epoch:
                code = ErrorCode.UNKNOWN_LEADER_EPOCH
        leader = quorum.find_leader_address()
        return update_raft_voter.UpdateRaftVoterResponse(
            error_code=code,
            current_leader=update_raft_voter.CurrentLeader(
                leader_id=-1 if quorum.leader_id is None else quorum.leader_id,
                leader_epoch=quorum.epoch,
                host="" if leader is None else leader.host,
                port=0 if leader is None else leader.port,
            ),
        )
