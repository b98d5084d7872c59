"""What must always hold of a replicated partition, checked at each event that could break it.

``ledger`` is what was ever committed: shown to consumers by a leader. As long as elections are
clean it only grows. After an unclean election it is what the new leader has, and that must be a
prefix of what was there.
"""

from collections import Counter
from typing import TYPE_CHECKING

from tests.simulation.replication.model_log import ModelLog, Record

if TYPE_CHECKING:
    from tests.simulation.replication.replica import Replica
    from tests.simulation.replication.world import World


class Oracle:
    def __init__(self, world: "World") -> None:
        self.world = world
        self.ledger: list[Record | None] = []
        """None where records were deleted before the ledger was rewritten."""
        self.reached: Counter[str] = Counter()
        self._rewritten_in = -1
        self._leaders: dict[int, int] = {}
        self._written: dict[tuple[int, int], tuple[int, int | None]] = {}
        self._acknowledged: dict[int, Record] = {}

    # Leaders.

    @property
    def _unclean_epoch(self) -> int:
        """The last epoch that began with an unclean election."""
        return max(self.world.controller.unclean_epochs, default=-1)

    def _is_promised(self, leader_epoch: int) -> bool:
        """Whether what is committed in an epoch is for ever: no unclean election followed yet."""
        return leader_epoch >= self._unclean_epoch

    def on_lead(self, leader: "Replica") -> None:
        epoch, log = leader.leader_epoch, leader.log
        self.reached["elections"] += 1
        known = self._leaders.setdefault(epoch, leader.node_id)
        assert known == leader.node_id, f"{known} and {leader.node_id} lead in epoch {epoch}"
        unclean_epoch = self._unclean_epoch
        if not self._is_promised(epoch) or epoch < max(self._leaders):
            return  # it has learned late that it was to lead
        if self._rewritten_in < unclean_epoch:
            self._rewrite(log)
            self._extend(log)  # it shows what it took for committed
            self._rewritten_in = epoch
            self.reached["unclean"] += 1
        assert log.log_end_offset >= len(self.ledger), (
            f"{leader.node_id} leads epoch {epoch} with a log that ends at {log.log_end_offset}; "
            f"{len(self.ledger)} are committed"
        )
        self._compare(leader, log.log_start_offset, len(self.ledger))

    def _rewrite(self, log: ModelLog) -> None:
        """Take back what the new leader does not have: it may only be a suffix."""
        end = min(len(self.ledger), log.log_end_offset)
        kept = [at for at in range(log.log_start_offset, end) if self.ledger[at] in (None, log[at])]
        common = kept[-1] + 1 if kept else min(end, log.log_start_offset)
        for at in range(log.log_start_offset, common):
            assert self.ledger[at] in (None, log[at]), (
                f"record {at} is lost, and later ones are not"
            )
        del self.ledger[common:]
        gone = min(log.log_start_offset, common)
        self.ledger[:gone] = [None] * gone
        if self.world.faults.flushes_all and not self.world.rules.allows_unclean:
            for offset, record in self._acknowledged.items():
                if offset >= log.log_start_offset:
                    assert offset < log.log_end_offset, f"{record} at {offset} was on disk, is lost"
                    assert log[offset] == record, f"{record} at {offset} was on disk, is lost"
        self._acknowledged = {at: each for at, each in self._acknowledged.items() if at < common}

    def on_committed(self, leader: "Replica", before: int) -> None:
        """Check a high watermark of a leader that has moved from ``before``."""
        log, ledger = leader.log, self.ledger
        assert log.high_watermark <= log.log_end_offset
        if not self._is_promised(leader.leader_epoch):
            return
        start = max(min(before, len(ledger)), log.log_start_offset)
        self._compare(leader, start, min(log.high_watermark, len(ledger)))
        self._extend(log)
        self._check_isr(leader)

    def _extend(self, log: ModelLog) -> None:
        self.ledger.extend([None] * (log.log_start_offset - len(self.ledger)))
        self.ledger.extend(log[at] for at in range(len(self.ledger), log.high_watermark))

    def _compare(self, replica: "Replica", start: int, end: int) -> None:
        log, ledger = replica.log, self.ledger
        for at in range(start, end):
            assert ledger[at] is None or log[at] == ledger[at], (
                f"{replica.node_id} has {log[at]} at {at}, where {ledger[at]} is committed"
            )

    def _check_isr(self, leader: "Replica") -> None:
        """All that is committed is in the log of each member of the controller's ISR."""
        partition = self.world.controller.partition
        if partition.leader_epoch != leader.leader_epoch:
            return
        end = leader.log.high_watermark
        for member in partition.isr:
            replica = self.world.replicas[member]
            if not replica.is_lossy:
                assert replica.log.log_end_offset >= end, (
                    f"{leader.node_id} commits up to {end}; {member} of the ISR {partition.isr} "
                    f"has {replica.log.log_end_offset}"
                )

    def on_isr(self, before: tuple[int, ...], now: tuple[int, ...]) -> None:
        """Whoever joins the ISR has all that is committed."""
        if self._rewritten_in < self._unclean_epoch:
            return
        for member in set(now).difference(before):
            replica, committed = self.world.replicas[member], len(self.ledger)
            if not replica.is_lossy:
                end = replica.log.log_end_offset
                assert end >= committed, f"{member} joins with {end}; {committed} are committed"

    def on_acknowledged(self, leader: "Replica", offset: int, record: Record) -> None:
        self.reached["acknowledged"] += 1
        if self._is_promised(leader.leader_epoch):
            assert self.ledger[offset] in (None, record), f"{record} is acknowledged, and not there"
            self._acknowledged[offset] = record

    # Logs.

    def on_appended(
        self, replica: "Replica", offset: int, records: list[Record], start: int = 0
    ) -> None:
        """Equal offset and epoch mean equal records, there and before.

        Not before ``start``, where the leader's log begins: what it has deleted a follower may have
        otherwise, and deletes it at once.
        """
        before = replica.log.epoch_before(offset) if offset > start else None
        for at, record in enumerate(records, offset):
            found = self._written.setdefault((at, record.epoch), (record.value, before))
            assert found[0] == record.value, f"two records of epoch {record.epoch} at {at}"
            if before is None or found[1] is None:
                self._written[at, record.epoch] = (record.value, None)
            else:
                assert found[1] == before, f"different records before {at} in {record.epoch}"
            before = record.epoch

    def on_truncated(self, replica: "Replica", offset: int) -> None:
        """No replica that follows as the latest metadata says cuts off what is committed."""
        log, ledger = replica.log, self.ledger
        if offset < log.log_end_offset:
            self.reached["truncated"] += 1
            self.world.note("%d truncates to %d", replica.node_id, offset)
        epoch = replica.leader_epoch
        if epoch < max(self._leaders, default=-1) or not self._unclean_epoch <= self._rewritten_in:
            return
        for at in range(max(offset, log.log_start_offset), min(log.log_end_offset, len(ledger))):
            assert ledger[at] != log[at], f"{replica.node_id} cuts off {log[at]} at {at}"

    def on_shown(self, follower: "Replica", before: int) -> None:
        """A follower may show to consumers what is below its high watermark."""
        log = follower.log
        if self._is_promised(follower.leader_epoch) and self._rewritten_in >= self._unclean_epoch:
            end = log.high_watermark
            assert end <= log.log_end_offset
            if end > log.log_start_offset:  # else nothing can be read
                assert end <= len(self.ledger), f"{follower.node_id} shows up to {end}"
            self._compare(follower, max(before, log.log_start_offset), end)

    # The end.

    def check_end(self) -> None:
        """All replicas have the same log, all of it committed, and with all acknowledged."""
        logs = [replica.log for replica in self.world.replicas.values()]
        start, end = max(log.log_start_offset for log in logs), logs[0].log_end_offset
        for log in logs:
            assert log.log_end_offset == end
            for at in range(start, end):
                assert log[at] == logs[0][at]
        for offset, record in self._acknowledged.items():
            assert offset < start or logs[0][offset] == record, f"{record} at {offset} is lost"
