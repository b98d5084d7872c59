"""A follower sees to it that the voters have it as it is (KIP-853, KIP-1078 for version 0).

A voter that was started again with other endpoints says so with UpdateVoter. In kraft.version 0 no
log says where voters listen: each says it to each new leader, so that an upgrade knows all of them.

A controller without a vote asks for one if it is configured to (``auto_join``). A voter of its id
in another directory is its disk that was lost: that is removed first. Both are changes like any
other, committed by a majority of the voters that live: two lost disks of three make no quorum.
"""

from typing import Final

from odradek.core.errors import ErrorCode
from odradek.raft.messages import (
    AddVoterRequest,
    AddVoterResponse,
    RemoveVoterRequest,
    RemoveVoterResponse,
    UpdateVoterRequest,
    UpdateVoterResponse,
    VoterDetails,
)
from odradek.raft.quorum import Quorum
from odradek.raft.roles import Follower

_DONE: Final = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.DUPLICATE_VOTER,
        ErrorCode.VOTER_NOT_FOUND,
    }
)


class OwnVoter:
    __slots__ = ("quorum",)

    def __init__(self, quorum: Quorum) -> None:
        self.quorum = quorum

    def poll(self, role: Follower, now_ms: int) -> bool:
        """Do what is due; return whether a request was sent, so that no fetch can be."""
        quorum, details = self.quorum, self.quorum.details
        due_ms = role.own_voter_check_ms
        if due_ms is None or due_ms > now_ms or details is None or not quorum.is_settled:
            return False
        ask = self._find_request(role, details)
        if ask and not quorum.requests.may_send(role.leader_id, now_ms):
            return False  # before the next fetch, then
        role.own_voter_check_ms = now_ms + quorum.config.own_voter_interval_ms
        if ask:
            self._send(role, details, now_ms)
        return ask

    def on_update_response(
        self, role: Follower, response: UpdateVoterResponse, now_ms: int
    ) -> None:
        role.has_updated_leader = True
        if role.fetch_deadline_ms is not None and response.error is ErrorCode.NONE:
            role.fetch_deadline_ms = self.quorum.fetch_deadline(role.leader_id, now_ms)

    def on_change_response(
        self, role: Follower, response: AddVoterResponse | RemoveVoterResponse, now_ms: int
    ) -> None:
        role.own_voter_check_ms = now_ms + self.quorum.config.own_voter_interval_ms
        if response.error not in _DONE:
            self.quorum.requests.back_off(response.sender, now_ms)

    def _find_request(self, role: Follower, details: VoterDetails) -> bool:
        """Whether there is something to ask of the leader."""
        quorum = self.quorum
        is_static = quorum.history.is_static
        if not quorum.is_voter:
            return quorum.config.auto_join and quorum.can_become_voter and not is_static
        if is_static:
            return not role.has_updated_leader
        return quorum.voters.details.get(quorum.key.id) != details

    def _send(self, role: Follower, details: VoterDetails, now_ms: int) -> None:
        quorum = self.quorum
        correlation_id = quorum.requests.open(role.leader_id, now_ms)
        known = quorum.voters.find(quorum.key.id)
        request: UpdateVoterRequest | RemoveVoterRequest | AddVoterRequest
        if quorum.is_voter:
            request = UpdateVoterRequest(correlation_id, quorum.key, quorum.epoch, details)
        elif known is not None:
            request = RemoveVoterRequest(correlation_id, known)
        else:
            request = AddVoterRequest(
                correlation_id, quorum.key, details.endpoints, ack_when_committed=False
            )
        quorum.outbox.send(role.leader_id, request)
