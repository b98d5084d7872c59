"""One member of the metadata quorum: KRaft as a state machine.

Theory of operation. The driver feeds messages (``step``), time (``tick``) and news of the log
(``on_appended``, ``on_flushed``), then takes a :class:`Ready` and carries it out in its order
(``ready``), and so on. The node does no I/O, knows no clock, and looks at the log only through a
:class:`LogView`, which must be as the last Ready left it. At the start all of the log is flushed.

::

    Unattached   election timeout            -> Prospective; soon after the start, see ADR 17
    Prospective  majority would vote for it  -> Candidate, in a new epoch
                 lost, or timeout            -> Follower if a leader is known, else Unattached
    Candidate    majority voted for it       -> Leader
                 timeout                     -> Prospective
    Follower     fetch timeout               -> Prospective
    Leader       heard of no majority, or resigns -> Resigned
    Resigned     election timeout            -> Unattached, in a new epoch
    any          hears of a later epoch, or of the leader of this one -> Unattached or Follower

A quorum of one leads a new epoch when the constructor returns, and commits what is flushed.
"""

from random import Random
from typing import assert_never

from odradek.core.errors import ErrorCode
from odradek.raft.config import RaftConfig
from odradek.raft.hard_state import HardState
from odradek.raft.leader import Leader
from odradek.raft.log_view import LogView
from odradek.raft.messages import (
    AddVoterRequest,
    AddVoterResponse,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    LeaderResponse,
    Message,
    OffsetAndEpoch,
    ProbeVoterRequest,
    ProbeVoterResponse,
    RemoveVoterRequest,
    RemoveVoterResponse,
    ReplicaKey,
    Response,
    UpdateVoterRequest,
    UpdateVoterResponse,
    VoterDetails,
    VoteRequest,
    VoteResponse,
)
from odradek.raft.own_voter import OwnVoter
from odradek.raft.quorum import Quorum
from odradek.raft.ready import Ready
from odradek.raft.replication import Replication
from odradek.raft.roles import Candidate, Follower, Prospective, Resigned, Role, Unattached
from odradek.raft.snapshots import fetch_piece, on_piece, on_snapshot_request
from odradek.raft.voter_changes import VoterChanges
from odradek.raft.voter_history import VoterHistory
from odradek.raft.voters import VoterSet
from odradek.raft.voting import Voting


