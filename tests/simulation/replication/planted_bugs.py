"""Bugs of replication, to be planted one at a time; the simulation must find each.

The numbers are those of the design's table of bugs. Those without one are rules of these halves
that the table does not name. ``seeds_max`` is some three times what a bug takes now.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import pytest

from odradek.replication import following
from odradek.replication.follower_state import NEVER_MS, NO_BROKER_EPOCH, FollowerState
from odradek.replication.following import NOTHING, Following, Progress
from odradek.replication.isr import CommittedIsr, PendingExpand, PendingShrink
from odradek.replication.leadership import Leadership, Registration
from odradek.replication.replica_log import ReplicaLog
from tests.simulation.replication.model_log import ModelEpochs, ModelLog
from tests.simulation.replication.replica import Answer, Fetch, Replica

Plant = Callable[[pytest.MonkeyPatch], None]


class Bug(NamedTuple):
    name: str
    plant: Plant
    seeds_max: int
    settings: Mapping[str, Any] = {}
    """What brings it out; with other rules and faults it is found as well, later."""


def commit_on_append(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Leadership, "high_watermark", lambda self, _: self.log.log_end_offset)


def ignore_min_isr(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Leadership, "is_under_min_isr", False)


def truncate_to_high_watermark(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(following, "truncation_offset", lambda log, _epoch, _end: log.high_watermark)


def join_before_epoch_start(patch: pytest.MonkeyPatch) -> None:
    begin = Leadership._begin_epoch

    def begin_epoch(self: Leadership, registration: Registration, now_ms: int) -> None:
        begin(self, registration, now_ms)
        self.epoch_start_offset = 0

    patch.setattr(Leadership, "_begin_epoch", begin_epoch)


def ignore_broker_epochs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Leadership, "is_overtaken", lambda *_: False)
    patch.setattr(Leadership, "_is_eligible", lambda *_: True)
    patch.setattr(Leadership, "_broker_epoch", lambda *_: NO_BROKER_EPOCH)


def ignore_leavers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PendingShrink, "maximal", property(lambda self: self.proposed))


def ignore_joiners(patch: pytest.MonkeyPatch) -> None:
    """Also those that have caught up and are about to join."""
    init = PendingExpand.__post_init__

    def post_init(self: PendingExpand) -> None:
        init(self)
        object.__setattr__(self, "maximal", self.committed)

    patch.setattr(PendingExpand, "__post_init__", post_init)
    patch.setattr(PendingExpand, "proposed", property(lambda self: self.committed | {self.added}))
    patch.setattr(FollowerState, "is_caught_up", lambda self, end, *_: self.log_end_offset == end)


def apply_older_partition_epochs(patch: pytest.MonkeyPatch) -> None:
    take = Leadership.take

    def take_any(self: Leadership, registration: Registration, now_ms: int) -> bool:
        self.partition_epoch = min(self.partition_epoch, registration.partition_epoch - 1)
        return take(self, registration, now_ms)

    patch.setattr(Leadership, "take", take_any)


def take_stale_answers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Following, "is_answered_by", lambda *_: True)


def begin_no_epoch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ModelLog, "begin_epoch", lambda *_: None)


def trust_leaders_high_watermark(patch: pytest.MonkeyPatch) -> None:
    def after(_self: Following, progress: Progress) -> int:
        return progress.high_watermark

    patch.setattr(Following, "high_watermark_after", after)


def take_note_of_failed_fetches(patch: pytest.MonkeyPatch) -> None:
    read = Replica._read

    def read_any(self: Replica, fetch: Fetch, *, takes_note: bool) -> Answer:
        if takes_note and not self._refusal(fetch) and self.leadership is not None:
            self.take_note(self.leadership, fetch)
        return read(self, fetch, takes_note=takes_note)

    patch.setattr(Replica, "_read", read_any)


def fetch_before_flush(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Replica, "is_flush_due", False)


def keep_log_below_leaders_start(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Following, "on_offsets", lambda *_: NOTHING)


def keep_followers_of_missed_epochs(patch: pytest.MonkeyPatch) -> None:
    """As Kafka: offsets are kept although another leader was there in between."""

    def begin(self: Leadership, registration: Registration, now_ms: int) -> None:
        self.epoch_start_offset = end = self.log.log_end_offset
        is_new, self.leader_epoch = self.leader_epoch < 0, registration.leader_epoch
        for node_id, follower in self.followers.items():
            is_in_sync = node_id in registration.isr
            if is_new:
                follower.forget(now_ms if is_in_sync else NEVER_MS)
            else:
                follower.begin_epoch(end, is_in_sync=is_in_sync, now_ms=now_ms)

    patch.setattr(Leadership, "_begin_epoch", begin)


def drop_proposals_for_equal_epochs(patch: pytest.MonkeyPatch) -> None:
    """As Kafka: metadata with the partition epoch that is known ends what is pending."""
    take = Leadership.take

    def take_equal(self: Leadership, registration: Registration, now_ms: int) -> bool:
        if registration.partition_epoch == self.partition_epoch:
            self.isr = CommittedIsr(frozenset(registration.isr))
        return take(self, registration, now_ms)

    patch.setattr(Leadership, "take", take_equal)


def take_back_what_may_be_done(patch: pytest.MonkeyPatch) -> None:
    refused = Leadership.on_refused

    def on_refused(self: Leadership, proposal: Any, code: Any) -> bool:
        again = refused(self, proposal, code)
        self.isr = CommittedIsr(self.isr.committed)
        return again

    patch.setattr(Leadership, "on_refused", on_refused)


def cut_at_leaders_end_alone(patch: pytest.MonkeyPatch) -> None:
    """KIP-101 without KIP-279: the follower does not look which epochs it has itself."""

    def offset(log: ReplicaLog, _epoch: int, end_offset: int) -> int:
        return min(end_offset, log.log_end_offset)

    patch.setattr(following, "truncation_offset", offset)


def keep_epochs_of_what_was_cut(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ModelEpochs, "truncate_from_end", lambda *_: None)


ON_DISK: Final = {"flushes_all": True, "has_elr": True, "allows_unclean": False, "power": 1.0}
ELECTIONS: Final = {"mix": (1, 0, 6, 1, 0), "lag_ms": 300, "min_isr": 1, "interval_ms": 300}
LATE: Final = {"late_metadata": 0.4, "batched_metadata": 0.0, "lag_ms": 300, "min_isr": 1}
DOUBT: Final = {"loss": 0.2, "late_metadata": 0.4, "lag_ms": 300, "min_isr": 1}

BUGS: Final = (
    Bug("1 committed on append", commit_on_append, 20),
    Bug("2 min.insync.replicas ignored", ignore_min_isr, 100),
    Bug("3 truncates to the high watermark", truncate_to_high_watermark, 100),
    Bug("5 joins before the epoch's start", join_before_epoch_start, 400, ELECTIONS),
    Bug("7 leavers do not count", ignore_leavers, 400),
    Bug("joiners do not count", ignore_joiners, 100),
    Bug("8 older partition epochs applied", apply_older_partition_epochs, 400, LATE),
    Bug("9 stale answers taken", take_stale_answers, 100),
    Bug("15 no entry for a new epoch", begin_no_epoch, 100),
    Bug("23 the leader's high watermark as it is", trust_leaders_high_watermark, 100),
    Bug("24 failed fetches count", take_note_of_failed_fetches, 400),
    Bug("27 fetches before a flush", fetch_before_flush, 400, ON_DISK),
    Bug("30 no full truncation", keep_log_below_leaders_start, 100),
    Bug("proposals in doubt are taken back", take_back_what_may_be_done, 400, DOUBT),
    Bug("cut at the leader's end alone", cut_at_leaders_end_alone, 400),
    Bug("epochs of what was cut are kept", keep_epochs_of_what_was_cut, 400),
)
