"""Crashes at each step of a change of voters: a storm that waits for its moment.

::

    asked      the leader asks a new voter what it supports
    appended   the record is in the leader's log, and not flushed there
    flushed    it is on the leader's disk, and nowhere else
    copied     another controller has it, and no majority on disk
    taken over the leader of a later epoch has it, and did not commit it yet
    committed  the leader counts it as committed, and nobody else knows
    known      others know, too

What is struck is the leader, the node that the change is about, another voter, or most voters at
once. It ends as a process (``kill``), without power, or in the middle of one of its next writes.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from odradek.quorum.metadata_quorum import MetadataQuorum
from odradek.raft.leader import Leader
from odradek.raft.messages import AddVoterRequest, ReplicaKey
from odradek.raft.voters import VoterSet
from tests.simulation.cluster.machine import Machine

if TYPE_CHECKING:
    from tests.simulation.cluster.voter_cluster import VoterCluster

STRIKES: Final = 0.15
"""How often a step is struck."""
WRITES_MAX: Final = 6
DOWN_SECONDS: Final = (0.05, 3.0)

Steps = IntEnum("Steps", "ASKED APPENDED FLUSHED COPIED TAKEN_OVER COMMITTED KNOWN")


class Change(NamedTuple):
    """A change of voters, by the record that makes it; none as long as the new voter is asked."""

    kind: str
    subject: int
    offset: int | None
    epoch: int


class VoterStrikes:
    def __init__(self, cluster: "VoterCluster") -> None:
        self._cluster = cluster
        self._random = cluster.world.random("strikes")
        self._change: Change | None = None
        self._leader: Machine | None = None
        self._step = Steps.ASKED
        self._committed_end = 0
        self.is_over = False

    def look(self, machine: Machine) -> None:
        """See what a machine has just done of a change, and strike, or do not."""
        quorum = machine.quorum
        if quorum is None or self.is_over:
            return
        self._committed_end = max(self._committed_end, quorum.high_watermark or 0)
        if isinstance(quorum.raft.role, Leader):
            change = self._find_change(quorum, quorum.raft.role)
            if change is not None and change != self._change:
                self._change, self._leader, self._step = change, machine, Steps.ASKED
                self._reach(_first_step(change, quorum.raft.role))
        if self._change is not None:
            self._go_on(self._change)

    # What happens.

    def _find_change(self, quorum: MetadataQuorum, leader: Leader) -> Change | None:
        """Return the change that a leader has under way."""
        pending, epoch = leader.change, quorum.epoch
        if pending is not None and pending.offset is None:
            request = pending.request
            if isinstance(request, AddVoterRequest):
                return Change(self._kind_of_new(request.voter), request.voter.id, None, epoch)
            return None
        entries = quorum.raft._quorum.history._entries
        if len(entries) < 2 or entries[-1].offset < self._committed_end:
            return None
        before, after = entries[-2], entries[-1]
        if before.is_static:
            return Change("upgrade", quorum.node_id, after.offset, epoch)
        named = self._name(quorum, before.voters, after.voters)
        return None if named is None else Change(*named, after.offset, epoch)

    def _name(
        self, quorum: MetadataQuorum, before: VoterSet, after: VoterSet
    ) -> tuple[str, int] | None:
        added = set(after.voters).difference(before.voters)
        removed = set(before.voters).difference(after.voters)
        if added:
            (key,) = added
            return self._kind_of_new(key), key.id
        if removed:
            (key,) = removed
            if self._cluster.is_wiped(key):
                return "remove wiped", key.id
            return "remove leader" if key == quorum.replica_key else "remove", key.id
        moved = [each for each in after.ids if before.details[each] != after.details[each]]
        return ("update", moved[0]) if moved else None

    def _kind_of_new(self, key: ReplicaKey) -> str:
        if key.id in self._cluster.replaced:
            return "replace"
        return "join" if self._cluster.joins else "add"

    def _go_on(self, change: Change) -> None:
        """Find the step that the change is at now."""
        leader = self._leader
        quorum = None if leader is None else leader.quorum
        if leader is None or quorum is None or quorum.epoch != change.epoch:
            self._change = None
            return
        offset, high_watermark = change.offset, quorum.high_watermark or 0
        if not quorum.is_leader and (offset is None or high_watermark <= offset):
            self._change = None
            return
        if offset is None:
            return
        others = [
            each.quorum
            for each in self._cluster.machines.values()
            if each is not leader and each.quorum is not None
        ]
        if any((each.high_watermark or 0) > offset for each in others):
            self._reach(Steps.KNOWN)
            self._change = None
            if change.kind == "replace":
                self._cluster.replaced.discard(change.subject)
        elif high_watermark > offset:
            self._reach(Steps.COMMITTED)
        elif any(each.raft._quorum.history.latest_offset == offset for each in others):
            self._reach(Steps.COPIED)
        elif quorum.raft._quorum.flushed_offset > offset:
            self._reach(Steps.FLUSHED)

    def _reach(self, step: Steps) -> None:
        if step < self._step or (step == self._step and step > Steps.ASKED):
            return
        self._step = step
        change, leader = self._change, self._leader
        assert change is not None
        assert leader is not None
        name = f"{change.kind}, {step.name.lower().replace('_', ' ')}"
        self._cluster.oracle.reached[f"at {name}"] += 1
        if self._random.random() < STRIKES:
            self._strike(name, leader, change)

    # What is done to it.

    def _strike(self, name: str, leader: Machine, change: Change) -> None:
        cluster, random = self._cluster, self._random
        quorum = leader.quorum
        assert quorum is not None
        voters = [cluster.machine_of(each) for each in quorum.voter_ids]
        whom = random.choice(("leader", "leader", "subject", "another", "most"))
        victims = [leader]
        if whom == "subject":
            victims = [cluster.machine_of(change.subject)]
        elif whom == "another":
            victims = [random.choice(voters)]
        elif whom == "most":
            victims = random.sample(voters, len(voters) // 2 + 1)
        how = random.choice(("kill", "power", "write"))
        cluster.say(f"strike at {name}: {how} {[each.name for each in victims]}")
        cluster.oracle.reached[f"struck at {name}"] += 1
        for machine in victims:
            if how == "write":
                self._crash_in_write(machine)
            else:
                end = machine.kill if how == "kill" else machine.lose_power
                cluster.world.call_at(cluster.world.now, self._end, machine, machine.lives, end)

    def _crash_in_write(self, machine: Machine) -> None:
        disk = machine.disk
        disk.stop_at = disk.operations + self._random.randrange(WRITES_MAX)
        self._restart_later(machine)

    def _end(self, machine: Machine, life: int, end: Callable[[], None]) -> None:
        if self.is_over or machine.lives != life:
            return
        end()
        self._restart_later(machine)

    def _restart_later(self, machine: Machine) -> None:
        seconds = self._random.uniform(*DOWN_SECONDS)
        self._cluster.world.call_later(seconds, self._restart, machine)

    def _restart(self, machine: Machine) -> None:
        machine.disk.stop_at = None
        machine.start()


def _first_step(change: Change, leader: Leader) -> Steps:
    if change.offset is None:
        return Steps.ASKED
    return Steps.TAKEN_OVER if change.offset < leader.epoch_start_offset else Steps.APPENDED
