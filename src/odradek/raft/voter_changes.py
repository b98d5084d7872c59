"""Voters that come, go and move: AddVoter, RemoveVoter and UpdateVoter, as the leader carries them
out (KIP-853).

One change at a time, by one voter: then each majority of the old set shares a member with each of
the new one. A change counts from the moment it is appended. So none begins before the one before is
committed, and none before a record of the leader's own epoch is: a leader of an earlier epoch may
have appended a change that it does not know to be lost (the bug of 2015 in Raft's thesis).

A new voter has to be caught up when it is added, or commits could stop until it is. Nothing waits
for that: an operator tries again.

The order of the checks, errors and messages are Kafka's.
"""

from typing import Final

from odradek.core.errors import ErrorCode
from odradek.raft.config import CAUGHT_UP_MS
from odradek.raft.leader import Leader
from odradek.raft.messages import (
    AddVoterRequest,
    ProbeVoterRequest,
    ProbeVoterResponse,
    RemoveVoterRequest,
    ReplicaKey,
    UpdateVoterRequest,
    UpdateVoterResponse,
    VoterDetails,
)
from odradek.raft.quorum import Quorum
from odradek.raft.ready import AppendVoters
from odradek.raft.voter_change import VoterChange, answer_to
from odradek.raft.voters import VOTERS_MAX, VoterNode, VoterSet

_NONE: Final = ErrorCode.NONE
_TIMED_OUT: Final = ErrorCode.REQUEST_TIMED_OUT
_FEATURE: Final = "kraft.version"
_WAITS_FOR: Final = "Request timed out waiting for"
Refusal = tuple[ErrorCode, str | None]


