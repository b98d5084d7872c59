"""One partition: where its replicas are, who leads it, and how far it has been changed.

``leader_epoch`` rises with every record that names a leader, even the same one; a follower uses
it to fence. ``partition_epoch`` rises with every record; the controller uses it to refuse a change
that was proposed on top of an older state.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from odradek.core.errors import CorruptionError
from odradek.core.ids import ZERO_UUID, Uuid
from odradek.metadata.features import DIRECTORY_ASSIGNMENT_FROM, ELR_FROM
from odradek.protocol.generated.metadata_records import PartitionChangeRecord, PartitionRecord

NO_LEADER: Final = -1
NO_LEADER_CHANGE: Final = -2

# Reserved values where the id of a log directory is expected.
DIRECTORY_MIGRATING: Final = ZERO_UUID
DIRECTORY_UNASSIGNED: Final = Uuid(bytes(15) + b"\x01")
DIRECTORY_LOST: Final = Uuid(bytes(15) + b"\x02")


class LeaderRecoveryState(IntEnum):
    """RECOVERING: an unclean election chose the leader, and followers have yet to fit to it."""

    RECOVERED = 0
    RECOVERING = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionImage:
    replicas: tuple[int, ...]
    """In order of preference: the first one is the preferred leader."""
    directories: tuple[Uuid, ...]
    """The log directory of each replica, in the order of ``replicas``."""
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    """Out of the ISR, yet known to have all that was committed (KIP-966)."""
    last_known_elr: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    leader: int = NO_LEADER
    leader_recovery_state: LeaderRecoveryState = LeaderRecoveryState.RECOVERED
    leader_epoch: int = 0
    partition_epoch: int = 0

    @property
    def preferred_leader(self) -> int:
        return self.replicas[0]

    def directory_of(self, broker_id: int) -> Uuid:
        """Return the directory in which a replica lies; MIGRATING for a broker without one."""
        for replica, directory in zip(self.replicas, self.directories, strict=True):
            if replica == broker_id:
                return directory
        return DIRECTORY_MIGRATING

    @classmethod
    def from_record(cls, record: PartitionRecord) -> "PartitionImage":
        return cls(
            replicas=tuple(record.replicas),
            directories=_directories(record.directories, len(record.replicas)),
            isr=tuple(record.isr),
            elr=tuple(record.eligible_leader_replicas or ()),
            last_known_elr=tuple(record.last_known_elr or ()),
            removing=tuple(record.removing_replicas),
            adding=tuple(record.adding_replicas),
            leader=record.leader,
            leader_recovery_state=_recovery_state(record.leader_recovery_state),
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
        )

    def to_record(self, topic_id: Uuid, partition: int, metadata_version: int) -> PartitionRecord:
        record = PartitionRecord(
            partition_id=partition,
            topic_id=topic_id,
            replicas=list(self.replicas),
            isr=list(self.isr),
            removing_replicas=list(self.removing),
            adding_replicas=list(self.adding),
            leader=self.leader,
            leader_recovery_state=self.leader_recovery_state,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
        )
        if metadata_version >= DIRECTORY_ASSIGNMENT_FROM:
            record.directories = list(self.directories)
        if metadata_version >= ELR_FROM:
            record.eligible_leader_replicas = list(self.elr) or None
            record.last_known_elr = list(self.last_known_elr) or None
        return record

    def changed_by(self, record: PartitionChangeRecord) -> "PartitionImage":
        """Return the partition after ``record``: what the record leaves out stays."""
        replicas = _given(record.replicas, self.replicas)
        directories: list[Uuid] | tuple[Uuid, ...] | None = record.directories
        if directories is None:
            unknown = set(self.directories) == {DIRECTORY_MIGRATING}
            directories = () if unknown else self.directories
        names_leader = record.leader != NO_LEADER_CHANGE
        state = record.leader_recovery_state
        return PartitionImage(
            replicas=replicas,
            directories=_directories(directories, len(replicas)),
            isr=_given(record.isr, self.isr),
            elr=_given(record.eligible_leader_replicas, self.elr),
            last_known_elr=_given(record.last_known_elr, self.last_known_elr),
            removing=_given(record.removing_replicas, self.removing),
            adding=_given(record.adding_replicas, self.adding),
            leader=record.leader if names_leader else self.leader,
            leader_recovery_state=(
                self.leader_recovery_state if state == -1 else _recovery_state(state)
            ),
            leader_epoch=self.leader_epoch + names_leader,
            partition_epoch=self.partition_epoch + 1,
        )

    def check_invariants(self) -> None:
        members = set(self.replicas)
        assert self.replicas, "a partition has a replica"
        assert len(members) == len(self.replicas), "at most one replica per broker"
        assert len(self.directories) == len(self.replicas)
        assert set(self.isr) <= members
        assert len(set(self.isr)) == len(self.isr)
        assert set(self.elr) <= members - set(self.isr)
        assert self.leader == NO_LEADER or self.leader in self.isr
        assert set(self.adding) <= members
        assert set(self.removing) <= members


def _given(values: list[int] | None, otherwise: tuple[int, ...]) -> tuple[int, ...]:
    return otherwise if values is None else tuple(values)


def _directories(directories: list[Uuid] | tuple[Uuid, ...], count: int) -> tuple[Uuid, ...]:
    """Fill in what a record from before directory ids does not say."""
    if not directories:
        return (DIRECTORY_MIGRATING,) * count
    if len(directories) != count:
        raise CorruptionError(f"{len(directories)} directories for {count} replicas")
    return tuple(directories)


def _recovery_state(value: int) -> LeaderRecoveryState:
    try:
        return LeaderRecoveryState(value)
    except ValueError as error:
        raise CorruptionError(f"unknown leader recovery state {value}") from error
