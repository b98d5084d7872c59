"""The leader's half of a partition: what is committed, and who is in sync. Hot path.

A record is committed when it is in the log of the leader and of every member of the ISR. The high
watermark is the smallest end offset among them, and three rules make it safe:

- Who may be in the ISR by now counts as if it were (``isr``): a proposal may have been carried out
  although its answer is lost.
- A follower that has caught up and may join counts before it has joined. Otherwise the watermark
  could pass it, and it would never fulfil the condition for joining.
- Below ``min.insync.replicas`` the watermark stands still (KIP-966): replicas that leave the ISR
  then stay eligible for leadership, because nothing is committed without them.

A follower may join when its log reaches the high watermark *and* the offset at which this leader's
epoch began. The watermark of a new leader may be old, and records between it and the epoch's start
may be committed (KAFKA-7128). Below ``min.insync.replicas`` the first condition is nearly always
met, since the watermark does not move. Kafka then takes in replicas that are far behind, and throws
them out again (KAFKA-19996); here they must be caught up by the lag rule as well.

Three more rules are not Kafka's:

- A leader that is elected again keeps what it knows of its followers only if no other broker led in
  between, which the epochs show. Otherwise a follower may have cut its log meanwhile, and offsets
  from before would commit records that it no longer has.
- A follower that the controller takes out of the ISR has to catch up again before it counts.
- The metadata may bring a partition epoch that the controller's answer has brought before. A
  proposal that was made in between stays pending, because it may have been carried out.

Methods return what the caller is to do, such as to propose a new ISR. Nothing here asks for the
time; ``now_ms`` is monotonic. Benchmarks: ``bench/node.py``, ``bench/cluster.py``.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from odradek.core.errors import ErrorCode
from odradek.replication.follower_state import NEVER_MS, NO_BROKER_EPOCH, FollowerState
from odradek.replication.isr import CommittedIsr, Isr, PendingExpand, PendingIsr, PendingShrink
from odradek.replication.replica_log import ReplicaLog

RECOVERED: Final = 0

WAITS_FOR_METADATA: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)
"""Answers to a proposal after which only the metadata says what became of it."""
TAKES_BACK: Final = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})
"""Answers that say that a proposal was not carried out."""


class Broker(NamedTuple):
    """What the leader must know of another broker: whether it may be in an ISR."""

    epoch: int
    is_active: bool
    """Neither fenced nor in controlled shutdown."""
    is_fenced: bool = False


FindBroker = Callable[[int], Broker | None]


class Registration(NamedTuple):
    """What the metadata says about a partition."""

    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    recovery_state: int = RECOVERED


class Proposal(NamedTuple):
    """A new ISR for the controller to confirm; members with the broker epochs of their fetches."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]
    recovery_state: int = RECOVERED


