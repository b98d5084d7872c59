"""The way from a node to the other members of the quorum: two lanes to each of them.

``raft-fetch`` carries Fetch and FetchSnapshot: a Fetch may wait at the leader, and nothing that
decides an election waits behind it. ``raft-vote`` carries Vote, BeginQuorumEpoch, EndQuorumEpoch
and what a node says of itself (UpdateRaftVoter, and AddRaftVoter if it joins by itself). One
request is under way in a lane. A node that is to be a voter is asked for its ApiVersions by a lane
of its own, to the endpoint that it is said to have.

A target is the id of a node, or the negative one of a bootstrap server; where it listens is looked
up for each request. For each request the owner gets the response (``step``) or that none will
come (``on_send_failed``), once, and never before ``send`` has returned. A response never outlives
its connection. One that raft does not wait for any more is raft's to ignore, by its correlation id.
"""

import logging
from dataclasses import replace
from functools import partial
from random import Random
from typing import Final, NamedTuple

from odradek.core.errors import CorruptionError, ErrorCode
from odradek.core.event import Event
from odradek.protocol.message import Message
from odradek.quorum.raft_channel_port import ChannelOwner, LeaderAddress
from odradek.quorum.raft_requests import request_to_wire
from odradek.quorum.raft_responses import leader_address_in, response_from_wire
from odradek.quorum.voter_messages import unsupported_update
from odradek.raft.messages import (
    AddVoterResponse,
    FetchRequest,
    FetchSnapshotRequest,
    ProbeVoterRequest,
    ProbeVoterResponse,
    RemoveVoterResponse,
    Request,
    Response,
    UpdateVoterRequest,
    VoteRequest,
    VoteResponse,
)
from odradek.raft.voters import VOTERS_MAX
from odradek.wire.lane import Lane, LaneError, LaneFailure, LaneSettings

TARGETS_MAX: Final = 2 * VOTERS_MAX
"""Voters and bootstrap servers with lanes; the one that was asked longest ago gives way."""
QUEUED_MAX: Final = 16
FETCH_VERSION_MIN: Final = 15
"""Before it a Fetch has no replica state; it is Kafka 3.5's."""
PRE_VOTE_VERSION: Final = 2
_EPOCH_UNKNOWN: Final = -1
_REFUSALS: Final = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.INCONSISTENT_CLUSTER_ID,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_VOTER_KEY,
    }
)
"""Errors that no later try changes: an operator has to see them."""
_logger: Final = logging.getLogger("odradek.quorum")


class _Lanes(NamedTuple):
    fetch: Lane
    vote: Lane


