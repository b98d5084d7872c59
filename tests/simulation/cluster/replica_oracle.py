"""What must hold for replicated partitions, looked at after every round of a machine's loop.

I3   one broker leads a partition in one leader epoch
I4   the high watermark is within the log, that of a leader does not go back in its epoch, and every
     replica that is or may be in the ISR has what is before it
I5   what was before a high watermark stays: at its offset, with its checksum, in every later leader
I6   batches with the same offset and leader epoch are the same, and so is all before them
I10  a fenced broker is in no ISR of two or more
I13  a new topic begins with an empty log, whatever its name was used for before

The oracle keeps, for each replica, the batches it has (``_Mirror``); only what was appended or cut
since the last look is read again.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from odradek.broker.partition import Partition
from odradek.core.errors import ApiError
from odradek.core.ids import TopicPartition, Uuid
from odradek.metadata.image import ClusterImage
from odradek.metadata.partition import LeaderRecoveryState, PartitionImage
from odradek.records.batch import BatchHeader, iter_headers
from odradek.replication.leadership import Leadership
from odradek.storage.log import Log
from odradek.storage.segment import Segment
from tests.simulation.cluster.machine import Machine
from tests.simulation.cluster.oracle import ViolationError

if TYPE_CHECKING:
    from tests.simulation.cluster.cluster import Cluster

_READ_BYTES_MAX: Final = 1 << 20


class Batch(NamedTuple):
    base_offset: int
    next_offset: int
    epoch: int
    crc: int


_base_offset = attrgetter("base_offset")
_state_of = attrgetter(
    "log",
    "leadership",
    "following",
    "leader_epoch",
    "log.log_end_offset",
    "log.high_watermark",
    "log._truncations",
    "log.log_start_offset",
)
"""What changes when something happens to a partition; it is compared after every round."""


def _batch(header: BatchHeader) -> Batch:
    return Batch(header.base_offset, header.next_offset, header.partition_leader_epoch, header.crc)


class _Mirror:
    """The batches of one replica, as far as they were looked at."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.batches: list[Batch] = []
        self.end_offset = 0
        self.truncations = log._truncations
        self.segment: Segment | None = None
        self.position = 0
        """Up to where in that segment the batches are here."""
        self.leads: tuple[int, int] | None = None
        """The epoch in which it leads, and its high watermark."""
        self.follows: int | None = None
        """The epoch of the leader that it follows."""
        self.followed_to = 0
        """Its high watermark as a follower: what a leader before it has committed."""
        self.in_sync = 0
        """How many are in the ISR, as its leader has it from the controller."""

    def index_of(self, offset: int) -> int:
        """Return the index of the first batch that begins at or after ``offset``."""
        return bisect_left(self.batches, offset, key=_base_offset)

    def cut(self, offset: int) -> None:
        del self.batches[self.index_of(offset) :]
        if self.batches and self.batches[-1].next_offset > offset:
            del self.batches[-1]
        self.end_offset = self.batches[-1].next_offset if self.batches else 0

    def between(self, start: int, end: int) -> list[Batch]:
        return self.batches[self.index_of(start) : self.index_of(end)]


class _Truth:
    """What is known of one partition, whoever has it."""

    def __init__(self) -> None:
        self.leaders: dict[int, str] = {}
        self.written: dict[tuple[int, int], tuple[Batch, Batch | None]] = {}
        """By offset and epoch: the batch there, and the one before it."""
        self.committed: list[Batch] = []
        self.committed_in: list[int] = []
        """The epoch of the leader that committed each of them."""
        self.committed_end = 0
        self.start_offset = 0
        self.unclean_epoch = 0
        """The last leader epoch that may have begun without what was committed."""
        self.joined: dict[int, float] = {}
        """When each replica was last taken into the ISR, having all that was committed."""
        self.began: dict[int, float] = {}
        """When each leader epoch was first seen."""