class Enough(Enum):
    """Whether an offset is on enough replicas to be acknowledged with acks=all."""

    NOT_YET = auto()
    YES = auto()
    TOO_FEW_IN_SYNC = auto()
    """It is committed, but by fewer replicas than ``min.insync.replicas``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderSettings:
    """Configs that rule a partition while it is led."""

    min_insync_replicas: int = 1
    lag_ms_max: int = 30_000


class Leadership:
    __slots__ = (
        "_find_broker",
        "epoch_start_offset",
        "followers",
        "isr",
        "leader_epoch",
        "log",
        "min_isr",
        "node_id",
        "partition_epoch",
        "recovery_state",
        "replicas",
        "settings",
    )

    def __init__(
        self, node_id: int, log: ReplicaLog, settings: LeaderSettings, find_broker: FindBroker
    ) -> None:
        self.node_id = node_id
        self.log = log
        self.settings = settings
        self._find_broker = find_broker
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.epoch_start_offset = 0
        """Where the log ended when this epoch began. Behind it the watermark may be old."""
        self.replicas: tuple[int, ...] = ()
        self.followers: dict[int, FollowerState] = {}
        self.isr: Isr = CommittedIsr(frozenset())
        self.recovery_state = RECOVERED
        self.min_isr = 1

    # What the metadata says.

    def take(self, registration: Registration, now_ms: int) -> bool:
        """Lead as the metadata says; return whether a new epoch begins, with the log's end."""
        if registration.partition_epoch < self.partition_epoch:
            return False
        is_new_epoch = registration.leader_epoch > self.leader_epoch
        self._take_replicas(registration.replicas)
        if is_new_epoch:
            self._begin_epoch(registration, now_ms)
        is_newer = is_new_epoch or registration.partition_epoch > self.partition_epoch
        if is_newer or not self.isr.maximal <= set(registration.replicas):
            # The same partition epoch may show that a replica that was to join has been removed:
            # the controller's answer, which brought that epoch before, does not name the replicas.
            isr = frozenset(registration.isr)
            if not is_new_epoch:
                self._on_removed(self.isr.committed - isr)
            self.isr = CommittedIsr(isr)
        self.partition_epoch = registration.partition_epoch
        # An unclean leader has recovered as soon as it leads: it has what there is. The next
        # proposal says so.
        self.recovery_state = registration.recovery_state
        return is_new_epoch

    def _on_removed(self, node_ids: Iterable[int]) -> None:
        """Wait no longer for followers that the controller has taken out of the ISR.

        Their disk may have failed while the broker lives. What is known of them is from before, and
        would hold up the high watermark until ``lag_ms_max`` is over, as it does in Kafka.
        """
        for node_id in node_ids:
            follower = self.followers.get(node_id)
            if follower is not None:
                follower.on_removed()

    def _begin_epoch(self, registration: Registration, now_ms: int) -> None:
        led_before = 0 <= self.leader_epoch == registration.leader_epoch - 1
        self.leader_epoch = registration.leader_epoch
        self.epoch_start_offset = end = self.log.log_end_offset
        for node_id, follower in self.followers.items():
            is_in_sync = node_id in registration.isr
            if led_before:
                follower.begin_epoch(end, is_in_sync=is_in_sync, now_ms=now_ms)
            else:
                follower.forget(now_ms if is_in_sync else NEVER_MS)

    def _take_replicas(self, replicas: Sequence[int]) -> None:
        self.replicas = tuple(replicas)
        others = [each for each in replicas if each != self.node_id]
        known = self.followers
        self.followers = {each: known.get(each) or FollowerState(each) for each in others}
        self.update_settings(self.settings)

    def update_settings(self, settings: LeaderSettings) -> None:
        self.settings = settings
        self.min_isr = min(settings.min_insync_replicas, max(len(self.replicas), 1))

    # The high watermark.

    @property
    def is_under_min_isr(self) -> bool:
        return len(self.isr.committed) < self.min_isr

    def high_watermark(self, now_ms: int) -> int:
        """Return up to where all is committed now; never below the log's watermark."""
        log = self.log
        end = leader_end = log.log_end_offset
        if not self.followers:
            return end
        if self.is_under_min_isr:
            return log.high_watermark
        maximal, lag_ms_max = self.isr.maximal, self.settings.lag_ms_max
        for node_id, follower in self.followers.items():
            if follower.log_end_offset < end and (
                node_id in maximal
                or (
                    follower.is_caught_up(leader_end, lag_ms_max, now_ms)
                    and self._is_eligible(follower)
                )
            ):
                end = follower.log_end_offset
        return max(end, log.high_watermark)

    def enough(self, end_offset: int) -> Enough:
        """Return whether all before ``end_offset`` may be acknowledged with acks=all."""
        if self.log.high_watermark < end_offset:
            return Enough.NOT_YET
        return Enough.YES if len(self.isr.maximal) >= self.min_isr else Enough.TOO_FEW_IN_SYNC

    def low_watermark(self) -> int:
        """Return from where on all living replicas have records.

        A replica that has not fetched from this leader may begin anywhere: UNKNOWN_OFFSET.
        """
        starts = [
            follower.log_start_offset
            for node_id, follower in self.followers.items()
            if (broker := self._find_broker(node_id)) is not None and not broker.is_fenced
        ]
        return min([self.log.log_start_offset, *starts])

    # Followers.

    def is_overtaken(self, node_id: int, broker_epoch: int) -> bool:
        """Whether a follower has been started again since it sent a fetch: to be refused.

        What it says of its log may no longer be true (KIP-903). Its fetches may be here before the
        metadata that it was started again.
        """
        if broker_epoch <= NO_BROKER_EPOCH:
            return False
        seen = self.followers[node_id].broker_epoch
        if seen is not None and broker_epoch < seen:
            return True
        broker = self._find_broker(node_id)
        return broker is not None and broker_epoch < broker.epoch

    def on_fetch(
        self, node_id: int, offset: int, log_start_offset: int, broker_epoch: int, now_ms: int
    ) -> Proposal | None:
        """Take note of a follower's fetch that was served; return a proposal if it may join.

        To be called for the first, successful and not diverging read of a request, not when a
        parked one is answered (KAFKA-8400), and not if the fetch ``is_overtaken``. The high
        watermark may have moved.
        """
        follower = self.followers[node_id]
        leader_end = self.log.log_end_offset
        follower.on_fetch(offset, log_start_offset, leader_end, broker_epoch, now_ms)
        if node_id in self.isr.maximal or not self._may_join(follower, now_ms):
            return None
        self.isr = PendingExpand(self.isr.committed, node_id)
        return self._proposal(self.isr)

    def _may_join(self, follower: FollowerState, now_ms: int) -> bool:
        if not isinstance(self.isr, CommittedIsr):
            return False
        log = self.log
        is_in_sync = follower.log_end_offset >= max(log.high_watermark, self.epoch_start_offset)
        if is_in_sync and self.is_under_min_isr:
            lag_ms_max = self.settings.lag_ms_max
            is_in_sync = follower.is_caught_up(log.log_end_offset, lag_ms_max, now_ms)
        return is_in_sync and self._is_eligible(follower)

    def _is_eligible(self, follower: FollowerState) -> bool:
        """Whether the follower that fetches is the broker that the metadata knows (KIP-903)."""
        broker = self._find_broker(follower.node_id)
        return (
            broker is not None
            and broker.is_active
            and follower.broker_epoch is not None
            and follower.broker_epoch in (NO_BROKER_EPOCH, broker.epoch)
        )

    def shrink(self, now_ms: int) -> Proposal | None:
        """Propose an ISR without the members that lag, if there are any."""
        isr = self.isr
        if not isinstance(isr, CommittedIsr) or len(isr.members) <= 1:
            return None
        lagging = frozenset(each for each in isr.members if self._lags(each, now_ms))
        if not lagging:
            return None
        self.isr = PendingShrink(isr.members, lagging)
        return self._proposal(self.isr)

    def _lags(self, node_id: int, now_ms: int) -> bool:
        if node_id == self.node_id:
            return False
        follower = self.followers.get(node_id)
        end, lag_ms_max = self.log.log_end_offset, self.settings.lag_ms_max
        return follower is None or not follower.is_caught_up(end, lag_ms_max, now_ms)

    # Proposals and their answers.

    def _proposal(self, pending: PendingIsr) -> Proposal:
        return Proposal(
            self.leader_epoch,
            self.partition_epoch,
            tuple((each, self._broker_epoch(each)) for each in sorted(pending.proposed)),
        )

    def _broker_epoch(self, node_id: int) -> int:
        """Return the epoch under which a member was in sync: that of its fetches.

        A member that has not fetched from this leader is not checked. If it was started again the
        controller has taken it out, and the partition epoch makes the proposal void.
        """
        if node_id != self.node_id:
            follower = self.followers.get(node_id)
            epoch = None if follower is None else follower.broker_epoch
            return NO_BROKER_EPOCH if epoch is None else epoch
        broker = self._find_broker(node_id)
        return NO_BROKER_EPOCH if broker is None else broker.epoch

    def is_current(self, proposal: Proposal) -> bool:
        """Whether a proposal still waits for its answer: no metadata has overtaken it."""
        return (
            not isinstance(self.isr, CommittedIsr)
            and proposal.leader_epoch == self.leader_epoch
            and proposal.partition_epoch == self.partition_epoch
            and self.isr.proposed == {member for member, _ in proposal.isr}
        )

    def on_confirmed(self, proposal: Proposal, confirmed: Registration) -> None:
        """Take the controller's answer to a proposal: the partition as it is now."""
        if not self.is_current(proposal) or confirmed.leader_epoch != self.leader_epoch:
            return  # the metadata has said more already, or will
        if confirmed.partition_epoch < self.partition_epoch:
            return
        self.isr = CommittedIsr(frozenset(confirmed.isr))
        self.partition_epoch = confirmed.partition_epoch
        self.recovery_state = confirmed.recovery_state

    def on_refused(self, proposal: Proposal, code: ErrorCode) -> bool:
        """Take a refusal; return whether the proposal is to be sent again."""
        if not self.is_current(proposal):
            return False
        if code in TAKES_BACK:
            self.isr = CommittedIsr(self.isr.committed)
            return False
        # Otherwise it stays pending: it may have been carried out.
        return code not in WAITS_FOR_METADATA

    # Figures.

    def out_of_sync(self) -> Iterable[int]:
        """Return the replicas that are not in the ISR."""
        return [each for each in self.replicas if each not in self.isr.committed]

    def check_invariants(self) -> None:
        log = self.log
        assert log.log_start_offset <= log.high_watermark <= log.log_end_offset
        assert set(self.followers) == set(self.replicas) - {self.node_id}
        assert self.node_id in self.isr.committed
        assert self.isr.committed <= self.isr.maximal
        assert 1 <= self.min_isr <= max(len(self.replicas), 1)