class VoterChanges:
    __slots__ = ("quorum",)

    def __init__(self, quorum: Quorum) -> None:
        self.quorum = quorum

    # Requests.

    def on_add_request(self, request: AddVoterRequest, now_ms: int) -> None:
        leader = self.quorum.role
        if not isinstance(leader, Leader):
            self._answer(request, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif request.voter.id < 0 or request.voter.directory_id is None:
            problem = "Add voter request didn't include a valid voter"
            self._answer(request, ErrorCode.INVALID_REQUEST, problem)
        elif request.problem is not None:
            self._answer(request, ErrorCode.INVALID_REQUEST, request.problem)
        elif (refusal := self._refusal(leader, "adding", now_ms)) is not None:
            self._answer(request, *refusal)
        else:
            self._probe(leader, request, now_ms)

    def on_remove_request(self, request: RemoveVoterRequest, now_ms: int) -> None:
        quorum, leader = self.quorum, self.quorum.role
        if not isinstance(leader, Leader):
            self._answer(request, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif request.voter.id < 0 or request.voter.directory_id is None:
            problem = "Remove voter request didn't include a valid voter"
            self._answer(request, ErrorCode.INVALID_REQUEST, problem)
        elif (refusal := self._refusal(leader, "removing", now_ms)) is not None:
            self._answer(request, *refusal)
        elif request.voter not in quorum.voters.voters or len(quorum.voters.voters) == 1:
            problem = f"Cannot remove voter {shown(request.voter)} from the set of voters"
            problem = f"{problem} {shown_all(quorum.voters)}"
            self._answer(request, ErrorCode.VOTER_NOT_FOUND, problem)
        else:
            self._begin(leader, request, now_ms)
            self._append(quorum.voters.without(request.voter))

    def on_update_request(self, request: UpdateVoterRequest, now_ms: int) -> None:
        quorum, leader = self.quorum, self.quorum.role
        error = quorum.refuse_to_lead(request.current_leader_epoch)
        if error is _NONE:
            assert isinstance(leader, Leader)
            error = self._update(leader, request, now_ms)
        response = UpdateVoterResponse(
            request.correlation_id, quorum.key.id, error, quorum.leader_id, quorum.epoch
        )
        quorum.outbox.reply(response)

    def _update(self, leader: Leader, request: UpdateVoterRequest, now_ms: int) -> ErrorCode:
        quorum, voter = self.quorum, VoterNode(request.voter, request.details)
        if voter.key.id < 0 or voter.key.directory_id is None or not request.is_sound:
            return ErrorCode.INVALID_REQUEST
        self.expire(leader, now_ms)
        if leader.change is not None or leader.high_watermark is None:
            return _TIMED_OUT
        is_by_log = not quorum.history.is_static
        voters = quorum.voters if is_by_log else leader.volatile_voters
        if voters is None or (is_by_log and not self._is_latest_committed(leader)):
            return _TIMED_OUT
        if not voter.details.supports(int(is_by_log)):
            return ErrorCode.INVALID_REQUEST
        known = voters.find(voter.key.id)
        # In version 0 the leader does not know directories yet: this is how it comes to do.
        if known is None or (is_by_log and not known.matches(voter.key)):
            return ErrorCode.VOTER_NOT_FOUND
        if is_by_log:
            self._append(voters.updated(voter))
        else:
            leader.volatile_voters = voters.updated(voter)
        if leader.find_voter(voter.key) is not None:
            leader.fetched_voters.add(voter.key.id)
            quorum.extend_check_quorum(leader, now_ms)
        return _NONE

    # The way of a change.

    def _probe(self, leader: Leader, request: AddVoterRequest, now_ms: int) -> None:
        quorum, voter = self.quorum, request.voter
        if quorum.voters.find(voter.id) is not None:
            problem = f"The voter id for {shown(voter)} is already part of the set of voters"
            problem = f"{problem} {shown_all(quorum.voters)}."
            self._answer(request, ErrorCode.DUPLICATE_VOTER, problem)
        elif len(quorum.voters.voters) >= VOTERS_MAX:
            problem = f"The quorum has {VOTERS_MAX} voters, and that is as many as it may have."
            self._answer(request, ErrorCode.INVALID_REQUEST, problem)
        elif not quorum.requests.may_send(voter.id, now_ms):
            problem = f"New voter {shown(voter)} is not ready to receive requests"
            self._answer(request, _TIMED_OUT, problem)
        else:
            self._begin(leader, request, now_ms)
            correlation_id = quorum.requests.open(voter.id, now_ms)
            quorum.outbox.send(voter.id, ProbeVoterRequest(correlation_id, request.endpoints))

    def on_probe_response(self, response: ProbeVoterResponse, now_ms: int) -> None:
        quorum, leader = self.quorum, self.quorum.role
        if response.error is not _NONE:
            quorum.requests.back_off(response.sender, now_ms)
        change = leader.change if isinstance(leader, Leader) else None
        if not isinstance(leader, Leader) or change is None or change.offset is not None:
            return  # given up meanwhile
        request = change.request
        if not isinstance(request, AddVoterRequest) or request.voter.id != response.sender:
            return
        refusal = self._refuse_voter(leader, request.voter, response, now_ms)
        if refusal is not None:
            self._end(leader, *refusal)
            return
        assert response.kraft_versions is not None
        details = VoterDetails(request.endpoints, *response.kraft_versions)
        self._append(quorum.voters.with_voter(VoterNode(request.voter, details)))

    def on_appended(self, leader: Leader, offset: int) -> None:
        """Take note of where a record with voters lies."""
        change = leader.change
        if change is None or change.offset is not None:
            return
        change.offset = offset
        request = change.request
        if isinstance(request, AddVoterRequest) and not request.ack_when_committed:
            self._answer_change(change, _NONE)

    def on_refused(self) -> None:
        """There was no space for the record."""
        leader = self.quorum.role
        if isinstance(leader, Leader) and leader.change is not None:
            problem = "The leader has no space for changes of the metadata"
            self._end(leader, ErrorCode.KAFKA_STORAGE_ERROR, problem)

    def on_committed(self, leader: Leader) -> None:
        change, high_watermark = leader.change, leader.high_watermark
        if change is None or change.offset is None or high_watermark is None:
            return
        if change.offset < high_watermark:
            self._end(leader, _NONE)

    def expire(self, leader: Leader, now_ms: int) -> None:
        """Give up a change whose time is over; what it appended counts all the same."""
        if leader.change is not None and leader.change.deadline_ms <= now_ms:
            self._end(leader, _TIMED_OUT)

    # Checks.

    def _refusal(self, leader: Leader, verb: str, now_ms: int) -> Refusal | None:
        """Why no change can begin now."""
        self.expire(leader, now_ms)
        high_watermark = leader.high_watermark
        if leader.change is not None:
            return _TIMED_OUT, f"{_WAITS_FOR} leader to handle previous voter change request"
        if high_watermark is None:
            problem = f"{_WAITS_FOR} leader to establish HWM and fence previous voter changes"
            return _TIMED_OUT, problem
        if self.quorum.history.is_static:
            problem = f"Cluster doesn't support {verb} voter because the {_FEATURE} feature is 0"
            return ErrorCode.UNSUPPORTED_VERSION, problem
        if not self._is_latest_committed(leader):
            offset = self.quorum.history.latest_offset
            problem = f"{_WAITS_FOR} voters to commit the latest voter change at Optional[{offset}]"
            return _TIMED_OUT, f"{problem} with HWM {high_watermark}"
        return None

    def _is_latest_committed(self, leader: Leader) -> bool:
        high_watermark = leader.high_watermark
        return high_watermark is not None and self.quorum.history.latest_offset < high_watermark

    def _refuse_voter(
        self, leader: Leader, voter: ReplicaKey, response: ProbeVoterResponse, now_ms: int
    ) -> Refusal | None:
        """Why a replica cannot be a voter, by what it says and by what it has fetched."""
        if response.error is not _NONE:
            problem = "Aborted add voter operation for since API_VERSIONS returned an error"
            return _TIMED_OUT, f"{problem} {response.error.name}"
        aborted, versions = (
            f"Aborted add voter operation for {shown(voter)}",
            response.kraft_versions,
        )
        if versions is None or not versions[0] <= 1 <= versions[1]:
            low, high = versions or (0, 0)
            held = f"(min: {low}, max: {high}" + ("" if versions is not None else ")")  # as Kafka
            problem = f"{aborted} since the {_FEATURE} range {held} doesn't support the finalized"
            return ErrorCode.INVALID_REQUEST, f"{problem} version 1"
        progress = leader.observers.get(voter)
        if progress is None or progress.last_fetch_ms is None or progress.last_caught_up_ms is None:
            return _TIMED_OUT, f"{aborted} since it is lagging behind"
        if progress.last_fetch_ms <= now_ms - CAUGHT_UP_MS:
            return _TIMED_OUT, f"{aborted} since it is lagging behind"
        return None

    # Parts.

    def _begin(
        self, leader: Leader, request: AddVoterRequest | RemoveVoterRequest, now_ms: int
    ) -> None:
        leader.change = VoterChange(request, now_ms + self.quorum.config.request_timeout_ms)

    def _append(self, voters: VoterSet) -> None:
        assert self.quorum.outbox.log_instruction is None
        self.quorum.outbox.log_instruction = AppendVoters(self.quorum.epoch, voters)

    def _end(self, leader: Leader, error: ErrorCode, message: str | None = None) -> None:
        change, leader.change = leader.change, None
        assert change is not None
        self._answer_change(change, error, message)

    def _answer_change(
        self, change: VoterChange, error: ErrorCode, message: str | None = None
    ) -> None:
        if not change.is_answered:
            change.is_answered = True
            self._answer(change.request, error, message)

    def _answer(
        self,
        request: AddVoterRequest | RemoveVoterRequest,
        error: ErrorCode,
        message: str | None = None,
    ) -> None:
        self.quorum.outbox.reply(answer_to(request, self.quorum.key.id, error, message))


def shown(key: ReplicaKey) -> str:
    """Return a replica as Kafka's messages show it."""
    directory = "<undefined>" if key.directory_id is None else key.directory_id
    return f"ReplicaKey(id={key.id}, directoryId={directory})"


def shown_all(voters: VoterSet) -> str:
    return f"[{', '.join(map(shown, voters.voters))}]"
