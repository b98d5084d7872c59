"""A leader with its followers, for tests: ids 1 to 3, of which 1 leads."""

from collections.abc import Mapping

from odradek.core.errors import ErrorCode
from odradek.replication.isr import CommittedIsr, PendingExpand, PendingShrink
from odradek.replication.leadership import (
    Broker,
    LeaderSettings,
    Leadership,
    Proposal,
    Registration,
)
from tests.simulation.replication.model_log import ModelLog, Record

LAG_MS = 1_000
EPOCHS: Mapping[int, int] = {1: 101, 2: 102, 3: 103}


class Leading:
    """Epoch 5, partition epoch 7; the log ends at ``end``."""

    def __init__(
        self,
        isr: tuple[int, ...] = (1, 2, 3),
        *,
        end: int = 10,
        high_watermark: int = 0,
        min_isr: int = 1,
        replicas: tuple[int, ...] = (1, 2, 3),
    ) -> None:
        self.brokers = {each: Broker(epoch, is_active=True) for each, epoch in EPOCHS.items()}
        self.log = ModelLog()
        self.now_ms = 50_000
        self.append(end, epoch=4)
        self.log.high_watermark = high_watermark
        settings = LeaderSettings(min_insync_replicas=min_isr, lag_ms_max=LAG_MS)
        self.leadership = Leadership(1, self.log, settings, self.brokers.get)
        assert self.take(5, 7, isr, replicas=replicas)

    def take(
        self,
        leader_epoch: int,
        partition_epoch: int,
        isr: tuple[int, ...],
        *,
        replicas: tuple[int, ...] = (1, 2, 3),
        recovery_state: int = 0,
    ) -> bool:
        registration = Registration(leader_epoch, partition_epoch, replicas, isr, recovery_state)
        is_new = self.leadership.take(registration, self.now_ms)
        self.commit()
        return is_new

    def append(self, count: int, epoch: int = 5) -> None:
        records = [Record(epoch, value) for value in range(count)]
        self.log.append(self.log.log_end_offset, records, leader_epoch=epoch)

    def fetch(self, node_id: int, offset: int, broker_epoch: int | None = None) -> Proposal | None:
        epoch = EPOCHS[node_id] if broker_epoch is None else broker_epoch
        proposal = self.leadership.on_fetch(node_id, offset, 0, epoch, self.now_ms)
        self.commit()
        return proposal

    def shrink(self) -> Proposal | None:
        return self.leadership.shrink(self.now_ms)

    def confirm(
        self, proposal: Proposal, partition_epoch: int, isr: tuple[int, ...], leader_epoch: int = 5
    ) -> None:
        answer = Registration(leader_epoch, partition_epoch, self.leadership.replicas, isr)
        self.leadership.on_confirmed(proposal, answer)
        self.commit()

    def refuse(self, proposal: Proposal, code: ErrorCode) -> bool:
        return self.leadership.on_refused(proposal, code)

    def commit(self) -> int:
        """Move the high watermark and return it."""
        self.leadership.check_invariants()
        self.log.high_watermark = self.leadership.high_watermark(self.now_ms)
        return self.log.high_watermark

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    @property
    def isr(self) -> tuple[str, list[int]]:
        """In which state the ISR is, and who must have a record for it to be committed."""
        kinds = {CommittedIsr: "committed", PendingExpand: "expanding", PendingShrink: "shrinking"}
        return kinds[type(self.leadership.isr)], sorted(self.leadership.isr.maximal)
