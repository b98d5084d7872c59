"""Bugs of the data plane, to be planted into nodes one at a time; a storm must find each.

The numbers are those of the design's table of bugs.
"""

from typing import Any, Final

import pytest

from odradek.broker.coordinator_outbox import CoordinatorOutbox
from odradek.broker.handlers import fetch
from odradek.controller import registrations
from odradek.coordinator.transaction.shard import TransactionShard
from odradek.replication.follower_state import FollowerState
from odradek.replication.following import Following, Progress, Truncate, TruncateFully
from odradek.replication.isr import PendingShrink
from odradek.replication.leadership import Leadership
from odradek.storage.log import Isolation, Log
from odradek.storage.log_store import LogStore
from tests.simulation.cluster.planted import Bug


def commit_on_append(patch: pytest.MonkeyPatch) -> None:
    """1: the high watermark moves when the leader appends."""
    patch.setattr(Leadership, "high_watermark", lambda self, _: self.log.log_end_offset)


def commit_under_min_isr(patch: pytest.MonkeyPatch) -> None:
    """2: nobody looks whether enough replicas are in sync."""
    patch.setattr(Leadership, "is_under_min_isr", False)


def cut_at_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """3: a follower cuts its log at its high watermark, as before KIP-101."""
    follow = Following.follow

    def cut(self: Following, leader_id: int, leader_epoch: int) -> bool:
        is_news = follow(self, leader_id, leader_epoch)
        if is_news and isinstance(self.log, Log):
            self.log.truncate_to(self.log.high_watermark, 0)
        return is_news

    patch.setattr(Following, "follow", cut)


def join_before_epoch_start(patch: pytest.MonkeyPatch) -> None:
    """5: a follower joins the ISR when it reaches the high watermark, which may be old."""

    def may_join(self: Leadership, follower: FollowerState, _now_ms: int) -> bool:
        reaches = follower.log_end_offset >= self.log.high_watermark
        return self.isr.committed == self.isr.maximal and reaches and self._is_eligible(follower)

    patch.setattr(Leadership, "_may_join", may_join)


def join_with_any_broker_epoch(patch: pytest.MonkeyPatch) -> None:
    """6: a follower joins the ISR whichever run of the broker it was that fetched (KIP-903)."""

    def epoch_of(self: Leadership, node_id: int) -> int:
        broker = self._find_broker(node_id)
        return -1 if broker is None else broker.epoch

    patch.setattr(Leadership, "_is_eligible", lambda *_: True)
    patch.setattr(Leadership, "_broker_epoch", epoch_of)


def shrink_at_once(patch: pytest.MonkeyPatch) -> None:
    """7: who is to leave the ISR does not count from the proposal on."""
    patch.setattr(PendingShrink, "maximal", property(lambda self: self.proposed))


def take_older_epochs(patch: pytest.MonkeyPatch) -> None:
    """8: metadata with an older partition epoch than is known takes the ISR back."""
    take = Leadership.take

    def take_any(self: Leadership, registration: Any, now_ms: int) -> bool:
        self.partition_epoch = min(self.partition_epoch, registration.partition_epoch - 1)
        return take(self, registration, now_ms)

    patch.setattr(Leadership, "take", take_any)


def take_any_answer(patch: pytest.MonkeyPatch) -> None:
    """9: the answer to a fetch counts although the partition has another leader epoch by now."""

    def is_answered_by(self: Following, asked: Any) -> bool:
        return bool(asked.offset == self.log.log_end_offset)

    patch.setattr(Following, "is_answered_by", is_answered_by)


def show_what_is_written(patch: pytest.MonkeyPatch) -> None:
    """10: consumers read up to the end of the log."""
    patch.setattr(fetch, "_ISOLATIONS", {0: Isolation.LOG_END, 1: Isolation.LAST_STABLE_OFFSET})


def keep_in_elr(patch: pytest.MonkeyPatch) -> None:
    """13: a broker that stopped uncleanly stays eligible for leadership."""
    departs = registrations._plan_departure

    def depart(view: Any, broker_id: int, *, clean: bool) -> Any:
        return departs(view, broker_id, clean=True)

    patch.setattr(registrations, "_plan_departure", depart)