class RaftNode:
    def __init__(
        self,
        key: ReplicaKey,
        voters: VoterSet | VoterHistory,
        log: LogView,
        hard_state: HardState,
        *,
        config: RaftConfig,
        random: Random,
        now_ms: int,
        bootstrap_ids: tuple[int, ...] = (),
        can_become_voter: bool = True,
        details: VoterDetails | None = None,
    ) -> None:
        """Go on where the log and the hard state left off.

        ``bootstrap_ids`` are negative: addresses where a leader may be asked for, not replicas.
        A node that can never vote (``can_become_voter``) does not wait for its flushes. ``details``
        are what the voters should have of this one; None if it says nothing of itself.
        """
        history = voters if isinstance(voters, VoterHistory) else VoterHistory(voters)
        self._quorum = Quorum(
            key,
            history,
            log,
            config,
            random,
            hard_state,
            bootstrap_ids=bootstrap_ids,
            can_become_voter=can_become_voter,
            details=details,
        )
        self._voting = Voting(self._quorum)
        self._changes = VoterChanges(self._quorum)
        self._own_voter = OwnVoter(self._quorum)
        self._replication = Replication(self._quorum, self._changes)
        self._now_ms = now_ms
        self._quorum.start(now_ms)
        self._poll(now_ms)

    @property
    def key(self) -> ReplicaKey:
        return self._quorum.key

    @property
    def role(self) -> Role:
        return self._quorum.role

    @property
    def hard_state(self) -> HardState:
        return self._quorum.hard_state

    @property
    def epoch(self) -> int:
        return self._quorum.epoch

    @property
    def leader_id(self) -> int | None:
        return self._quorum.leader_id

    @property
    def is_leader(self) -> bool:
        return isinstance(self._quorum.role, Leader)

    @property
    def voters(self) -> VoterSet:
        return self._quorum.voters

    @property
    def is_voter(self) -> bool:
        return self._quorum.is_voter

    @property
    def log_end_offset(self) -> int:
        return self._quorum.log.log_end_offset

    @property
    def has_unflushed(self) -> bool:
        quorum = self._quorum
        return quorum.flushed_offset < quorum.log.log_end_offset and not quorum.is_installing

    @property
    def high_watermark(self) -> int | None:
        """How far the log is committed, as far as this node knows; never goes back."""
        return self._quorum.high_watermark

    def step(self, message: Message, now_ms: int) -> None:
        """Take one message from a peer.

        Raises:
            QuorumError: The message contradicts what this node knows to be decided.
        """
        self._enter(now_ms)
        match message:
            case VoteRequest():
                self._voting.on_vote_request(message, now_ms)
            case BeginQuorumEpochRequest():
                self._voting.on_begin_request(message, now_ms)
            case EndQuorumEpochRequest():
                self._voting.on_end_request(message, now_ms)
            case FetchRequest():
                self._replication.on_fetch_request(message, now_ms)
            case FetchSnapshotRequest():
                on_snapshot_request(self._quorum, message, now_ms)
            case AddVoterRequest():
                self._changes.on_add_request(message, now_ms)
            case RemoveVoterRequest():
                self._changes.on_remove_request(message, now_ms)
            case UpdateVoterRequest():
                self._changes.on_update_request(message, now_ms)
            case ProbeVoterRequest():
                raise AssertionError("an ApiVersions, which raft does not answer")
            case (
                VoteResponse()
                | BeginQuorumEpochResponse()
                | EndQuorumEpochResponse()
                | FetchResponse()
                | FetchSnapshotResponse()
                | AddVoterResponse()
                | RemoveVoterResponse()
                | UpdateVoterResponse()
                | ProbeVoterResponse()
            ):
                self._on_response(message, now_ms)
            case _ as unreachable:
                assert_never(unreachable)
        self._poll(now_ms)

    def tick(self, now_ms: int) -> None:
        """Let time pass; does nothing before ``next_deadline_ms()``."""
        self._enter(now_ms)
        self._poll(now_ms)

    def on_appended(self, now_ms: int, *, is_no_op: bool = False) -> None:
        """Say that the log has grown: by what was fetched, or by a leader's own records.

        ``is_no_op``: nobody waits for the commit of what a leader appended.
        """
        self._enter(now_ms)
        match self.role:
            case Leader() as leader:
                if not is_no_op:
                    leader.urgent_offset = self.log_end_offset
                self._replication.answer_parked(leader, now_ms)
            case Follower() as follower if self._quorum.is_settled:
                # A replica that never votes: the others go on when it is flushed.
                self._replication.follow_high_watermark(follower)
                self._poll(now_ms)
            case _:
                pass

    def on_append_refused(self, now_ms: int) -> None:
        """Say that nothing of what was fetched could be appended: leave the leader alone a bit."""
        self._enter(now_ms)
        self._back_off_from_leader(now_ms)

    def on_truncated(self, now_ms: int) -> None:
        """Say where the log ends now: before what was asked for, if that was within a batch."""
        self._enter(now_ms)
        quorum = self._quorum
        end_offset = quorum.log.log_end_offset
        quorum.flushed_offset = min(quorum.flushed_offset, end_offset)
        if quorum.history.truncate_to(end_offset):
            quorum.on_voters_changed(now_ms)

    def on_flushed(self, offset: int, now_ms: int) -> None:
        """Say that the log is on disk up to ``offset``, exclusive."""
        self._enter(now_ms)
        assert offset <= self._quorum.log.log_end_offset
        self._quorum.flushed_offset = max(self._quorum.flushed_offset, offset)
        self._replication.on_flushed(now_ms)
        self._poll(now_ms)

    def on_voters_appended(self, offset: int, voters: VoterSet, now_ms: int) -> None:
        """Say that the log names its voters at ``offset``; they count from now on."""
        self._enter(now_ms)
        self._quorum.history.append(offset, voters)
        self._quorum.on_voters_changed(now_ms)
        if isinstance(self.role, Leader):
            self._changes.on_appended(self.role, offset)

    def on_voters_refused(self, now_ms: int) -> None:
        """Say that there was no space for a record with voters; they are those that they were."""
        self._enter(now_ms)
        self._changes.on_refused()

    def on_snapshot_installed(
        self, snapshot_id: OffsetAndEpoch, voters: VoterSet | None, now_ms: int
    ) -> None:
        """Say that the log begins anew behind a fetched snapshot, which is on disk.

        ``voters`` are those that the snapshot names; None if the quorum's voters are static.
        """
        self._enter(now_ms)
        quorum = self._quorum
        assert quorum.log.log_end_offset == quorum.log.log_start_offset == snapshot_id.offset
        quorum.is_installing = False
        quorum.flushed_offset = snapshot_id.offset
        quorum.history.start_at(snapshot_id.offset, voters)
        quorum.on_voters_changed(now_ms)
        quorum.advance_high_watermark(snapshot_id.offset)
        self._poll(now_ms)

    def on_snapshot_refused(self, now_ms: int) -> None:
        """Say that what was fetched of a snapshot is thrown away: damaged, or without space."""
        self._enter(now_ms)
        self._quorum.is_installing = False
        if isinstance(self.role, Follower):
            self.role.download = None
        self._back_off_from_leader(now_ms)

    def on_send_failed(self, target: int, correlation_id: int, now_ms: int) -> None:
        """Say that no answer to a request will come: the connection is closed."""
        self._enter(now_ms)
        self._quorum.requests.fail(target, correlation_id, now_ms)
        self._poll(now_ms)

    def resign(self, now_ms: int) -> None:
        """Give up leadership, as before a clean stop; nothing happens if this node has none."""
        self._enter(now_ms)
        if self.is_leader:
            self._quorum.become_resigned(now_ms)
        self._poll(now_ms)

    def take_ready(self) -> Ready:
        """Return what to do, and take it as done: see ``ready`` for the order."""
        return self._quorum.outbox.take()

    def next_deadline_ms(self) -> int | None:
        """Return when to call ``tick``, at the latest; None if only messages can move this node."""
        times = [self._quorum.requests.next_deadline_ms(), self._role_deadline_ms()]
        if self._may_fetch_now():  # the log was cut, or flushed, since the last poll
            times.append(self._now_ms)
        return min((time for time in times if time is not None), default=None)

    def check_invariants(self) -> None:
        quorum = self._quorum
        quorum.hard_state.check_invariants()
        end_offset = quorum.log.log_end_offset
        assert quorum.epoch >= quorum.log.last_epoch
        assert quorum.flushed_offset <= end_offset
        assert quorum.high_watermark is None or quorum.high_watermark <= end_offset
        leads = isinstance(quorum.role, Leader | Resigned)
        match quorum.role:
            case Leader() as leader:
                assert leader.high_watermark in (None, quorum.high_watermark)
                assert leader.epoch_start_offset <= end_offset
                assert leader.voters == quorum.voters
            case Follower(leader_id=leader_id):
                assert leader_id == quorum.leader_id != quorum.key.id
            case Candidate():
                assert quorum.leader_id is None
                assert quorum.hard_state.voted is not None
                assert quorum.hard_state.voted.matches(quorum.key)
            case Unattached() | Prospective() | Resigned():
                pass
        assert not leads or quorum.leader_id == quorum.key.id

    def _enter(self, now_ms: int) -> None:
        assert self._quorum.outbox.log_instruction is None, "carry out the last Ready first"
        assert now_ms >= self._now_ms, "time went back; drive the node by a monotonic clock"
        self._now_ms = now_ms

    def _back_off_from_leader(self, now_ms: int) -> None:
        if isinstance(self.role, Follower):
            self._quorum.requests.back_off(self.role.leader_id, now_ms)

    def _on_response(self, response: Response, now_ms: int) -> None:
        if not self._quorum.requests.close(response.sender, response.correlation_id):
            return  # asked in an earlier role, or given up
        match self.role, response:
            case _, ProbeVoterResponse():
                self._changes.on_probe_response(response, now_ms)
            case Follower() as role, AddVoterResponse() | RemoveVoterResponse():
                self._own_voter.on_change_response(role, response, now_ms)
            case _, AddVoterResponse() | RemoveVoterResponse():
                pass
            case _:
                self._on_leader_response(response, now_ms)

    def _on_leader_response(self, response: LeaderResponse, now_ms: int) -> None:
        if not self._is_relevant(response, now_ms):
            if isinstance(self.role, Follower):
                self.role.download = None  # gone at the leader, or the leader is: choose again
            return
        match self.role, response:
            case (Prospective() | Candidate()) as role, VoteResponse():
                self._voting.on_vote_response(role, response, now_ms)
            case Follower() as role, FetchResponse():
                self._replication.on_fetch_response(role, response, now_ms)
            case Follower() as role, FetchSnapshotResponse():
                on_piece(self._quorum, role, response, now_ms)
            case Follower() as role, UpdateVoterResponse():
                self._own_voter.on_update_response(role, response, now_ms)
            case Resigned() as role, EndQuorumEpochResponse():
                role.unacknowledged.remove(response.sender)
            case _:
                pass  # nothing to note: the peer agrees

    def _is_relevant(self, response: LeaderResponse, now_ms: int) -> bool:
        """Whether a response answers in this epoch and without error; learn from it if not."""
        quorum, error = self._quorum, response.error
        if error is ErrorCode.UNSUPPORTED_VERSION and isinstance(quorum.role, Prospective):
            quorum.become_candidate(now_ms)  # the peer is from before pre-votes
            return False
        if error is ErrorCode.UNSUPPORTED_VERSION and isinstance(response, UpdateVoterResponse):
            return True  # a leader from before KIP-853: it need not know
        is_news = response.leader_id is not None and quorum.leader_id is None
        if error is ErrorCode.NONE and response.leader_epoch == quorum.epoch and not is_news:
            return True
        quorum.requests.back_off(response.sender, now_ms)
        if response.leader_epoch >= quorum.epoch:
            quorum.learn_leader(response.leader_epoch, response.leader_id, now_ms)
        return False

    def _poll(self, now_ms: int) -> None:
        """Do what is due in the role, again for each role that this leads to."""
        self._quorum.requests.expire(now_ms)
        while self._quorum.outbox.log_instruction is None:
            before = self.role
            self._poll_role(now_ms)
            if self.role is before:
                return

    def _poll_role(self, now_ms: int) -> None:
        quorum = self._quorum
        match self.role:
            case Unattached(election_deadline_ms=deadline):
                if quorum.is_due_to_stand(deadline, now_ms):
                    quorum.become_prospective(now_ms)
                else:
                    self._replication.fetch(None, now_ms)
            case Follower(leader_id=leader_id, fetch_deadline_ms=deadline) as role:
                if quorum.is_due_to_stand(deadline, now_ms):
                    quorum.become_prospective(now_ms)
                elif role.download is not None:
                    fetch_piece(quorum, role, now_ms)
                elif not self._own_voter.poll(role, now_ms):
                    self._replication.fetch(leader_id, now_ms)
            case Prospective(election_deadline_ms=deadline) as role:
                if deadline <= now_ms:
                    self._voting.give_up(now_ms)
                else:
                    self._voting.request_votes(role, now_ms)
            case Candidate(election_deadline_ms=deadline) as role:
                if deadline <= now_ms:
                    quorum.become_prospective(now_ms)
                else:
                    self._voting.request_votes(role, now_ms)
            case Leader() as leader:
                self._poll_leader(leader, now_ms)
            case Resigned(election_deadline_ms=deadline) as role:
                if deadline <= now_ms:
                    # Into a new epoch, so that nobody is told any longer that this node leads.
                    quorum.become_unattached(quorum.epoch + 1, now_ms)
                else:
                    self._voting.announce_end(role, now_ms)
            case _ as unreachable:
                assert_never(unreachable)

    def _poll_leader(self, leader: Leader, now_ms: int) -> None:
        check_quorum, begin_epoch = leader.check_quorum_deadline_ms, leader.begin_epoch_deadline_ms
        if check_quorum is not None and check_quorum <= now_ms:
            self._quorum.become_resigned(now_ms)
            return
        self._changes.expire(leader, now_ms)
        self._replication.answer_parked(leader, now_ms)
        if begin_epoch is not None and begin_epoch <= now_ms:
            self._voting.announce(leader, now_ms)

    def _may_fetch_now(self) -> bool:
        quorum = self._quorum
        return (
            isinstance(quorum.role, Unattached | Follower)
            and quorum.is_settled
            and quorum.requests.next_deadline_ms() is None
            and len(quorum.peer_ids) > 0
        )

    def _role_deadline_ms(self) -> int | None:
        match self.role:
            case Leader() as leader:
                return leader.next_deadline_ms()
            case Follower() as follower:
                return self._follower_deadline_ms(follower)
            case Unattached(election_deadline_ms=deadline):
                return deadline if self._quorum.is_settled else None
            case Prospective() | Candidate() | Resigned():
                return self.role.election_deadline_ms
            case _ as unreachable:
                assert_never(unreachable)

    def _follower_deadline_ms(self, follower: Follower) -> int | None:
        # Not while a flush is awaited, which will call: the driver would spin.
        if not self._quorum.is_settled:
            return None
        deadline_ms, check_ms = follower.fetch_deadline_ms, follower.own_voter_check_ms
        if check_ms is None or check_ms <= self._now_ms:  # it waits for the request under way
            return deadline_ms
        return check_ms if deadline_ms is None else min(deadline_ms, check_ms)
