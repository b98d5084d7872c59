"""Who this node is in the quorum: what it must not forget, its role, and every change of role.

A role says what a node waits for; the hard state says what it may never do again. Each transition
makes both anew and leaves the hard state in the outbox if it differs. Votes given and a leader once
known stay known within their epoch.
"""

from random import Random

from odradek.core.errors import ErrorCode
from odradek.raft.config import RaftConfig
from odradek.raft.hard_state import HardState
from odradek.raft.leader import Leader
from odradek.raft.log_view import LogView
from odradek.raft.messages import FetchResponse, QuorumError, ReplicaKey, VoterDetails
from odradek.raft.ready import (
    AppendLeaderChange,
    BecameLeader,
    LeaderChanged,
    LostLeadership,
    Outbox,
)
from odradek.raft.requests import Requests
from odradek.raft.roles import (
    Candidate,
    Election,
    Follower,
    Prospective,
    Resigned,
    Role,
    Unattached,
)
from odradek.raft.voter_change import answer_to
from odradek.raft.voter_history import VoterHistory
from odradek.raft.voters import VoterNode, VoterSet


class Quorum:
    def __init__(
        self,
        key: ReplicaKey,
        history: VoterHistory,
        log: LogView,
        config: RaftConfig,
        random: Random,
        hard_state: HardState,
        *,
        bootstrap_ids: tuple[int, ...] = (),
        can_become_voter: bool = True,
        details: VoterDetails | None = None,
    ) -> None:
        self.key = key
        self.details = details
        self.history = history
        self.bootstrap_ids = bootstrap_ids
        self.can_become_voter = can_become_voter
        self.log = log
        self.config = config
        self.random = random

        # Durable: what the quorum-state file holds once the outbox is carried out.
        self.hard_state = hard_state

        # Soft: found anew after a restart.
        self.role: Role = Unattached(None)
        self.high_watermark: int | None = None
        self.flushed_offset = log.log_end_offset
        self.is_installing = False  # a fetched snapshot, which will replace the log
        self.requests = Requests(config.request_timeout_ms, config.retry_backoff_ms)
        self.outbox = Outbox()

    @property
    def epoch(self) -> int:
        return self.hard_state.epoch

    @property
    def leader_id(self) -> int | None:
        return self.hard_state.leader_id

    @property
    def voters(self) -> VoterSet:
        return self.history.latest

    @property
    def is_voter(self) -> bool:
        return self.voters.contains(self.key)

    @property
    def may_stand(self) -> bool:
        """Whether this node may stand for election; see ``VoterHistory``."""
        return self.history.may_stand(self.key, self.high_watermark)

    @property
    def held_offset(self) -> int:
        """How much of the log counts as held by this node.

        What is on disk, for a replica that votes or may vote some day. A replica that never will
        (a broker) counts all of its log and spares itself the fsync: nobody relies on its copy.
        """
        return self.flushed_offset if self.can_become_voter else self.log.log_end_offset

    @property
    def is_settled(self) -> bool:
        """Whether the whole log is held, and none is about to replace it.

        Until it is, this node neither fetches, which would claim that it is, nor stands for
        election: a candidate asks again in the same epoch after a crash, and a vote that it got
        for a longer log must not be counted for what is left of it.
        """
        return self.held_offset >= self.log.log_end_offset and not self.is_installing

    def start(self, now_ms: int) -> None:
        """Go on where the hard state left off."""
        state = self.hard_state
        if state.epoch < self.log.last_epoch:
            # The file was lost or restored from a backup. Votes of the log's epoch are not known,
            # so somebody voted already: the leader that wrote those records.
            self.become_unattached(self.log.last_epoch, now_ms)
        elif state.leader_id == self.key.id:
            # What it had appended may be lost, and a record is named by offset and epoch alone:
            # it must not write in this epoch again.
            self._enter(Resigned(self._election_deadline(now_ms), (), self._other_ids()))
        elif state.leader_id is not None:
            self._enter(self._follower(state.leader_id, now_ms))
        elif state.voted is not None and state.voted.matches(self.key) and self.may_stand:
            self._enter_candidate(now_ms)
        else:
            self._enter(Unattached(self._first_election_deadline(now_ms)))
        if self.voters.is_only(self.key) and not isinstance(self.role, Leader):
            self.become_prospective(now_ms)  # and with that, leader

    def become_unattached(self, epoch: int, now_ms: int) -> None:
        """Take part in ``epoch``, whose leader is not known."""
        assert epoch >= self.epoch
        # A removed leader has a deadline left, and nothing to stand for any more.
        deadline = self._remaining_election_deadline() if self.may_stand else None
        if deadline is None:
            deadline = self._voter_election_deadline(now_ms)
        if epoch > self.epoch:
            self._enter(Unattached(deadline), HardState(epoch))
        else:
            self._enter(Unattached(deadline))

    def become_follower(self, epoch: int, leader_id: int, now_ms: int) -> None:
        assert epoch >= self.epoch
        assert leader_id != self.key.id
        assert epoch > self.epoch or self.leader_id in (None, leader_id)
        voted = self.hard_state.voted if epoch == self.epoch else None
        self._enter(
            self._follower(leader_id, now_ms),
            HardState(epoch, leader_id, voted),
        )

    def _follower(self, leader_id: int, now_ms: int) -> Follower:
        may_vote = self.can_become_voter and self.details is not None
        check_ms = now_ms + self.config.own_voter_interval_ms if may_vote else None
        deadline_ms = self.fetch_deadline(leader_id, now_ms)
        return Follower(leader_id, deadline_ms, own_voter_check_ms=check_ms)

    def become_prospective(self, now_ms: int) -> None:
        """Ask whether this node would be elected; the only way to be a candidate."""
        assert self.may_stand
        assert not isinstance(self.role, Leader)
        election = self._own_election()
        self._enter(Prospective(election, self._election_deadline(now_ms)))
        if election.is_won:
            self.become_candidate(now_ms)

    def become_candidate(self, now_ms: int) -> None:
        assert isinstance(self.role, Prospective)
        self._persist(HardState(self.epoch + 1, voted=self.key))
        self._enter_candidate(now_ms)

    def become_leader(self, now_ms: int) -> None:
        assert isinstance(self.role, Candidate)
        assert self.role.election.is_won
        granting = self.role.election.granting_ids
        alone = not self._other_ids()
        leader = Leader(
            self.key,
            self.voters,
            epoch_start_offset=self.log.log_end_offset,
            check_quorum_deadline_ms=None if alone else self._check_quorum_deadline(now_ms),
            begin_epoch_deadline_ms=None if alone else now_ms,
        )
        self._enter(leader, HardState(self.epoch, self.key.id))
        self.outbox.events.append(BecameLeader(self.epoch, leader.epoch_start_offset))
        assert self.outbox.log_instruction is None
        self.outbox.log_instruction = AppendLeaderChange(
            self.epoch, self.key.id, self.voters.ids, granting, self._own_change()
        )
        if self.history.is_static and self.details is not None:
            leader.volatile_voters = self.voters.updated(VoterNode(self.key, self.details))

    def _own_change(self) -> VoterSet | None:
        """Return the voters with this node as it is, if the log has it otherwise."""
        details = self.details
        if (
            self.history.is_static
            or not self.is_voter
            or details in (None, self.voters.details.get(self.key.id))
        ):
            return None
        assert details is not None
        return self.voters.updated(VoterNode(self.key, details))

    def become_resigned(self, now_ms: int) -> None:
        assert isinstance(self.role, Leader)
        successors = self.role.preferred_successors()
        self._enter(Resigned(self._election_deadline(now_ms), successors, self._other_ids()))

    def vote_for(self, candidate: ReplicaKey, now_ms: int) -> None:
        """Give this epoch's vote. The timer starts anew: the candidate should get its chance."""
        assert self.hard_state.voted is None
        assert self.leader_id is None
        assert candidate.id != self.key.id
        self._persist(HardState(self.epoch, voted=candidate))
        match self.role:
            case Unattached():
                self._enter(Unattached(self._voter_election_deadline(now_ms)))
            case Prospective():
                self.become_prospective(now_ms)
            case _:
                raise AssertionError(f"a vote given as {self.role}")

    def learn_leader(self, epoch: int, leader_id: int | None, now_ms: int) -> None:
        """Take in what a peer says of an epoch that is not older than ours."""
        assert epoch >= self.epoch
        led = self._led_epoch()  # this epoch, or none
        if leader_id == self.key.id and epoch != led and not self.may_stand:
            leader_id = None  # it was this node with another disk, before that was lost
        if leader_id == self.key.id and epoch != led:
            raise QuorumError(
                f"node {leader_id} is taken for the leader of epoch {epoch} and does not know it; "
                f"was its quorum-state file lost?"
            )
        if epoch > self.epoch:
            if leader_id is None:
                self.become_unattached(epoch, now_ms)
            else:
                self.become_follower(epoch, leader_id, now_ms)
        elif leader_id is not None and self.leader_id is None:
            self.become_follower(epoch, leader_id, now_ms)
        elif leader_id not in (None, self.leader_id):
            raise QuorumError(f"epoch {epoch} has two leaders, {self.leader_id} and {leader_id}")

    def on_voters_changed(self, now_ms: int) -> None:
        """Go on with the voters that the log names now.

        A leader that is no voter any more leads on until that is committed, or nobody could commit
        it; see ``Replication``.
        """
        match self.role:
            case Leader() as leader:
                leader.change_voters(self.voters)
                if not self.history.is_static:
                    leader.volatile_voters = None
                if not leader.progress:
                    leader.check_quorum_deadline_ms = leader.begin_epoch_deadline_ms = None
                elif leader.check_quorum_deadline_ms is None:
                    leader.check_quorum_deadline_ms = self._check_quorum_deadline(now_ms)
                    leader.begin_epoch_deadline_ms = now_ms
            case Prospective() | Candidate():
                self.become_unattached(self.epoch, now_ms)
            case Unattached() as role:
                if (role.election_deadline_ms is not None) != self.may_stand:
                    role.election_deadline_ms = self._voter_election_deadline(now_ms)
            case Follower() as role:
                if (role.fetch_deadline_ms is not None) != self.may_stand:
                    role.fetch_deadline_ms = self.fetch_deadline(role.leader_id, now_ms)
            case Resigned():
                pass

    def is_due_to_stand(self, deadline_ms: int | None, now_ms: int) -> bool:
        """Whether a deadline is over; not for a node whose removal was committed meanwhile."""
        is_over = deadline_ms is not None and deadline_ms <= now_ms and self.is_settled
        if is_over and not self.may_stand:
            self.on_voters_changed(now_ms)
            return False
        return is_over

    def _led_epoch(self) -> int | None:
        return self.epoch if self.leader_id == self.key.id else None

    @property
    def peer_ids(self) -> tuple[int, ...]:
        """Whom to ask for the leader: the other voters and the bootstrap servers."""
        return (*self._other_ids(), *self.bootstrap_ids)

    def refuse_to_lead(self, current_leader_epoch: int) -> ErrorCode:
        """Why this node does not answer a fetch in that epoch as its leader; NONE if it does."""
        if current_leader_epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if current_leader_epoch > self.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if not isinstance(self.role, Leader):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    def advance_high_watermark(self, offset: int) -> None:
        assert offset <= self.log.log_end_offset
        if self.high_watermark is None or offset > self.high_watermark:
            self.high_watermark = self.outbox.high_watermark = offset

    def _enter_candidate(self, now_ms: int) -> None:
        election = self._own_election()
        self._enter(Candidate(election, self._election_deadline(now_ms)))
        if election.is_won:
            self.become_leader(now_ms)

    def _own_election(self) -> Election:
        election = Election(self.voters)
        if self.is_voter:
            election.record(self.key.id, True)
        return election

    def _enter(self, role: Role, hard_state: HardState | None = None) -> None:
        before = self.role
        if isinstance(before, Leader):
            self.outbox.events.append(LostLeadership(self.epoch))
        if hard_state is not None:
            self._persist(hard_state)
        self.role = role
        self.requests.reset()
        if isinstance(before, Leader):
            self._release_parked(before)
            self._release_change(before)

    def _persist(self, state: HardState) -> None:
        if state == self.hard_state:
            return
        assert state.epoch >= self.epoch
        leader_before = (self.epoch, self.leader_id)
        self.hard_state = self.outbox.hard_state = state
        if (state.epoch, state.leader_id) != leader_before and state.leader_id != self.key.id:
            self.outbox.events.append(LeaderChanged(state.epoch, state.leader_id))

    def _release_parked(self, leader: Leader) -> None:
        # So that they look for the new leader now and not when their wait is over.
        for fetch in leader.parked:
            refusal = FetchResponse(
                fetch.request.correlation_id,
                self.key.id,
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                self.leader_id,
                self.epoch,
            )
            self.outbox.reply(refusal)

    def _release_change(self, leader: Leader) -> None:
        # Whether it will be committed is not known; the next leader may do it.
        change, leader.change = leader.change, None
        if change is not None and not change.is_answered:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            self.outbox.reply(answer_to(change.request, self.key.id, error))

    def _remaining_election_deadline(self) -> int | None:
        """The timer goes on over a new epoch, or a node that cannot win would hold up all others
        by one epoch after the other; it starts anew for who led, followed or has just lost.
        """
        match self.role:
            case Prospective(election=election) if election.is_lost:
                return None
            case Unattached() | Prospective() | Candidate() | Resigned():
                return self.role.election_deadline_ms
            case Follower() | Leader():
                return None

    def _other_ids(self) -> list[int]:
        return [voter.id for voter in self.voters.others(self.key.id)]

    def _voter_election_deadline(self, now_ms: int) -> int | None:
        return self._election_deadline(now_ms) if self.may_stand else None

    def _election_deadline(self, now_ms: int) -> int:
        return now_ms + self.config.random_election_timeout_ms(self.random)

    def _first_election_deadline(self, now_ms: int) -> int | None:
        if not self.may_stand:
            return None
        return now_ms + self.config.random_first_timeout_ms(self.random)

    def fetch_deadline(self, leader_id: int, now_ms: int) -> int | None:
        """Return until when a follower waits for its leader; None for one that cannot lead."""
        if not self.may_stand:
            return None
        follower_ids = sorted({*self.voters.ids, self.key.id} - {leader_id})
        position = follower_ids.index(self.key.id)
        return now_ms + self.config.follower_timeout_ms(position, len(follower_ids))

    def _check_quorum_deadline(self, now_ms: int) -> int:
        return now_ms + self.config.check_quorum_timeout_ms

    def extend_check_quorum(self, leader: Leader, now_ms: int) -> None:
        """Let the leader lead on if a majority was heard of."""
        if leader.has_quorum():
            leader.fetched_voters.clear()
            leader.check_quorum_deadline_ms = self._check_quorum_deadline(now_ms)
