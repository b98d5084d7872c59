"""Classic mistakes, to be planted into a quorum: the simulation must notice each of them."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from odradek.raft import replication
from odradek.raft.leader import Leader
from odradek.raft.quorum import Quorum
from odradek.raft.replication import Replication
from tests.simulation.raft.cluster import Faults

Plant = Callable[[pytest.MonkeyPatch, Faults], Faults]


def forget_vote_on_restart(_patch: pytest.MonkeyPatch, faults: Faults) -> Faults:
    return replace(faults, forgets_vote=True)


def skip_truncation(_patch: pytest.MonkeyPatch, faults: Faults) -> Faults:
    return replace(faults, skips_truncation=True)


def keep_log_under_snapshot(_patch: pytest.MonkeyPatch, faults: Faults) -> Faults:
    return replace(faults, keeps_log_under_snapshot=True)


def ignore_divergence(patch: pytest.MonkeyPatch, faults: Faults) -> Faults:
    patch.setattr(replication, "find_divergence", lambda *_: None)
    return faults


def count_unflushed_leader_offset(patch: pytest.MonkeyPatch, faults: Faults) -> Faults:
    def advance(self: Replication, leader: Leader) -> bool:
        moved = leader.advance(self.quorum.log.log_end_offset)
        if moved and leader.high_watermark is not None:
            self.quorum.advance_high_watermark(leader.high_watermark)
        return moved

    patch.setattr(Replication, "_advance", advance)
    return faults


def commit_entries_of_old_epochs(patch: pytest.MonkeyPatch, faults: Faults) -> Faults:
    def advance(self: Replication, leader: Leader) -> bool:
        offset = leader.majority_offset(self.quorum.flushed_offset)
        if offset is None or offset <= (self.quorum.high_watermark or 0):
            return False
        leader.high_watermark = offset
        self.quorum.advance_high_watermark(offset)
        return True

    patch.setattr(Replication, "_advance", advance)
    return faults


def claim_unflushed_records(patch: pytest.MonkeyPatch, faults: Faults) -> Faults:
    patch.setattr(Quorum, "is_settled", True)
    return faults


def vote_for_anybody(patch: pytest.MonkeyPatch, faults: Faults) -> Faults:
    patch.setattr("odradek.raft.voting.is_up_to_date", lambda *_: True)
    return faults


def vote_twice(patch: pytest.MonkeyPatch, faults: Faults) -> Faults:
    def vote_for(self: Quorum, candidate: object, now_ms: int) -> None:
        pass

    patch.setattr(Quorum, "vote_for", vote_for)
    return faults


def lead_again_in_the_same_epoch(patch: pytest.MonkeyPatch, faults: Faults) -> Faults:
    """A leader that restarts stands again, in the epoch in which it may have lost records."""
    start = Quorum.start

    def restart(self: Quorum, now_ms: int) -> None:
        state = self.hard_state
        if state.leader_id == self.key.id:
            self.hard_state = replace(state, leader_id=None, voted=self.key)
        start(self, now_ms)

    patch.setattr(Quorum, "start", restart)
    return faults
