"""Storms on a metadata quorum whose voters come, go and lose their disks.

It begins with one voter of five controllers. An operator wants three, five and three again, asks
the leader, and asks again after a while; every second seed the controllers join by themselves. A
disk is lost only while the others are whole and agree who votes: no quorum outlives more.
"""

from dataclasses import replace
from itertools import cycle
from typing import Final

from odradek.core.errors import ErrorCode
from odradek.core.ids import Uuid
from odradek.protocol.generated.add_raft_voter import AddRaftVoterRequest, Listener
from odradek.protocol.generated.remove_raft_voter import RemoveRaftVoterRequest
from odradek.protocol.message import Message
from odradek.quorum.metadata_quorum import MetadataQuorum
from odradek.raft.leader import Leader
from odradek.raft.messages import ReplicaKey
from tests.simulation.cluster.cluster import HEAL_SECONDS_MAX
from tests.simulation.cluster.layout import CONTROLLER_PORT, Layout, draw_layout
from tests.simulation.cluster.machine import Machine
from tests.simulation.cluster.oracle import ViolationError
from tests.simulation.cluster.quorum_cluster import QuorumCluster

SIZES: Final = (3, 5, 3)
PATIENCE_SECONDS: Final = 4.0
NEW_DISK_SECONDS: Final = 1.0


class VoterCluster(QuorumCluster):
    def draw_layout(self, shape: str | None) -> Layout:
        drawn = draw_layout(self.world.random("layout"), shape or "5 controllers")
        self._joins = self.world.seed % 2 == 1
        configs = dict(drawn.configs)
        configs["controller.quorum.auto.join.enable"] = str(self._joins).lower()
        return replace(drawn, is_dynamic=True, first_voters=1, configs=configs)

    def start(self) -> None:
        self._random = self.world.random("operator")
        self._sizes = cycle(SIZES)
        self.wanted = next(self._sizes)
        self._has_healed = False
        self._asked: object = None
        self._asked_at = 0.0
        super().start()
        self._operate()

    # The operator.

    def _operate(self) -> None:
        if self.is_over:
            return
        self.world.call_later(self._random.uniform(0.2, 1.5), self._operate)
        if self._asked is not None and self.world.now - self._asked_at < PATIENCE_SECONDS:
            return
        self._asked = None
        leader = self.leader()
        quorum = None if leader is None else leader.quorum
        if leader is None or quorum is None or leader.is_paused:
            return
        if self._random.random() < 0.1 and self._may_lose_disk(quorum):
            self._lose_disk(self._random.choice(list(self.machines.values())))
            return
        request = self._plan(quorum)
        if request is not None:
            self._ask(leader, quorum, request)

    def _plan(self, quorum: MetadataQuorum) -> Message | None:
        voters = quorum.raft.voters.voters
        known = self._known_keys()
        lost = [key for key in voters if key.id in known and known[key.id] != key]
        if lost:
            return _remove(lost[0])
        if len(voters) == self.wanted and not self._has_healed:
            self.wanted = next(self._sizes)
        ids = {key.id for key in voters}
        others = [key for node_id, key in sorted(known.items()) if node_id not in ids]
        if len(voters) < self.wanted and others and not self._joins:
            return _add(self._random.choice(others))
        if len(voters) > max(self.wanted, 1):
            is_own = self._random.random() < 0.4
            return _remove(quorum.replica_key if is_own else self._random.choice(voters))
        return None

    def _known_keys(self) -> dict[int, ReplicaKey]:
        """Return the controllers as their disks have them, of those that are up."""
        quorums = [machine.quorum for machine in self.machines.values()]
        return {each.node_id: each.replica_key for each in quorums if each is not None}

    def _ask(self, leader: Machine, quorum: MetadataQuorum, request: Message) -> None:
        self._asked, self._asked_at = request, self.world.now
        self.say(f"operator to {leader.name}: {request}")

        def answered(answer: Message) -> None:
            self.say(f"operator from {leader.name}: {answer}")
            if self._asked is request:
                self._asked = None
            code: int = answer.error_code  # type: ignore[attr-defined]
            if code == ErrorCode.NONE:
                is_added = isinstance(request, AddRaftVoterRequest)
                self.oracle.reached["voters added" if is_added else "voters removed"] += 1

        leader.sim.loop.call_soon(quorum.handle, request, request.VERSION_MAX, answered)

    # Disks.

    def _may_lose_disk(self, leader: MetadataQuorum) -> bool:
        role, known = leader.raft.role, self._known_keys()
        if not isinstance(role, Leader) or role.change is not None:
            return False
        voters = leader.raft.voters
        quorums = [machine.quorum for machine in self.machines.values()]
        agree = all(each is not None and each.raft.voters == voters for each in quorums)
        are_whole = agree and all(known[key.id] == key for key in voters.voters)
        return are_whole and len(voters.voters) >= 3

    def _lose_disk(self, machine: Machine) -> None:
        self.say(f"{machine.name} loses its disk")
        machine.kill()
        machine.replace_disk()
        self.oracle.on_new_disk(machine)
        self.world.call_later(NEW_DISK_SECONDS, machine.start)

    # The end.

    def check_well(self) -> None:
        self._has_healed = True
        super().check_well()
        self.wanted = len(self.machines) if self._joins else self.wanted
        end = self.world.now + 3 * HEAL_SECONDS_MAX
        while problems := self._problems_of_voters():
            if self.world.now >= end:
                raise ViolationError(problems)
            self.world.run_for(0.2)
        super().check_well()

    def _problems_of_voters(self) -> str:
        leader = self.leader()
        if leader is None or leader.quorum is None:
            return "no leader"
        voters, known = leader.quorum.raft.voters.voters, self._known_keys()
        if len(voters) != self.wanted or any(known.get(key.id) != key for key in voters):
            return f"the voters are {[key.id for key in voters]}, and not {self.wanted}"
        return ""


def _add(key: ReplicaKey) -> Message:
    listener = Listener(name="CONTROLLER", host=f"node-{key.id}", port=CONTROLLER_PORT)
    directory_id = key.directory_id or Uuid(16)
    return AddRaftVoterRequest(
        cluster_id=None, voter_id=key.id, voter_directory_id=directory_id, listeners=[listener]
    )


def _remove(key: ReplicaKey) -> Message:
    return RemoveRaftVoterRequest(
        cluster_id=None, voter_id=key.id, voter_directory_id=key.directory_id or Uuid(16)
    )
