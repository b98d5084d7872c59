"""A log that is a list of epochs, and nodes over it."""

from bisect import bisect_right
from dataclasses import dataclass, field
from random import Random

from odradek.core.ids import Uuid
from odradek.raft import (
    HardState,
    OffsetAndEpoch,
    RaftConfig,
    RaftNode,
    ReplicaKey,
    VoterHistory,
    VoterSet,
)
from odradek.raft.messages import VoterDetails

KEYS = [ReplicaKey(i, Uuid(bytes([i + 1] * 16))) for i in range(5)]
CONFIG = RaftConfig()


@dataclass
class EpochLog:
    epochs: list[int] = field(default_factory=list)  # of each record
    log_start_offset: int = 0
    earliest_snapshot: OffsetAndEpoch | None = None
    latest_snapshot: OffsetAndEpoch | None = None

    @property
    def log_end_offset(self) -> int:
        return len(self.epochs)

    @property
    def last_epoch(self) -> int:
        return self.epochs[-1] if self.epochs else 0

    def snapshot_size(self, snapshot_id: OffsetAndEpoch) -> int | None:
        known = snapshot_id in (self.earliest_snapshot, self.latest_snapshot)
        return 100 * snapshot_id.offset if known else None

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        end = bisect_right(self.epochs, epoch)
        return OffsetAndEpoch(end, self.epochs[end - 1] if end else epoch)


def make_node(
    log: EpochLog,
    hard_state: HardState | None = None,
    *,
    key: ReplicaKey = KEYS[0],
    size: int = 3,
    now_ms: int = 0,
    voters: VoterSet | None = None,
    bootstrap_ids: tuple[int, ...] = (),
    can_become_voter: bool = True,
    history: VoterHistory | None = None,
    details: VoterDetails | None = None,
    auto_join: bool = False,
) -> RaftNode:
    return RaftNode(
        key,
        history or voters or VoterSet(tuple(KEYS[:size])),
        log,
        hard_state or HardState(),
        config=CONFIG._replace(auto_join=auto_join),
        random=Random(1),
        now_ms=now_ms,
        bootstrap_ids=bootstrap_ids,
        can_become_voter=can_become_voter,
        details=details,
    )
