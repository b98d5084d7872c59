"""Elections: Vote, BeginQuorumEpoch and EndQuorumEpoch, as Kafka's KRaft has them.

Differs from Kafka in one point: a candidate that asks a second time must still have a log that is
up to date. Kafka repeats its answer; that is safe there only because its log is always flushed.
"""

from typing import Final, assert_never

from odradek.core.errors import ErrorCode
from odradek.raft.leader import Leader
from odradek.raft.log_view import is_up_to_date, log_end
from odradek.raft.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    OffsetAndEpoch,
    ReplicaKey,
    VoteRequest,
    VoteResponse,
)
from odradek.raft.quorum import Quorum
from odradek.raft.roles import Candidate, Follower, Prospective, Resigned, Unattached

_NONE: Final = ErrorCode.NONE


class Voting:
    __slots__ = ("quorum",)

    def __init__(self, quorum: Quorum) -> None:
        self.quorum = quorum

    def on_vote_request(self, request: VoteRequest, now_ms: int) -> None:
        quorum = self.quorum
        error = self._refusal(request)
        if error is _NONE and request.replica_epoch > quorum.epoch:
            quorum.become_unattached(request.replica_epoch, now_ms)
        if error is _NONE and not request.voter.matches(quorum.key):
            error = ErrorCode.INVALID_VOTER_KEY
        granted = error is _NONE and self._may_grant(request)
        if granted and not request.pre_vote and quorum.hard_state.voted is None:
            quorum.vote_for(request.replica, now_ms)
        quorum.outbox.reply(
            VoteResponse(
                request.correlation_id,
                quorum.key.id,
                error,
                quorum.leader_id,
                quorum.epoch,
                granted,
            )
        )

    def on_vote_response(
        self, role: Prospective | Candidate, response: VoteResponse, now_ms: int
    ) -> None:
        role.election.record(response.sender, response.vote_granted)
        if role.election.is_won:
            if isinstance(role, Prospective):
                self.quorum.become_candidate(now_ms)
            else:
                self.quorum.become_leader(now_ms)
        elif role.election.is_lost and isinstance(role, Prospective):
            self.give_up(now_ms)
        # A candidate that lost waits for its timeout: those who beat it need the time.

    def give_up(self, now_ms: int) -> None:
        """Return from a pre-vote that was not won to the leader, if one is known."""
        quorum = self.quorum
        assert isinstance(quorum.role, Prospective)
        if quorum.leader_id is not None and quorum.leader_id != quorum.key.id:
            quorum.become_follower(quorum.epoch, quorum.leader_id, now_ms)
        else:
            quorum.become_unattached(quorum.epoch, now_ms)

    def on_begin_request(self, request: BeginQuorumEpochRequest, now_ms: int) -> None:
        quorum = self.quorum
        error = self._refuse_leader(request.leader_id, request.leader_epoch)
        if error is _NONE:
            quorum.learn_leader(request.leader_epoch, request.leader_id, now_ms)
            if not request.voter.matches(quorum.key):
                error = ErrorCode.INVALID_VOTER_KEY
        response = BeginQuorumEpochResponse(
            request.correlation_id, quorum.key.id, error, quorum.leader_id, quorum.epoch
        )
        quorum.outbox.reply(response)

    def on_end_request(self, request: EndQuorumEpochRequest, now_ms: int) -> None:
        quorum = self.quorum
        error = self._refuse_leader(request.leader_id, request.leader_epoch)
        if error is _NONE:
            quorum.learn_leader(request.leader_epoch, request.leader_id, now_ms)
            role = quorum.role
            if isinstance(role, Follower) and role.fetch_deadline_ms is not None:
                role.fetch_deadline_ms = now_ms + self._backoff_ms(request.preferred_candidates)
        response = EndQuorumEpochResponse(
            request.correlation_id, quorum.key.id, error, quorum.leader_id, quorum.epoch
        )
        quorum.outbox.reply(response)

    def request_votes(self, role: Prospective | Candidate, now_ms: int) -> None:
        if role.election.is_lost:
            return
        quorum = self.quorum
        end = log_end(quorum.log)
        for voter in role.election.unanswered:
            if quorum.requests.may_send(voter.id, now_ms):
                request = VoteRequest(
                    quorum.requests.open(voter.id, now_ms),
                    voter,
                    quorum.key,
                    quorum.epoch,
                    end.offset,
                    end.epoch,
                    pre_vote=isinstance(role, Prospective),
                )
                quorum.outbox.send(voter.id, request)

    def announce(self, leader: Leader, now_ms: int) -> None:
        """Tell voters that have not fetched lately who leads."""
        quorum = self.quorum
        interval_ms = quorum.config.begin_quorum_epoch_interval_ms
        for voter in leader.silent_voters(now_ms - interval_ms):
            if quorum.requests.may_send(voter.id, now_ms):
                correlation_id = quorum.requests.open(voter.id, now_ms)
                request = BeginQuorumEpochRequest(
                    correlation_id, voter, quorum.key.id, quorum.epoch
                )
                quorum.outbox.send(voter.id, request)
        leader.begin_epoch_deadline_ms = now_ms + interval_ms

    def announce_end(self, role: Resigned, now_ms: int) -> None:
        quorum = self.quorum
        for voter_id in role.unacknowledged:
            if quorum.requests.may_send(voter_id, now_ms):
                request = EndQuorumEpochRequest(
                    quorum.requests.open(voter_id, now_ms),
                    quorum.key.id,
                    quorum.epoch,
                    role.preferred_successors,
                )
                quorum.outbox.send(voter_id, request)

    def _refusal(self, request: VoteRequest) -> ErrorCode:
        if request.replica_epoch < self.quorum.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        # A candidate has just made its epoch, so nobody has written in it.
        least_epoch = request.last_offset_epoch + (0 if request.pre_vote else 1)
        is_sound = request.replica_epoch >= least_epoch and request.replica.id >= 0
        if not is_sound or request.last_offset < 0 or request.last_offset_epoch < 0:
            return ErrorCode.INVALID_REQUEST
        return _NONE

    def _refuse_leader(self, leader_id: int, leader_epoch: int) -> ErrorCode:
        if leader_epoch < self.quorum.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if leader_id < 0 or leader_id == self.quorum.key.id:
            return ErrorCode.INVALID_REQUEST
        return _NONE

    def _may_grant(self, request: VoteRequest) -> bool:
        end = OffsetAndEpoch(request.last_offset, request.last_offset_epoch)
        if not is_up_to_date(self.quorum.log, end):
            return False
        match self.quorum.role:
            case Unattached() | Prospective():
                return request.pre_vote or self._may_vote_for(request.replica)
            case Follower(has_fetched=has_fetched):
                return request.pre_vote and not has_fetched
            case Candidate() | Resigned():
                return request.pre_vote
            case Leader():
                return False
            case _ as unreachable:
                assert_never(unreachable)

    def _may_vote_for(self, candidate: ReplicaKey) -> bool:
        state = self.quorum.hard_state
        if candidate.id == self.quorum.key.id:
            return False
        if state.voted is not None:
            return state.voted.matches(candidate)
        return state.leader_id is None

    def _backoff_ms(self, candidates: tuple[ReplicaKey, ...]) -> int:
        """Who the leader names first stands at once, the next holds back, and so on."""
        position = next(
            (i for i, key in enumerate(candidates) if key.matches(self.quorum.key)), len(candidates)
        )
        return self.quorum.config.successor_backoff_ms(position, len(candidates))
