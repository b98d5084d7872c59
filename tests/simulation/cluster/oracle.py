"""What must hold in a cluster at any time, looked at after every round of a machine's loop.

I1   one leader per epoch; one vote per epoch and voter; epochs and high watermarks do not go back;
     a leader commits by counting only what is of its own epoch; committed batches are the same
     everywhere
I2   images at the same offset are equal; the active controller plans on the committed image
I9   leader, partition and broker epochs do not go back; the ISR is among the replicas, the leader
     in the ISR; a fenced broker leads nothing
I15  what a machine holds is bounded; no round of its loop does too much
     a broker is fenced only for a reason, and unfenced only when it knows of its registration
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from odradek.metadata import NO_LEADER, BrokerImage
from odradek.metadata.image import ClusterImage
from odradek.metadata.partition import PartitionImage
from odradek.metadata.topics import TopicImage
from odradek.quorum.metadata_quorum import MetadataQuorum
from odradek.raft.leader import Leader
from odradek.raft.messages import ReplicaKey
from odradek.raft.roles import Resigned
from odradek.raft.voters import VoterSet
from tests.simulation.cluster.machine import Machine

if TYPE_CHECKING:
    from tests.simulation.cluster.cluster import Cluster

TASKS_MAX: Final = 300
TIMERS_MAX: Final = 400
CALLS_IN_A_ROUND_MAX: Final = 1_000
PARKED_MAX: Final = 200
WAITING_MAX: Final = 100
CONNECTIONS_MAX: Final = 150
BOUNDS_CHECK_ROUNDS: Final = 500
FENCE_GRACE_SECONDS: Final = 3.0
"""How long after a fault its effects may go on: back-off, elections, heartbeats on their way."""


class ViolationError(AssertionError):
    """Something that must always hold does not."""


class _Seen:
    """What was last seen of one machine."""

    def __init__(self) -> None:
        self.epoch = 0  # over all of its lives
        self.life = 0
        self.high_watermark = 0
        self.checked_offset = 0  # committed batches were compared up to here
        self.image: ClusterImage | None = None
        self.leads: tuple[int, int] | None = None  # epoch, and where it began
        self.voters: VoterSet | None = None
        self.rounds = 0
        self.state: tuple[object, ...] = ()

    def begin_life(self, life: int) -> None:
        self.life = life
        self.high_watermark = self.checked_offset = 0
        self.image = None
        self.leads = None
        self.state = ()


class Oracle:
    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self._seen = {name: _Seen() for name in cluster.machines}
        self.leaders: dict[int, str] = {}
        self.votes: dict[tuple[str, int], ReplicaKey] = {}
        self.committed: dict[int, tuple[int, int, int]] = {}
        """Base offset to next offset, epoch and CRC of the batch there."""
        self.images: dict[int, ClusterImage] = {}
        self.latest: ClusterImage | None = None
        """The newest that any machine has, or had before it crashed."""
        self.reached: Counter[str] = Counter()
        """How often something worth testing happened."""
        self.most: Counter[str] = Counter()

    def check(self, machine: Machine) -> None:
        quorum = machine.quorum
        if quorum is None:
            return
        seen = self._seen[machine.name]
        if seen.life != machine.lives:
            seen.begin_life(machine.lives)
        seen.rounds += 1
        if seen.rounds % BOUNDS_CHECK_ROUNDS == 0:
            self._check_bounds(machine, quorum)
        raft = quorum.raft
        self._check_changes(machine, quorum)
        # Records that one set has committed may be followed by another set in the same round.
        counting = (seen.voters or raft.voters, raft.voters)
        seen.voters = raft.voters
        state = (raft.hard_state, raft.role, raft.high_watermark, quorum.loaded_offset)
        if state == seen.state:
            return
        seen.state = state
        led = seen.leads
        self._check_epoch(machine, quorum, seen)
        # What it learned as a follower it may have counted in the round in which it was elected.
        self._check_commits(machine, quorum, seen, led if led == seen.leads else None, counting)
        self._check_image(machine, quorum, seen)

    # I1.

    def _check_epoch(self, machine: Machine, quorum: MetadataQuorum, seen: _Seen) -> None:
        raft = quorum.raft
        if raft.epoch < seen.epoch:
            raise ViolationError(f"{machine.name}: epoch {raft.epoch} after {seen.epoch}")
        seen.epoch = raft.epoch
        voted = raft.hard_state.voted
        if voted is not None:
            first = self.votes.setdefault((machine.name, raft.epoch), voted)
            if first.id != voted.id:
                raise ViolationError(
                    f"{machine.name} voted for {first.id} and {voted.id} in epoch {raft.epoch}"
                )
        if not isinstance(raft.role, Leader):
            seen.leads = None
            return
        if seen.leads is None or seen.leads[0] != raft.epoch:
            self.reached["leaders"] += 1
            seen.leads = (raft.epoch, raft.role.epoch_start_offset)
        other = self.leaders.setdefault(raft.epoch, machine.name)
        if other != machine.name:
            raise ViolationError(f"epoch {raft.epoch} has two leaders, {other} and {machine.name}")

    def on_new_disk(self, machine: Machine) -> None:
        """A machine forgets all that it knew, its votes among it; it is another voter."""
        self._seen[machine.name] = _Seen()
        self.votes = {key: voted for key, voted in self.votes.items() if key[0] != machine.name}
        self.reached["disks lost"] += 1

    def _check_changes(self, machine: Machine, quorum: MetadataQuorum) -> None:
        """Check that a leader changes the voters once at a time."""
        leader, entries = quorum.raft.role, quorum.raft._quorum.history._entries
        if len(entries) < 3 or not isinstance(leader, Leader):
            return
        high_watermark = leader.high_watermark
        if high_watermark is not None and entries[-2].offset >= high_watermark:
            offsets = [each.offset for each in entries[-2:]]
            raise ViolationError(f"{machine.name}: voters change at {offsets} at once")

    def _check_majority(
        self,
        machine: Machine,
        quorum: MetadataQuorum,
        offset: int,
        counting: Iterable[VoterSet],
    ) -> None:
        """Check that a majority of the voters have what a leader counts as committed."""
        if not isinstance(quorum.raft.role, Leader | Resigned):
            return
        machines = self._cluster.machines.values()
        others = {each.quorum.replica_key: each.quorum for each in machines if each.quorum}
        # One that is down, or has lost its disk, may have had it.
        behind = {key for key, each in others.items() if each.log.log_end_offset < offset}
        if all(
            len(behind & set(each.voters)) > len(each.voters) - each.majority for each in counting
        ):
            lacking = sorted(key.id for key in behind)
            raise ViolationError(
                f"{machine.name} counts {offset} as committed; of {quorum.raft.voters.ids}"
                f" {lacking} lack it"
            )

    def _check_commits(
        self,
        machine: Machine,
        quorum: MetadataQuorum,
        seen: _Seen,
        leads: tuple[int, int] | None,
        counting: Iterable[VoterSet],
    ) -> None:
        high_watermark = quorum.high_watermark or 0
        if high_watermark < seen.high_watermark:
            raise ViolationError(
                f"{machine.name}: high watermark {high_watermark} after {seen.high_watermark}"
            )
        if high_watermark == seen.high_watermark:
            return
        if leads is not None and high_watermark <= leads[1]:
            raise ViolationError(
                f"{machine.name} leads from {leads[1]} on and counted {high_watermark} as "
                "committed, which is another epoch's"
            )
        if self._cluster.layout.first_voters is not None:
            self._check_majority(machine, quorum, high_watermark, counting)
        seen.high_watermark = high_watermark
        start_offset = quorum.log.log_start_offset
        if start_offset > seen.checked_offset:
            self.reached["began behind a snapshot"] += 1
            seen.checked_offset = start_offset
        self._compare_batches(machine, quorum, seen, high_watermark)

    def _compare_batches(
        self, machine: Machine, quorum: MetadataQuorum, seen: _Seen, end_offset: int
    ) -> None:
        for _, header in quorum._store.batches(seen.checked_offset, end_offset):
            batch = (header.next_offset, header.partition_leader_epoch, header.crc)
            other = self.committed.setdefault(header.base_offset, batch)
            if other != batch:
                raise ViolationError(
                    f"{machine.name} has {batch} committed at {header.base_offset}, others {other}"
                )
            seen.checked_offset = header.next_offset

    # I2.

    def _check_image(self, machine: Machine, quorum: MetadataQuorum, seen: _Seen) -> None:
        image = quorum.image
        if image is seen.image:
            return
        seen.image = image
        offset = image.provenance.last_offset
        known = self.images.get(offset)
        if known is None:
            self.images[offset] = image
        elif known != image:
            raise ViolationError(
                f"{machine.name} has another image at offset {offset} than others: "
                f"{difference(known, image)}"
            )
        latest = self.latest
        if latest is None or latest.provenance.last_offset < offset:
            self._check_progress(latest or ClusterImage(), image)
            self.latest = image

    def check_controllers(self) -> None:
        """Check that an active controller with nothing under way plans on the committed image."""
        for machine in self._cluster.machines.values():
            quorum, controller = machine.quorum, machine.active_controller
            if quorum is None or controller is None:
                continue
            if quorum.loaded_offset == quorum.log_end_offset and controller.image != quorum.image:
                raise ViolationError(
                    f"{machine.name}: its controller plans on something that is not committed: "
                    f"{difference(quorum.image, controller.image)}"
                )

    # I9.

    def _check_progress(self, old: ClusterImage, new: ClusterImage) -> None:
        if new.next_producer_id < old.next_producer_id:
            raise ViolationError("producer ids went back")
        for broker_id, broker in new.brokers.items():
            before = old.brokers.get(broker_id)
            if before is broker:
                continue
            if before is not None and broker.epoch < before.epoch:
                raise ViolationError(f"broker {broker_id}: epoch went back")
            was_fenced = before is None or before.epoch != broker.epoch or before.fenced
            if was_fenced and not broker.fenced:
                self._check_unfenced(broker)
            elif before is not None and not was_fenced and broker.fenced:
                self._check_fenced(broker_id)
        fenced = {each for each, broker in new.brokers.items() if broker.fenced}
        for topic_id, topic in new.topics_by_id.items():
            was = old.topics_by_id.get(topic_id)
            if was is not topic:
                _check_topic(topic, {} if was is None else was.partitions)
            if fenced:
                _check_leaders(topic, fenced)

    def _check_unfenced(self, broker: BrokerImage) -> None:
        self.reached["unfenced"] += 1
        machine = self._cluster.machine_of(broker.broker_id)
        quorum = machine.quorum
        if quorum is None or machine.incarnation_id != broker.incarnation_id:
            return  # the process that was unfenced is gone
        if quorum.loaded_offset <= broker.epoch:
            raise ViolationError(
                f"broker {broker.broker_id} was unfenced at {quorum.loaded_offset}, and is "
                f"registered at {broker.epoch}"
            )

    def _check_fenced(self, broker_id: int) -> None:
        self.reached["fenced"] += 1
        machine = self._cluster.machine_of(broker_id)
        session = int(self._cluster.layout.configs["broker.session.timeout.ms"]) / 1000
        since = self._cluster.world.now - 2 * session - FENCE_GRACE_SECONDS
        # One that starts is not the process whose session is over; it waits for just that.
        if machine.is_serving and not self._cluster.nemesis.was_hurt(machine.name, since):
            raise ViolationError(f"broker {broker_id} was fenced and nothing was wrong with it")

    # I15.

    def _check_bounds(self, machine: Machine, quorum: MetadataQuorum) -> None:
        loop = machine.sim.loop
        limits = {
            "tasks": (loop.tasks_pending, TASKS_MAX),
            "timers": (loop.timers_pending, TIMERS_MAX),
            "calls in a round": (loop.calls_in_a_round_max, CALLS_IN_A_ROUND_MAX),
            "parked raft requests": (quorum.pending_count, PARKED_MAX),
        }
        broker = getattr(machine.node, "_broker", None)
        if broker is not None:
            limits["waiting requests"] = (len(broker.delayed), WAITING_MAX)
            limits["connections"] = (len(machine.sim.network.ends), CONNECTIONS_MAX)
        for what, (count, limit) in limits.items():
            self.most[what] = max(self.most[what], count)
            if count > limit:
                raise ViolationError(f"{machine.name}: {count} {what}, {limit} are plenty")


def _check_topic(topic: TopicImage, before: Mapping[int, PartitionImage]) -> None:
    for number, partition in topic.partitions.items():
        where = f"{topic.name}-{number}"
        was = before.get(number)
        if was is partition:
            continue
        if was is not None and (
            partition.leader_epoch < was.leader_epoch
            or partition.partition_epoch < was.partition_epoch
        ):
            raise ViolationError(f"{where}: epochs went back")
        if not set(partition.isr) <= set(partition.replicas):
            raise ViolationError(f"{where}: ISR {partition.isr}, replicas {partition.replicas}")
        if partition.leader != NO_LEADER and partition.leader not in partition.isr:
            raise ViolationError(f"{where}: leader {partition.leader}, ISR {partition.isr}")
    if set(before) - set(topic.partitions):
        raise ViolationError(f"{topic.name}: partitions are gone")


def _check_leaders(topic: TopicImage, fenced: set[int]) -> None:
    for number, partition in topic.partitions.items():
        if partition.leader in fenced:
            raise ViolationError(f"{topic.name}-{number}: led by {partition.leader}, a fenced one")


def difference(one: ClusterImage, other: ClusterImage) -> str:
    """Name the first thing that is not the same in two images."""
    sections = (
        "features",
        "brokers",
        "controllers",
        "topics",
        "configs",
        "next_producer_id",
    )
    for section in sections:
        left, right = getattr(one, section), getattr(other, section)
        if left == right:
            continue
        if not isinstance(left, Mapping):
            return f"{section}: {left} and {right}"
        for key in sorted({*left, *right}, key=str):
            if left.get(key) != right.get(key):
                return f"{section} {key}: {left.get(key)} and {right.get(key)}"
    return "something else"
