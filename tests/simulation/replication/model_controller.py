"""A controller of one partition: brokers, their sessions, elections, ISR changes. It never fails.

What is decided becomes the next ``State``; brokers learn of states in order, late, and now and then
of several at once. Who leads next is for the shipped ``PartitionChange`` to say, ELR and unclean
elections included. AlterPartition is checked in the order of the shipped controller.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from odradek.controller.partition_change import Election, PartitionChange, PartitionRules
from odradek.core.errors import ErrorCode
from odradek.core.ids import ZERO_UUID
from odradek.metadata.partition import (
    DIRECTORY_UNASSIGNED,
    NO_LEADER,
    LeaderRecoveryState,
    PartitionImage,
)
from odradek.replication.leadership import Proposal, Registration

SESSION_MS: Final = 800
UNKNOWN_EPOCH: Final = -1


@dataclass(frozen=True, slots=True)
class BrokerState:
    epoch: int
    run: int = 0
    """Which run of its process registered."""
    is_fenced: bool = True
    is_stopping: bool = False

    @property
    def is_active(self) -> bool:
        return not (self.is_fenced or self.is_stopping)


@dataclass(frozen=True, slots=True)
class State:
    """The metadata after a change."""

    partition: PartitionImage
    brokers: dict[int, BrokerState]


@dataclass(frozen=True, slots=True)
class Rules:
    min_isr: int = 1
    has_elr: bool = True
    allows_unclean: bool = False
    lag_ms: int = 2_000
    """``replica.lag.time.max.ms``"""


class ModelController:
    def __init__(self, nodes: list[int], rules: Rules, on_change: Callable[[], None]) -> None:
        self.rules = rules
        self.sessions: dict[int, int] = {}
        """Until when a broker's session lasts."""
        self.unclean_epochs: list[int] = []
        self._on_change = on_change
        replicas = tuple(nodes)
        partition = PartitionImage(
            replicas=replicas,
            directories=(DIRECTORY_UNASSIGNED,) * len(replicas),
            isr=replicas,
            leader=replicas[0],
        )
        self.states = [State(partition, {each: BrokerState(0, is_fenced=False) for each in nodes})]
        self.sessions = dict.fromkeys(nodes, SESSION_MS)

    @property
    def version(self) -> int:
        return len(self.states) - 1

    @property
    def partition(self) -> PartitionImage:
        return self.states[-1].partition

    @property
    def brokers(self) -> dict[int, BrokerState]:
        return self.states[-1].brokers

    # Brokers.

    def register(
        self, node_id: int, run: int, *, is_clean: bool, at_once: bool, now_ms: int
    ) -> int | None:
        """Return a new epoch; None while an earlier run of the broker has a session.

        A broker that shares the controller's process (``at_once``) need not wait for its end.
        """
        known = self.brokers[node_id]
        if known.run == run:
            return known.epoch  # the answer was lost
        if run < known.run or not (known.is_fenced or at_once):
            return None
        is_lost = self.rules.has_elr and not is_clean
        if is_lost and node_id in (*self.partition.isr, *self.partition.elr):
            self._leave(node_id, is_lost=True)
        else:
            self._leave(node_id)
        epoch = self.version + 1
        self._set_broker(node_id, BrokerState(epoch, run))
        self.sessions[node_id] = now_ms + SESSION_MS
        return epoch

    def heartbeat(self, node_id: int, epoch: int, applied: int, now_ms: int) -> None:
        broker = self.brokers[node_id]
        if broker.epoch != epoch:
            return
        self.sessions[node_id] = now_ms + SESSION_MS
        if broker.is_fenced and applied >= epoch:
            self._set_broker(node_id, replace(broker, is_fenced=False))
            if self.partition.leader == NO_LEADER:
                self._change(self.partition.isr)

    def stop(self, node_id: int, epoch: int) -> bool:
        """Controlled shutdown: give away what the broker leads; return whether it may stop."""
        broker = self.brokers[node_id]
        if broker.epoch != epoch:
            return False
        if not broker.is_stopping:
            self._set_broker(node_id, replace(broker, is_stopping=True))
            self._leave(node_id)
        return self.partition.leader != node_id

    def stopped(self, node_id: int, epoch: int) -> None:
        broker = self.brokers[node_id]
        if broker.epoch == epoch:
            self._set_broker(node_id, replace(broker, is_fenced=True))

    def fence_overdue(self, now_ms: int) -> None:
        for node_id, broker in self.brokers.items():
            if not broker.is_fenced and self.sessions[node_id] < now_ms:
                self._set_broker(node_id, replace(broker, is_fenced=True))
                self._leave(node_id)
                return  # one at a time

    def prefer(self, node_id: int) -> None:
        """Put a replica first, as a reassignment may, and have it elected if it is in sync."""
        now = self.partition
        others = tuple(each for each in now.replicas if each != node_id)
        if now.preferred_leader != node_id:
            epoch = now.partition_epoch + 1
            preferring = replace(now, replicas=(node_id, *others), partition_epoch=epoch)
            self._append(State(preferring, self.brokers))
        self._change(self.partition.isr, election=Election.PREFERRED)

    def _leave(self, node_id: int, *, is_lost: bool = False) -> None:
        if is_lost or node_id in self.partition.isr:
            isr = tuple(each for each in self.partition.isr if each != node_id)
            self._change(isr, lost=node_id if is_lost else NO_LEADER, leaves=node_id)

    def _set_broker(self, node_id: int, broker: BrokerState) -> None:
        self._append(State(self.partition, {**self.brokers, node_id: broker}))

    def _append(self, state: State) -> None:
        self.states.append(state)
        self._on_change()

    # The partition.

    def _change(
        self,
        isr: tuple[int, ...],
        *,
        lost: int = NO_LEADER,
        leaves: int = NO_LEADER,
        election: Election | None = None,
        recovery_state: LeaderRecoveryState | None = None,
    ) -> None:
        brokers, now, rules = self.brokers, self.partition, self.rules
        if election is None:
            election = Election.UNCLEAN if rules.allows_unclean else Election.ONLINE
        change = PartitionChange(
            topic_id=ZERO_UUID,
            number=0,
            partition=now,
            rules=PartitionRules(min_isr=rules.min_isr, elr_enabled=rules.has_elr),
            is_acceptable_leader=lambda each: brokers[each].is_active and each != leaves,
            isr=isr,
            recovery_state=now.leader_recovery_state if recovery_state is None else recovery_state,
            election=election,
            lost_replica=lost,
        )
        record = change.plan()
        if record is None:
            return
        after = now.changed_by(record)
        if after.leader not in (now.leader, NO_LEADER, *now.isr, *now.elr):
            self.unclean_epochs.append(after.leader_epoch)
        self._append(State(after, brokers))

    def alter_partition(
        self, sender: int, sender_epoch: int, proposal: Proposal
    ) -> Registration | ErrorCode:
        brokers, now = self.brokers, self.partition
        if brokers[sender].epoch != sender_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        if proposal.leader_epoch < now.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if sender != now.leader:
            return ErrorCode.INVALID_REQUEST
        if proposal.partition_epoch < now.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        assert proposal.leader_epoch == now.leader_epoch
        assert proposal.partition_epoch == now.partition_epoch
        isr = tuple(member for member, _ in proposal.isr)
        assert sender in isr
        assert len(set(isr)) == len(isr)
        assert set(isr) <= set(now.replicas)
        for member, epoch in proposal.isr:
            broker = brokers[member]
            if not broker.is_active or epoch not in (UNKNOWN_EPOCH, broker.epoch):
                return ErrorCode.INELIGIBLE_REPLICA
        self._change(isr, recovery_state=LeaderRecoveryState(proposal.recovery_state))
        after = self.partition
        return registration_of(after)


def registration_of(partition: PartitionImage) -> Registration:
    return Registration(
        partition.leader_epoch,
        partition.partition_epoch,
        partition.replicas,
        partition.isr,
        int(partition.leader_recovery_state),
    )
