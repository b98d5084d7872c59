"""Bugs of the control plane, to be planted into nodes one at a time; a storm must find each.

The numbers are those of the design's table of bugs.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

import pytest

from odradek.broker.lifecycle import BrokerLifecycle
from odradek.control.controller_host import Active, ControllerHost
from odradek.controller import PRODUCER_IDS_PER_BLOCK, Controller
from odradek.controller.metadata_offsets import MetadataOffsets
from odradek.controller.result import Result
from odradek.core.errors import ErrorCode
from odradek.protocol.generated.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from odradek.quorum.metadata_log import MetadataLog
from odradek.raft.leader import Leader
from odradek.raft.quorum import Quorum
from odradek.raft.replication import Replication
from odradek.raft.voter_changes import VoterChanges

Plant = Callable[[pytest.MonkeyPatch], None]


class Bug(NamedTuple):
    number: str
    plant: Plant
    level: str
    shape: str | None
    seeds_max: int
    """By when it is found; that is some three times what it takes now."""
    only: tuple[str, ...] = ()
    """The kinds of faults that bring it out; all of them find it, later."""
    is_dear: bool = False
    """Too many seeds for each run of the tests: only with ``ODRADEK_PLANTED=all``."""


def forget_votes(patch: pytest.MonkeyPatch) -> None:
    """4: a vote is not durable."""
    patch.setattr(MetadataLog, "persist", lambda *_: None)


def vote_twice(patch: pytest.MonkeyPatch) -> None:
    """4: a voter does not remember for whom it voted in this epoch."""
    patch.setattr(Quorum, "vote_for", lambda *_: None)


def commit_old_epochs_by_count(patch: pytest.MonkeyPatch) -> None:
    """14: a leader counts who has entries of earlier epochs, and commits them."""

    def advance(self: Replication, leader: Leader) -> bool:
        offset = leader.majority_offset(self.quorum.flushed_offset)
        if offset is None or offset <= (self.quorum.high_watermark or 0):
            return False
        leader.high_watermark = offset
        self.quorum.advance_high_watermark(offset)
        return True

    patch.setattr(Replication, "_advance", advance)


def keep_log_under_snapshot(patch: pytest.MonkeyPatch) -> None:
    """28: a fetched snapshot is installed, and the log is not cut."""

    def start_at(self: MetadataLog, snapshot: Any) -> Any:
        self.history.start_at(snapshot.id.offset, snapshot.content.quorum, is_in_log=True)
        return self.snapshots.on_installed(snapshot.id)

    patch.setattr(MetadataLog, "start_at", start_at)


def serve_before_replay(patch: pytest.MonkeyPatch) -> None:
    """11: a controller serves before it has replayed all up to its own epoch."""
    lead = ControllerHost.on_leading
    patch.setattr(ControllerHost, "on_leading", lambda self, epoch, _: lead(self, epoch, -1))


def answer_before_commit(patch: pytest.MonkeyPatch) -> None:
    """12: a controller answers when records are appended."""
    patch.setattr(ControllerHost, "_answer", lambda _self, _change, reply: reply())


def unfence_too_early(patch: pytest.MonkeyPatch) -> None:
    """16: a broker is unfenced although it does not know of its own registration.

    Both ends look to it, and either of them is enough.
    """
    patch.setattr(MetadataOffsets, "registered_at", lambda *_: -1)
    patch.setattr(BrokerLifecycle, "_is_behind", False)


def keep_uncommitted_state(patch: pytest.MonkeyPatch) -> None:
    """25: a controller that lost its leadership goes on with what was never committed."""
    lose = ControllerHost.on_leadership_lost

    def keep(self: ControllerHost) -> None:
        if isinstance(self.state, Active):
            kept = self.state.controller
            self._make_controller = lambda _image: kept
        lose(self)

    patch.setattr(ControllerHost, "on_leadership_lost", keep)


def count_heartbeats_late(patch: pytest.MonkeyPatch) -> None:
    """29: a heartbeat renews the session when it is processed; brokers are fenced before that."""
    submit = ControllerHost.submit

    def hurry(self: ControllerHost, plan: Any, then: Any, refuse: Any = lambda _: None) -> None:
        submit(self, plan, then, refuse)
        if self._queued and "_fence" in plan.__qualname__:
            self._queued.rotate(1)

    patch.setattr(ControllerHost, "touch_session", lambda *_: None)
    patch.setattr(ControllerHost, "submit", hurry)


def reuse_producer_ids(patch: pytest.MonkeyPatch) -> None:
    """19: which producer ids were given is in the memory of the controller that gave them."""
    given: WeakKeyDictionary[Controller, int] = WeakKeyDictionary()

    def allocate(
        self: Controller, _: AllocateProducerIdsRequest
    ) -> Result[AllocateProducerIdsResponse]:
        first = given.get(self, 0)
        given[self] = first + PRODUCER_IDS_PER_BLOCK
        reply = AllocateProducerIdsResponse(
            producer_id_start=first, producer_id_len=PRODUCER_IDS_PER_BLOCK
        )
        return Result((), reply)

    patch.setattr(Controller, "allocate_producer_ids", allocate)


def change_before_the_first_commits(patch: pytest.MonkeyPatch) -> None:
    """21: voters change again before the change before is committed."""
    patch.setattr(VoterChanges, "_is_latest_committed", lambda *_: True)
    patch.setattr(VoterChanges, "on_appended", forget_change)


def forget_change(self: VoterChanges, leader: Leader, _offset: int) -> None:
    if leader.change is not None:
        self._end(leader, ErrorCode.NONE)


def count_the_removed_leader(patch: pytest.MonkeyPatch) -> None:
    """22: a leader that is being removed counts itself."""
    patch.setattr(Leader, "_own_votes", 1)


def answer_when_appended(patch: pytest.MonkeyPatch) -> None:
    """32: the operator is told of a change of voters that may still be lost."""

    def on_appended(self: VoterChanges, leader: Leader, offset: int) -> None:
        if leader.change is not None:
            leader.change.offset = offset
            self._end(leader, ErrorCode.NONE)

    patch.setattr(VoterChanges, "on_appended", on_appended)


def forget_new_endpoints(patch: pytest.MonkeyPatch) -> None:
    """33: a leader answers a voter that was moved, and does not write down where it is."""

    def update(self: VoterChanges, leader: Leader, request: Any, now_ms: int) -> ErrorCode:
        if self.quorum.history.is_static:
            return _update(self, leader, request, now_ms)
        return ErrorCode.NONE

    _update = VoterChanges._update
    patch.setattr(VoterChanges, "_update", update)


BUGS: Final = (
    Bug("4 a vote is not durable", forget_votes, "quorum", None, 12),
    Bug("4 two votes in an epoch", vote_twice, "quorum", None, 30),
    Bug("14 old epochs by count", commit_old_epochs_by_count, "quorum", None, 12),
    Bug("11 serves before replay", serve_before_replay, "nodes", "3 combined", 12),
    Bug("12 answers before commit", answer_before_commit, "nodes", None, 12),
    Bug("16 unfenced too early", unfence_too_early, "nodes", None, 12, ("slow-start",)),
    Bug("19 producer ids given twice", reuse_producer_ids, "nodes", None, 12),
    Bug("25 keeps uncommitted state", keep_uncommitted_state, "nodes", "3 combined", 24),
    Bug("29 heartbeats count late", count_heartbeats_late, "nodes", None, 12, ("overload",)),
    Bug("21 two changes of voters", change_before_the_first_commits, "voters", None, 18),
    Bug("22 a removed leader counts", count_the_removed_leader, "voters", None, 12),
    Bug("32 a change is answered too early", answer_when_appended, "voters", None, 12),
    Bug("33 new endpoints are forgotten", forget_new_endpoints, "voters", None, 24),
    Bug("28 log kept under a snapshot", keep_log_under_snapshot, "quorum", None, 12),
)