class RaftLanes:
    def __init__(self, owner: ChannelOwner, settings: LaneSettings, random: Random) -> None:
        """Use ``settings`` for all lanes, but for the limits that are raft's."""
        self._owner = owner
        self._settings = replace(settings, in_flight_max=1, queued_max=QUEUED_MAX)
        self._random = random
        self._targets: dict[int, _Lanes] = {}
        self._refusals: dict[int, ErrorCode] = {}  # by target: those that the log has
        self._probing: Lane | None = None  # at most one voter is being added
        self._is_closed = False

    def send(self, target: int, request: Request) -> None:
        if isinstance(request, ProbeVoterRequest):
            self._probe(target, request)
            return
        lanes = self._lanes_to(target)
        is_fetch = isinstance(request, FetchRequest | FetchSnapshotRequest)
        lane = lanes.fetch if is_fetch else lanes.vote
        lane.send(
            request_to_wire(request, self._owner.sender),
            partial(self._on_answer, lane, target, request.correlation_id),
            partial(self._on_failed, target, request),
            version_min=_version_min(request),
        )

    def _probe(self, target: int, request: ProbeVoterRequest) -> None:
        """Ask a node that is no voter yet: where the request says, by a connection for this."""
        listener = self._owner.listener
        found = next((each for each in request.endpoints if each.name == listener), None)
        address = None if found is None else (found.host, found.port)
        self._end_probe()
        lane = Lane(f"raft-probe to {target}", lambda: address, self._settings, self._random)
        self._probing = lane

        def answered(answer: Message) -> None:
            self._on_answer(lane, target, request.correlation_id, answer)
            self._end_probe(lane)

        def failed(_error: LaneError) -> None:
            if not self._is_closed:
                error = ErrorCode.BROKER_NOT_AVAILABLE
                self._owner.step(ProbeVoterResponse(request.correlation_id, target, error))
                self._end_probe(lane)

        lane.send(request_to_wire(request, self._owner.sender), answered, failed)

    def _end_probe(self, lane: Lane | None = None) -> None:
        """Close the connection of the last probe; of this one, if it is still the last."""
        if self._probing is not None and lane in (None, self._probing):
            self._probing.close()
            self._probing = None

    def close(self) -> None:
        """Close all connections; nothing is called back any more."""
        self._is_closed = True
        self._end_probe()
        for lanes in self._targets.values():
            for lane in lanes:
                lane.close()

    def _lanes_to(self, target: int) -> _Lanes:
        lanes = self._targets.pop(target, None)
        if lanes is None:
            if len(self._targets) >= TARGETS_MAX:
                oldest = next(iter(self._targets))
                for lane in self._targets.pop(oldest):
                    lane.close()
                self._refusals.pop(oldest, None)
            lanes = _Lanes(self._lane("raft-fetch", target), self._lane("raft-vote", target))
        self._targets[target] = lanes  # the last one asked is last
        return lanes

    def _lane(self, purpose: str, target: int) -> Lane:
        find = partial(self._owner.find_address, target)
        lane = Lane(f"{purpose} to {target}", find, self._settings, self._random)
        if self._is_closed:
            lane.close()
        return lane

    def _on_answer(self, lane: Lane, target: int, correlation_id: int, answer: Message) -> None:
        if self._is_closed:
            return
        try:
            response = response_from_wire(answer, correlation_id, target)
        except CorruptionError as error:
            lane.drop(str(error))
            self._owner.on_send_failed(target, correlation_id)
            return
        self._note_refusal(target, response.error)
        # Before raft hears of a leader it is known where that listens: raft fetches at once.
        leader = leader_address_in(answer)
        if leader is not None and self._names_leader(response, leader):
            self._owner.on_leader_address(leader)
        self._owner.step(response)

    def _note_refusal(self, target: int, error: ErrorCode) -> None:
        """Log why a peer does not take requests of this node: once, until it takes one."""
        if error is ErrorCode.NONE:
            self._refusals.pop(target, None)
        elif error in _REFUSALS and self._refusals.get(target) is not error:
            self._refusals[target] = error
            _logger.error(
                Event(
                    "refused by a member of the quorum",
                    peer=target,
                    error=error.name,
                    cluster_id=self._owner.sender.cluster_id,
                )
            )

    def _names_leader(self, response: Response, leader: LeaderAddress) -> bool:
        """Whether an address is that of the leader now; peers that lag name earlier ones."""
        if isinstance(response, AddVoterResponse | RemoveVoterResponse | ProbeVoterResponse):
            return False
        is_latest = response.leader_epoch >= self._owner.epoch
        return leader.leader_id == response.leader_id and is_latest

    def _on_failed(self, target: int, request: Request, error: LaneError) -> None:
        if self._is_closed:
            return
        if error.failure is LaneFailure.UNSUPPORTED:
            if isinstance(request, VoteRequest) and request.pre_vote:
                # The peer is from before pre-votes; raft goes on with a plain election.
                self._owner.step(_unsupported_vote(request, target))
                return
            if isinstance(request, UpdateVoterRequest):
                self._owner.step(unsupported_update(request.correlation_id, target))
                return
            name = type(request).__name__
            _logger.warning(Event("peer too old", peer=target, request=name, problem=error))
        self._owner.on_send_failed(target, request.correlation_id)


def _version_min(request: Request) -> int:
    if isinstance(request, FetchRequest):
        return FETCH_VERSION_MIN
    if isinstance(request, VoteRequest) and request.pre_vote:
        return PRE_VOTE_VERSION
    return 0


def _unsupported_vote(request: VoteRequest, target: int) -> VoteResponse:
    error = ErrorCode.UNSUPPORTED_VERSION
    return VoteResponse(request.correlation_id, target, error, None, _EPOCH_UNKNOWN, False)