class ReplicaOracle:
    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self._mirrors: dict[str, tuple[int, dict[tuple[Uuid, int], _Mirror]]] = {}
        self._states: dict[str, list[Any]] = {}
        self._unseen: dict[str, int] = {}
        """The last life of each machine that ended in the middle of a round."""
        self._truths: dict[tuple[Uuid, int], _Truth] = {}
        self._image: ClusterImage | None = None
        self._registered: dict[int, tuple[int, float]] = {}
        """The epoch of each broker's registration, and when it was first seen."""
        self.reached: Counter[str] = Counter()
        self.losses: list[str] = []
        """Partitions that lost what was committed, as they were allowed to."""
        self.led_twice: dict[str, list[tuple[float, float]]] = {}
        """When a topic's earlier leaders led on beside the later ones: from, to."""

    def truth_of(self, topic_id: Uuid, number: int) -> _Truth:
        at = (topic_id, number)
        found = self._truths.get(at)
        if found is None:
            found = self._truths[at] = _Truth()
        return found

    # What a machine has.

    def partitions_of(self, machine: Machine) -> Sequence[Partition]:
        node = machine.node
        broker = getattr(node, "_broker", None)
        if node is None or broker is None or machine.disk.is_off or node.failure is not None:
            return ()
        found: dict[TopicPartition, Partition] = broker.replicas._partitions
        return list(found.values())

    def check(self, machine: Machine) -> None:
        if machine.disk.is_off:
            # It may have appended, and acknowledged that, before the write in which it crashed.
            self._unseen[machine.name] = machine.lives
        partitions = self.partitions_of(machine)
        if not partitions:
            return
        life, mirrors = self._mirrors.get(machine.name, (0, {}))
        if life != machine.lives:
            for at, old in mirrors.items():
                if old.leads is not None:
                    self._note_end(old.log.partition.topic, self.truth_of(*at), old.leads[0])
            life, mirrors = machine.lives, {}
            self._mirrors[machine.name] = (life, mirrors)
            self._states[machine.name] = []
        states = list(map(_state_of, partitions))
        seen = self._states[machine.name]
        if states == seen:
            return
        self._states[machine.name] = states
        has_new = len(seen) != len(states)
        for number, partition in enumerate(partitions):
            if not has_new and states[number] == seen[number]:
                continue
            log = partition.log
            at = (partition.topic_id, partition.key.partition)
            mirror = mirrors.get(at)
            if mirror is None or mirror.log is not log:
                mirror = mirrors[at] = _Mirror(log)
                # It may have begun to lead and appended in one round.
                leadership = partition.leadership
                was_empty = leadership is not None and leadership.epoch_start_offset == 0
                if log.log_end_offset and not was_empty and not self.truth_of(*at).leaders:
                    raise ViolationError(
                        f"{partition.key} on {machine.name}: a new topic begins with a log that "
                        f"ends at {log.log_end_offset}"
                    )
            self._check_partition(machine, partition, mirror)

    def _check_partition(self, machine: Machine, partition: Partition, mirror: _Mirror) -> None:
        truth = self.truth_of(partition.topic_id, partition.key.partition)
        where = f"{partition.key} on {machine.name}"
        log = partition.log
        if not log.log_start_offset <= log.high_watermark <= log.log_end_offset:
            raise ViolationError(
                f"{where}: start {log.log_start_offset}, high watermark {log.high_watermark}, "
                f"end {log.log_end_offset}"
            )
        partition.check_invariants()
        self._update(where, truth, mirror)
        leadership, following = partition.leadership, partition.following
        mirror.follows = None if following is None else following.leader_epoch
        if mirror.leads is not None and (
            leadership is None or mirror.leads[0] != partition.leader_epoch
        ):
            self._note_end(partition.key.topic, truth, mirror.leads[0])
        if leadership is None:
            mirror.followed_to = log.high_watermark
            if mirror.leads is not None and log.high_watermark > truth.committed_end:
                # It committed and resigned in one round: one that was paused catches up so.
                if mirror.leads[0] < truth.unclean_epoch:
                    self._note_loss(partition)
                else:
                    self._commit(truth, mirror, log.high_watermark, where, mirror.leads[0])
            mirror.leads = None
            return
        self._check_leader(machine, partition, leadership, truth, mirror, where)

    def _note_end(self, topic: str, truth: _Truth, epoch: int) -> None:
        """Note how long a leader led on that was none any more."""
        later = [began for each, began in truth.began.items() if each > epoch]
        if later:
            spans = self.led_twice.setdefault(topic, [])
            spans.append((min(later), self._cluster.world.now))

    # I6.

    def _update(self, where: str, truth: _Truth, mirror: _Mirror) -> None:
        """Read what is new in a replica, and compare it with what others have there."""
        log = mirror.log
        if mirror.truncations != log._truncations or log.log_end_offset < mirror.end_offset:
            self.reached["cuts"] += mirror.truncations != log._truncations
            mirror.truncations = log._truncations
            self._cut(truth, mirror)
        if log.log_end_offset == mirror.end_offset:
            return
        before = mirror.batches[-1] if mirror.batches else None
        for batch in self._read_new(mirror):
            known = truth.written.setdefault((batch.base_offset, batch.epoch), (batch, before))
            if known[0] != batch:
                raise ViolationError(f"{where} has {batch}, where others have {known[0]}")
            is_deleted = before is None or before.next_offset <= truth.start_offset
            if not is_deleted and known[1] is not None and known[1] != before:
                raise ViolationError(
                    f"{where} has {before} before {batch}, where others have {known[1]}"
                )
            mirror.batches.append(batch)
            before = batch
        mirror.end_offset = log.log_end_offset

    def _read_new(self, mirror: _Mirror) -> list[Batch]:
        """Return what was appended since; mostly it is behind what was read last."""
        log, segment = mirror.log, mirror.log.segments.active
        if mirror.segment is segment and mirror.position <= segment.size:
            records = segment.read(mirror.position, segment.size - mirror.position)
            batches = [_batch(header) for header in iter_headers(records)]
        else:
            batches = self._read(log, max(mirror.end_offset, log.log_start_offset))
        mirror.segment, mirror.position = segment, segment.size
        return batches

    def _cut(self, truth: _Truth, mirror: _Mirror) -> None:
        """Drop what is not in the log any more: all from the first batch that differs."""
        log, mirror.segment = mirror.log, None
        mirror.cut(log.log_end_offset)
        present = {batch.base_offset: batch for batch in self._read(log, log.log_start_offset)}
        kept = 0
        for batch in mirror.batches:
            if present.get(batch.base_offset, batch) != batch:
                break
            if batch.next_offset > log.log_start_offset and batch.base_offset not in present:
                break
            kept += 1
        del mirror.batches[kept:]
        mirror.end_offset = mirror.batches[-1].next_offset if mirror.batches else 0

    def _read(self, log: Log, start: int) -> list[Batch]:
        batches: list[Batch] = []
        offset = start
        while offset < log.log_end_offset:
            try:
                records = log.read(offset, bytes_max=_READ_BYTES_MAX).records
            except ApiError as error:
                raise ViolationError(
                    f"{log.partition}: {offset} cannot be read: {error}"
                ) from error
            if not records:
                break
            for header in iter_headers(records, partial_tail=True):
                batches.append(_batch(header))
            offset = batches[-1].next_offset
        return batches

    # I3, I4, I5.

    def _check_leader(
        self,
        machine: Machine,
        partition: Partition,
        leadership: Leadership,
        truth: _Truth,
        mirror: _Mirror,
        where: str,
    ) -> None:
        log, epoch = partition.log, partition.leader_epoch
        first = truth.leaders.setdefault(epoch, machine.name)
        if first != machine.name:
            raise ViolationError(f"{where}: leads in epoch {epoch}, as {first} does")
        truth.began.setdefault(epoch, self._cluster.world.now)
        truth.start_offset = max(truth.start_offset, log.log_start_offset)
        high_watermark = log.high_watermark
        if mirror.leads is None or mirror.leads[0] != epoch:
            self.reached["elections"] += 1
            self._check_election(machine, partition, truth, mirror, where)
        elif high_watermark < mirror.leads[1]:
            raise ViolationError(
                f"{where}: the high watermark of epoch {epoch} goes from {mirror.leads[1]} back to "
                f"{high_watermark}"
            )
        mirror.leads = (epoch, high_watermark)
        in_sync = len(leadership.isr.committed)
        if epoch < truth.unclean_epoch:
            # It does not know yet that its records were given up.
            if high_watermark > truth.committed_end:
                self._note_loss(partition)
        elif high_watermark > truth.committed_end:
            least = min(self._cluster.min_isr(partition.key.topic), len(leadership.replicas))
            # It may just have become less. Or the leader before it committed that in the round in
            # which it crashed, with others in sync.
            is_its_own = high_watermark > mirror.followed_to
            if is_its_own and max(in_sync, mirror.in_sync) < least:
                raise ViolationError(
                    f"{where}: {high_watermark} is committed with {in_sync} in sync, and "
                    f"min.insync.replicas are {least}"
                )
            self._check_reach(partition, leadership, truth, mirror, where)
            self._commit(truth, mirror, high_watermark, where, epoch)
        mirror.in_sync = in_sync

    def _check_election(
        self,
        machine: Machine,
        partition: Partition,
        truth: _Truth,
        mirror: _Mirror,
        where: str,
    ) -> None:
        """Check that a new leader has all that was ever committed."""
        log, epoch = partition.log, partition.leader_epoch
        if self._may_lose(machine, partition, truth):
            self._relax(machine, partition, truth, mirror)
            return
        start = max(log.log_start_offset, truth.start_offset)
        known = [each for each in truth.committed if each.base_offset >= start]
        end = truth.committed_end
        if any(later > epoch for later in truth.began):
            # It learns late that it was elected, and its successors committed meanwhile.
            pairs = zip(truth.committed, truth.committed_in, strict=True)
            known = [each for each, by in pairs if each.base_offset >= start and by < epoch]
            end = known[-1].next_offset if known else start
        own = mirror.between(start, end)
        if own != known:
            raise ViolationError(
                f"{where}: leads in epoch {epoch} without what was committed: "
                f"{first_difference(known, own)}; its log ends at {log.log_end_offset}, "
                f"committed was {truth.committed_end}"
            )

    def _may_lose(self, machine: Machine, partition: Partition, truth: _Truth) -> bool:
        """Whether a new leader may lack what was committed, by Kafka's rules.

        It lost its power after it was last in sync, and all others left the ISR before it. With
        eligible leader replicas such an election is an unclean one, and says so.
        """
        leadership, layout = partition.leadership, self._cluster.layout
        assert leadership is not None
        joined = truth.joined.get(machine.place.node_id, 0.0)
        is_unclean = leadership.recovery_state == LeaderRecoveryState.RECOVERING
        if is_unclean and self._cluster.may_lose(partition.key.topic):
            return True
        if self._cluster.is_flushed:
            return False
        return machine.power_lost_at >= joined and (is_unclean or not layout.has_elr)

    def _relax(
        self, machine: Machine, partition: Partition, truth: _Truth, mirror: _Mirror
    ) -> None:
        """Take what an unclean leader has for the truth: only a suffix may be gone."""
        truth.joined[machine.place.node_id] = self._cluster.world.now
        kept = 0
        for one, other in zip(truth.committed, mirror.batches, strict=False):
            if one != other:
                break
            kept += 1
        truth.unclean_epoch = partition.leader_epoch
        if kept < len(truth.committed):
            self._note_loss(partition)
        del truth.committed[kept:], truth.committed_in[kept:]
        truth.committed_end = truth.committed[-1].next_offset if truth.committed else 0

    def _note_loss(self, partition: Partition) -> None:
        self.reached["losses"] += 1
        self.losses.append(str(partition.key))

    def _check_reach(
        self,
        partition: Partition,
        leadership: Leadership,
        truth: _Truth,
        mirror: _Mirror,
        where: str,
    ) -> None:
        """Check that all that may be in the ISR have what is committed now."""
        high_watermark, epoch = partition.log.high_watermark, partition.leader_epoch
        members = set(leadership.isr.maximal)
        known = self._known(partition)
        if known is not None and known.leader_epoch == epoch:
            members.update(known.isr)
        wanted = mirror.between(truth.committed_end, high_watermark)
        for member in sorted(members):
            machine = self._cluster.machine_of(member)
            if machine.power_lost_at >= truth.began[epoch]:
                continue  # the leader may not know yet that it has less now
            life, mirrors = self._mirrors.get(machine.name, (0, {}))
            if self._unseen.get(machine.name) == life:
                continue
            other = mirrors.get((partition.topic_id, partition.key.partition))
            if life != machine.lives or other is None or other.follows != epoch:
                continue
            found = other.between(truth.committed_end, high_watermark)
            if found != wanted:
                raise ViolationError(
                    f"{where}: {high_watermark} is committed, and {member} of the ISR "
                    f"{sorted(members)} ends at {other.end_offset}: "
                    f"{first_difference(wanted, found)}"
                )

    def _known(self, partition: Partition) -> PartitionImage | None:
        image = self._cluster.oracle.latest
        topic = None if image is None else image.topics_by_id.get(partition.topic_id)
        return None if topic is None else topic.partitions.get(partition.key.partition)

    def _commit(self, truth: _Truth, mirror: _Mirror, end: int, where: str, epoch: int) -> None:
        for batch in mirror.between(truth.committed_end, end):
            if truth.committed and batch.base_offset < truth.committed[-1].next_offset:
                raise ViolationError(f"{where}: {batch} overlaps {truth.committed[-1]}")
            truth.committed.append(batch)
            truth.committed_in.append(epoch)
        truth.committed_end = end
        self.reached["commits"] += 1

    def check_read(self, key: TopicPartition, offset: int) -> None:
        """Check that what a client was given had been committed."""
        if self._cluster.has_crashed_in_write or str(key) in self.losses:
            return  # what was committed just before a crash was not seen here
        image = self._cluster.oracle.latest
        topic = None if image is None else image.topics.get(key.topic)
        if topic is None:
            return
        end = self.truth_of(topic.topic_id, key.partition).committed_end
        if offset >= end:
            raise ViolationError(f"{key}: {offset} was read, and only {end} is committed")

    # What the metadata says.

    def check_image(self) -> None:
        """Look at the newest image, if there is one that was not looked at."""
        image = self._cluster.oracle.latest
        if image is None or image is self._image:
            return
        before, self._image = self._image, image
        fenced = {each for each, broker in image.brokers.items() if broker.fenced}
        for each, broker in image.brokers.items():
            if self._registered.get(each, (None, 0.0))[0] != broker.epoch:
                self._registered[each] = (broker.epoch, self._cluster.world.now)
        for topic_id, topic in image.topics_by_id.items():
            was = None if before is None else before.topics_by_id.get(topic_id)
            if was is topic and not fenced:
                continue
            for number, partition in topic.partitions.items():
                where = f"{topic.name}-{number}"
                both = set(partition.isr) & set(partition.elr)
                if both:
                    raise ViolationError(f"{where}: {both} are in the ISR and in the ELR")
                if len(partition.isr) > 1 and fenced & set(partition.isr):
                    raise ViolationError(f"{where}: fenced brokers in the ISR {partition.isr}")
                old = None if was is None else was.partitions.get(number)
                if old is not partition:
                    self._cluster.say(f"{where} {_describe(partition)}")
                    self._on_change(topic_id, number, old, partition)

    def _is_current(self, broker_id: int) -> bool:
        """Whether a broker's registration is that of its process.

        One that has lost its power may join an ISR until it registers again, with what it had.
        """
        _, since = self._registered[broker_id]
        return self._cluster.machine_of(broker_id).power_lost_at < since

    def _on_change(
        self, topic_id: Uuid, number: int, old: PartitionImage | None, new: PartitionImage
    ) -> None:
        is_unclean = new.leader_recovery_state is LeaderRecoveryState.RECOVERING
        if not is_unclean or old is None or new.leader_epoch == old.leader_epoch:
            # One that is elected from the ELR joins nothing: it has what it had when it was last in
            # sync, and may have been down for long.
            before = () if old is None else (*old.isr, *old.elr)
            joined = [each for each in set(new.isr).difference(before) if self._is_current(each)]
            truth = self.truth_of(topic_id, number)
            truth.joined.update(dict.fromkeys(joined, self._cluster.world.now))
        if old is None:
            return
        if len(new.isr) < len(old.isr):
            self.reached["ISR shrinks"] += 1
        elif len(new.isr) > len(old.isr):
            self.reached["ISR grows"] += 1
        if new.elr and not old.elr:
            self.reached["ELR"] += 1
        if is_unclean and new.leader_epoch != old.leader_epoch:
            self.reached["unclean elections"] += 1

    # At the end.

    def check_equal(self, topic_id: Uuid, number: int, names: Sequence[str]) -> None:
        """Check that replicas have the same batches, all of them committed."""
        logs = [self._mirrors[name][1][topic_id, number] for name in names]
        one = logs[0]
        for name, other in zip(names, logs, strict=True):
            start = max(one.log.log_start_offset, other.log.log_start_offset)
            left, right = one.between(start, 1 << 62), other.between(start, 1 << 62)
            if left != right:
                raise ViolationError(
                    f"{one.log.partition}: {name} has another log than {names[0]}: "
                    f"{first_difference(left, right)}"
                )


def _describe(partition: PartitionImage) -> str:
    epochs = f"epochs {partition.leader_epoch} {partition.partition_epoch}"
    words = f"leader {partition.leader} ISR {partition.isr} of {partition.replicas} {epochs}"
    if partition.elr or partition.last_known_elr:
        words += f" ELR {partition.elr} last {partition.last_known_elr}"
    is_recovering = partition.leader_recovery_state is LeaderRecoveryState.RECOVERING
    return words + " unclean" * is_recovering


def first_difference(wanted: list[Batch], found: list[Batch]) -> str:
    for number, batch in enumerate(wanted):
        if number >= len(found):
            return f"{batch} is missing"
        if found[number] != batch:
            return f"{batch} is {found[number]}"
    return f"{found[len(wanted)]} is too much" if len(found) > len(wanted) else "nothing"