def begin_no_epoch(patch: pytest.MonkeyPatch) -> None:
    """15: a new leader notes its epoch when it first appends, and not before."""
    patch.setattr(Log, "begin_epoch", lambda *_: None)


def answer_uncommitted(patch: pytest.MonkeyPatch) -> None:
    """17: a coordinator answers from what is not committed."""
    patch.setattr(CoordinatorOutbox, "is_settled", True)


def forget_markers(patch: pytest.MonkeyPatch) -> None:
    """18: a coordinator that takes over writes no markers of transactions that were decided."""
    load = TransactionShard.on_loaded

    def forget(self: TransactionShard, now: Any) -> Any:
        yield from load(self, now)
        self._markers = type(self._markers)()

    patch.setattr(TransactionShard, "on_loaded", forget)


def keep_log_of_deleted_topic(patch: pytest.MonkeyPatch) -> None:
    """20: the log of a deleted topic is that of the next one with its name."""
    patch.setattr(LogStore, "delete", lambda *_, **_options: False)
    patch.setattr(LogStore, "topic_id", lambda *_: None)


def take_leaders_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """23: a follower takes its leader's high watermark, whatever it has."""

    def after(_: Following, progress: Progress) -> int:
        return progress.high_watermark

    def update(self: Log, offset: int) -> int:
        self.high_watermark = offset
        self.producer_states.on_high_watermark_updated(offset)
        return offset

    patch.setattr(Following, "high_watermark_after", after)
    patch.setattr(Log, "update_high_watermark", update)


def count_diverging_fetches(patch: pytest.MonkeyPatch) -> None:
    """24: a fetch whose log parts from the leader's says how far the follower is (KAFKA-8400)."""
    patch.setattr(fetch, "_is_diverging", lambda _: False)


def cut_to_deleted_start(patch: pytest.MonkeyPatch) -> None:
    """30: a follower whose log ends before its leader's begins goes on without a full cut."""
    offsets = Following.on_offsets

    def on_offsets(self: Following, asked: Any, leader_start: int, leader_end: int) -> Any:
        action = offsets(self, asked, leader_start, leader_end)
        if isinstance(action, TruncateFully):
            return Truncate(min(self.log.log_end_offset, action.offset))
        return action

    patch.setattr(Following, "on_offsets", on_offsets)


KILLS: Final = ("kill", "isolate", "pause")
CUTS: Final = ("kill", "isolate", "power", "cut")
DATA_BUGS: Final = (
    Bug("1 commits on append", commit_on_append, "data", None, 12),
    Bug("2 commits under min ISR", commit_under_min_isr, "data", None, 12),
    Bug("3 cuts at the high watermark", cut_at_high_watermark, "data", None, 12, KILLS, True),
    Bug("7 shrinks at once", shrink_at_once, "data", None, 12, ("cut", "pause", "isolate", "slow")),
    Bug("10 shows what is written", show_what_is_written, "data", None, 12, is_dear=True),
    Bug("13 stays eligible", keep_in_elr, "data", None, 60, ("power", "kill"), True),
    Bug("17 answers uncommitted", answer_uncommitted, "data", None, 24, KILLS),
    Bug("20 keeps the log of a deleted topic", keep_log_of_deleted_topic, "data", None, 24),
    Bug("23 takes the leader's high watermark", take_leaders_high_watermark, "data", None, 12),
)
NOT_FOUND: Final = (
    Bug("5 joins before the epoch start", join_before_epoch_start, "data", None, 16, KILLS),
    Bug("6 joins with any broker epoch", join_with_any_broker_epoch, "data", None, 10),
    Bug("8 takes older epochs", take_older_epochs, "data", None, 8),
    Bug("9 takes any answer", take_any_answer, "data", None, 10),
    Bug("15 begins no epoch", begin_no_epoch, "data", None, 16, KILLS),
    Bug("18 forgets markers", forget_markers, "data", None, 16, KILLS),
    Bug("24 counts diverging fetches", count_diverging_fetches, "data", None, 16, CUTS),
    Bug("30 goes on without a full cut", cut_to_deleted_start, "data", None, 16, KILLS),
)
"""So many seeds were tried. Smaller simulations find them: see ``planted_table``."""
