"""Replication by Fetch: followers pull, and what they ask for tells the leader what they have.

A follower sends the end of its log and the epoch of its last record. If the leader's log has no
such point, it answers with the diverging epoch and where that ends for it; the follower cuts its
log and asks again. Else it answers with records. A fetch without news is parked; that a record was
committed is news (KIP-1166), but not that a no-op was. To a follower that is behind the start of
the leader's log it names the snapshot to be fetched first (``snapshots``).
"""

from odradek.core.errors import ErrorCode
from odradek.raft.config import PARKED_FETCHES_MAX
from odradek.raft.leader import Leader, ParkedFetch
from odradek.raft.log_view import (
    find_divergence,
    find_needed_snapshot,
    log_end,
    truncation_offset,
)
from odradek.raft.messages import FetchRequest, FetchResponse, OffsetAndEpoch, QuorumError
from odradek.raft.quorum import Quorum
from odradek.raft.ready import AppendFetched, FetchRead, Truncate
from odradek.raft.roles import Follower
from odradek.raft.snapshots import begin_download
from odradek.raft.voter_changes import VoterChanges


class Replication:
    __slots__ = ("_changes", "quorum")

    def __init__(self, quorum: Quorum, changes: VoterChanges) -> None:
        self.quorum = quorum
        self._changes = changes

    def on_fetch_request(self, request: FetchRequest, now_ms: int) -> None:
        leader = self.quorum.role
        error = self._refusal(request)
        if error is not ErrorCode.NONE or not isinstance(leader, Leader):
            self._answer(request, error)
            return
        log = self.quorum.log
        snapshot = find_needed_snapshot(log, request.fetch_offset, request.last_fetched_epoch)
        if snapshot is not None:
            self._answer(request, high_watermark=leader.high_watermark, snapshot_id=snapshot)
            return
        diverging = find_divergence(log, request.fetch_offset, request.last_fetched_epoch)
        if diverging is not None:
            self._answer(request, high_watermark=leader.high_watermark, diverging_epoch=diverging)
            return
        self._note(leader, request, now_ms)
        if leader.has_news(request, log.log_end_offset):
            self._answer_with_records(leader, request)
        elif request.max_wait_ms <= 0 or len(leader.parked) >= PARKED_FETCHES_MAX:
            self._answer(request, high_watermark=leader.high_watermark)
        else:
            leader.parked.append(ParkedFetch(request, now_ms + request.max_wait_ms))

    def on_fetch_response(self, role: Follower, response: FetchResponse, now_ms: int) -> None:
        quorum = self.quorum
        role.has_fetched = True
        if role.fetch_deadline_ms is not None:
            role.fetch_deadline_ms = quorum.fetch_deadline(role.leader_id, now_ms)
        if response.diverging_epoch is not None:
            self._truncate(response.diverging_epoch, now_ms)
            return
        if response.snapshot_id is not None:
            begin_download(quorum, role, response.snapshot_id, now_ms)
            return
        if response.records is not None:
            quorum.outbox.log_instruction = AppendFetched(response.records)
        role.leader_high_watermark = response.high_watermark
        if response.records is None:
            self.follow_high_watermark(role)

    def on_flushed(self, now_ms: int) -> None:
        match self.quorum.role:
            case Leader() as leader:
                moved = self._advance(leader)
                self.answer_parked(leader, now_ms)
                if moved:
                    self._on_committed(leader, now_ms)
            case Follower() as follower:
                self.follow_high_watermark(follower)
            case _:
                pass  # counts in what is fetched or voted on next

    def follow_high_watermark(self, role: Follower) -> None:
        if role.leader_high_watermark is not None:
            held_offset = self.quorum.held_offset
            self.quorum.advance_high_watermark(min(role.leader_high_watermark, held_offset))

    def answer_parked(self, leader: Leader, now_ms: int) -> None:
        log_end_offset = self.quorum.log.log_end_offset
        for fetch in leader.take_parked(log_end_offset, now_ms):
            self._answer_with_records(leader, fetch.request)

    def fetch(self, leader_id: int | None, now_ms: int) -> None:
        """Keep one fetch under way: to the leader, or to any peer to hear who that is."""
        quorum = self.quorum
        if not quorum.is_settled or quorum.requests.is_in_flight():
            return
        target = self._find_target(leader_id, now_ms)
        if target is None:
            return
        end = log_end(quorum.log)
        is_leader = target == leader_id  # else it is asked who that is, and answers at once
        request = FetchRequest(
            quorum.requests.open(target, now_ms, needs_answer_soon=not is_leader),
            quorum.key,
            quorum.epoch,
            end.offset,
            end.epoch,
            quorum.high_watermark,
            quorum.config.fetch_max_wait_ms if is_leader else 0,
        )
        quorum.outbox.send(target, request)

    def _find_target(self, leader_id: int | None, now_ms: int) -> int | None:
        requests = self.quorum.requests
        if leader_id is not None and requests.may_send(leader_id, now_ms):
            return leader_id
        ready = [peer for peer in self.quorum.peer_ids if requests.may_send(peer, now_ms)]
        return self.quorum.random.choice(ready) if ready else None

    def _refusal(self, request: FetchRequest) -> ErrorCode:
        is_sound = 0 <= request.last_fetched_epoch <= request.current_leader_epoch
        if not is_sound or request.fetch_offset < 0:
            return ErrorCode.INVALID_REQUEST
        error = self.quorum.refuse_to_lead(request.current_leader_epoch)
        if error is ErrorCode.NONE and request.replica.id == self.quorum.key.id:
            # One that looks for the leader may ask itself: it is a bootstrap server, too.
            return ErrorCode.INVALID_REQUEST
        return error

    def _note(self, leader: Leader, request: FetchRequest, now_ms: int) -> None:
        if not leader.on_fetch(request, self.quorum.log.log_end_offset, now_ms):
            return
        self.quorum.extend_check_quorum(leader, now_ms)
        if self._advance(leader):
            self.answer_parked(leader, now_ms)
            self._on_committed(leader, now_ms)

    def _on_committed(self, leader: Leader, now_ms: int) -> None:
        self._changes.on_committed(leader)
        self._resign_if_removed(now_ms)

    def _resign_if_removed(self, now_ms: int) -> None:
        """Stop leading when it is committed that this node has no vote any more (KAFKA-17608)."""
        quorum = self.quorum
        committed = quorum.high_watermark is not None and (
            quorum.history.latest_offset < quorum.high_watermark
        )
        if committed and not quorum.is_voter:
            quorum.become_resigned(now_ms)

    def _advance(self, leader: Leader) -> bool:
        if not leader.advance(self.quorum.flushed_offset):
            return False
        assert leader.high_watermark is not None
        self.quorum.advance_high_watermark(leader.high_watermark)
        return True

    def _truncate(self, diverging: OffsetAndEpoch, now_ms: int) -> None:
        quorum = self.quorum
        offset = truncation_offset(quorum.log, diverging)
        if quorum.high_watermark is not None and offset < quorum.high_watermark:
            raise QuorumError(
                f"leader {quorum.leader_id} of epoch {quorum.epoch} lacks records from {offset} on "
                f"that are committed up to {quorum.high_watermark}"
            )
        quorum.outbox.log_instruction = Truncate(offset)
        quorum.flushed_offset = min(quorum.flushed_offset, offset)
        if quorum.history.truncate_to(offset):
            quorum.on_voters_changed(now_ms)

    def _answer_with_records(self, leader: Leader, request: FetchRequest) -> None:
        if request.fetch_offset >= self.quorum.log.log_end_offset:
            self._answer(request, high_watermark=leader.high_watermark)
            return
        response = self._response(request, high_watermark=leader.high_watermark)
        read = FetchRead(request.fetch_offset, response)
        self.quorum.outbox.reads.append(read)

    def _answer(
        self,
        request: FetchRequest,
        error: ErrorCode = ErrorCode.NONE,
        *,
        high_watermark: int | None = None,
        diverging_epoch: OffsetAndEpoch | None = None,
        snapshot_id: OffsetAndEpoch | None = None,
    ) -> None:
        response = self._response(
            request,
            error,
            high_watermark=high_watermark,
            diverging_epoch=diverging_epoch,
            snapshot_id=snapshot_id,
        )
        self.quorum.outbox.reply(response)

    def _response(
        self,
        request: FetchRequest,
        error: ErrorCode = ErrorCode.NONE,
        *,
        high_watermark: int | None = None,
        diverging_epoch: OffsetAndEpoch | None = None,
        snapshot_id: OffsetAndEpoch | None = None,
    ) -> FetchResponse:
        return FetchResponse(
            request.correlation_id,
            self.quorum.key.id,
            error,
            self.quorum.leader_id,
            self.quorum.epoch,
            high_watermark,
            diverging_epoch,
            snapshot_id=snapshot_id,
        )
