"""Who leads a partition next: from a wished-for ISR to the record that brings it about.

With eligible leader replicas (KIP-966) the ISR may become empty: whoever leaves it while it is
below ``min.insync.replicas`` stays eligible (ELR), because nothing was committed without it. When
also the ELR is empty, ``last_known_elr`` holds the last leader, who is taken back, uncleanly, when
it returns. Without the feature the last member of the ISR stays in it and the partition is
just leaderless.

Each change also completes the reassignment of its partition if the ISR is ready for that. When
replicas leave the partition, its leader epoch rises even if the leader stays: those that left can
fetch no longer, and are in no ISR that the old epoch could still propose.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from odradek.controller.reassignment import Assignment, current
from odradek.core.ids import Uuid
from odradek.metadata import NO_LEADER, LeaderRecoveryState, PartitionImage
from odradek.metadata.partition import NO_LEADER_CHANGE
from odradek.protocol.generated.metadata_records import PartitionChangeRecord


class Election(Enum):
    ONLINE = "keep the leader if possible, else anyone in sync"
    PREFERRED = "the first replica if possible"
    UNCLEAN = "anyone who is alive rather than none: may lose records"


class Elected(NamedTuple):
    leader: int
    unclean: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRules:
    """What holds for the topic and the cluster."""

    min_isr: int
    elr_enabled: bool
    bump_epoch_on_shrink: bool = False
    """Brokers before metadata.version 3.6-IV0 notice a smaller ISR only so (KAFKA-15021)."""


@dataclass(slots=True, kw_only=True)
class PartitionChange:
    """A change in the making; ``plan`` gives its record."""

    topic_id: Uuid
    number: int
    partition: PartitionImage
    rules: PartitionRules
    is_acceptable_leader: Callable[[int], bool]
    isr: tuple[int, ...]
    recovery_state: LeaderRecoveryState
    election: Election = Election.ONLINE
    lost_replica: int = NO_LEADER
    """A broker that came back from a crash: what it had may be gone, so it is not eligible."""
    assignment: Assignment | None = None
    """The replicas to be; None: those that the partition has."""
    default_directory: Callable[[int], Uuid] | None = None
    """Where a new replica lies on its broker; None: metadata.version knows no directories."""
    moved_to: dict[int, Uuid] = field(default_factory=dict)
    """Directories of replicas, by broker, that are others than before."""

    def plan(self) -> PartitionChangeRecord | None:
        """Return the record, or None if nothing changes."""
        now = self.partition
        before = current(now)
        assignment, isr = self.assignment or before, self.isr
        completed = assignment.completed(isr)
        if completed is not None:
            assignment = completed
            isr = tuple(each for each in isr if each in completed.replicas)
        elr = self._eligible(isr, assignment.replicas)
        elected = self._elect(isr, elr, assignment.replicas)
        record = PartitionChangeRecord(topic_id=self.topic_id, partition_id=self.number)
        if elected.leader != now.leader:
            record.leader = elected.leader
        if elected.leader in elr:
            isr = (elected.leader,)
            elr = tuple(each for each in elr if each != elected.leader)
        if elected.unclean:
            isr, elr = (elected.leader,), ()
        if elr != now.elr:
            record.eligible_leader_replicas = list(elr)
        if isr != now.isr and (isr or self.rules.elr_enabled):
            record.isr = list(isr)
        if assignment is not before or self.moved_to:
            self._set_assignment(record, assignment)
        self._bump_epoch_on_shrink(record)
        self._note_last_leader(record)
        self._set_recovery_state(record, elected)
        untouched = PartitionChangeRecord(topic_id=self.topic_id, partition_id=self.number)
        return None if record == untouched else record

    def _eligible(self, isr: tuple[int, ...], replicas: tuple[int, ...]) -> tuple[int, ...]:
        if not self.rules.elr_enabled or len(isr) >= self.rules.min_isr:
            return ()
        candidates = {*self.partition.elr, *self.partition.isr} - {*isr, self.lost_replica}
        candidates.intersection_update(replicas)
        kept = [each for each in self.partition.elr if each in candidates]
        return (*kept, *sorted(candidates.difference(kept)))

    def _elect(
        self, isr: tuple[int, ...], elr: tuple[int, ...], replicas: tuple[int, ...]
    ) -> Elected:
        now = self.partition
        order = [now.leader, *replicas]
        if self.election is Election.PREFERRED:
            order.insert(0, replicas[0])
        in_sync = isr or elr
        for replica in order:
            if replica in in_sync and self.is_acceptable_leader(replica):
                return Elected(replica)
        if self._can_take_back_last_leader(in_sync, replicas):
            return Elected(now.last_known_elr[0], unclean=True)
        if self.election is Election.UNCLEAN:
            for replica in replicas:
                if self.is_acceptable_leader(replica):
                    return Elected(replica, unclean=True)
        return Elected(NO_LEADER)

    def _can_take_back_last_leader(
        self, in_sync: tuple[int, ...], replicas: tuple[int, ...]
    ) -> bool:
        last = self.partition.last_known_elr
        return (
            self.rules.elr_enabled
            and not in_sync
            and len(last) == 1
            and last[0] in replicas
            and self.is_acceptable_leader(last[0])
        )

    def _bump_epoch(self, record: PartitionChangeRecord) -> None:
        """Name the leader, which raises its epoch, if the record does not name another."""
        if record.leader == NO_LEADER_CHANGE:
            record.leader = self.partition.leader

    def _bump_epoch_on_shrink(self, record: PartitionChangeRecord) -> None:
        if not self.rules.bump_epoch_on_shrink or record.isr is None:
            return
        if not set(record.isr) >= set(self.partition.isr):
            self._bump_epoch(record)

    def _note_last_leader(self, record: PartitionChangeRecord) -> None:
        if not self.rules.elr_enabled:
            return
        known = self.partition.leader
        if record.leader == NO_LEADER != known and not self.partition.last_known_elr:
            record.last_known_elr = [known]
        elif record.leader >= 0 and self.partition.last_known_elr:
            record.last_known_elr = []

    def _set_assignment(self, record: PartitionChangeRecord, assignment: Assignment) -> None:
        now = self.partition
        if not set(now.replicas) <= set(assignment.replicas):
            self._bump_epoch(record)
        if assignment.replicas != now.replicas:
            record.replicas = list(assignment.replicas)
        if assignment.adding != now.adding:
            record.adding_replicas = list(assignment.adding)
        if assignment.removing != now.removing:
            record.removing_replicas = list(assignment.removing)
        if self.default_directory is None:
            return
        known = dict(zip(now.replicas, now.directories, strict=True)) | self.moved_to
        directories = tuple(
            known[each] if each in known else self.default_directory(each)
            for each in assignment.replicas
        )
        if directories != now.directories:
            record.directories = list(directories)

    def _set_recovery_state(self, record: PartitionChangeRecord, elected: Elected) -> None:
        state = LeaderRecoveryState.RECOVERING if elected.unclean else self.recovery_state
        if state != self.partition.leader_recovery_state:
            record.leader_recovery_state = state
