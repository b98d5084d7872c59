"""Storms on a metadata quorum whose voters come, go and lose their disks.

It begins with one voter of five controllers, or with five that only the configs name and that are
upgraded (``kraft.version`` 1). An operator wants three, five and three again, asks the leader, and
asks again after a while; every second seed the controllers join by themselves. Now and then a
controller gets another port. A disk is lost, and a controller moved, only while the others are
whole and agree who votes, and where: no quorum outlives more.

``voter_strikes`` crashes nodes at each step of these changes.
"""

from dataclasses import replace
from itertools import cycle
from typing import Final

from odradek.core.errors import ErrorCode
from odradek.core.ids import Uuid
from odradek.protocol.generated.add_raft_voter import AddRaftVoterRequest, Listener
from odradek.protocol.generated.control_records import VotersRecord
from odradek.protocol.generated.remove_raft_voter import RemoveRaftVoterRequest
from odradek.protocol.message import Message
from odradek.quorum.metadata_quorum import MetadataQuorum
from odradek.raft.leader import Leader
from odradek.raft.messages import ReplicaKey
from odradek.raft.voters import VoterSet
from tests.simulation.cluster.cluster import HEAL_SECONDS_MAX
from tests.simulation.cluster.layout import Layout, draw_layout
from tests.simulation.cluster.machine import Machine
from tests.simulation.cluster.oracle import ViolationError
from tests.simulation.cluster.quorum_cluster import QuorumCluster
from tests.simulation.cluster.quorum_node import QuorumNode
from tests.simulation.cluster.voter_strikes import VoterStrikes

SIZES: Final = (3, 5, 3)
PATIENCE_SECONDS: Final = 4.0
NEW_DISK_SECONDS: Final = 1.0
CUT_OFF: Final = 0.15
"""How often a leader that is asked for a change cannot reach the others."""


class VoterCluster(QuorumCluster):
    def draw_layout(self, shape: str | None) -> Layout:
        drawn = draw_layout(self.world.random("layout"), shape or "5 controllers")
        self.joins = self.world.seed % 2 == 1
        self._upgrades = self.world.seed % 3 == 2
        configs = dict(drawn.configs)
        configs["controller.quorum.auto.join.enable"] = str(self.joins).lower()
        # With Kafka's 20 most of what is sent are vain tries of those that know no leader.
        configs["controller.quorum.retry.backoff.ms"] = "100"
        first_voters = len(drawn.controllers) if self._upgrades else 1
        is_dynamic = not self._upgrades
        return replace(drawn, is_dynamic=is_dynamic, first_voters=first_voters, configs=configs)

    def start(self) -> None:
        self._random = self.world.random("operator")
        self._sizes = cycle(SIZES)
        self.wanted = next(self._sizes)
        self.replaced: set[int] = set()
        """The controllers with a new disk that do not vote again yet."""
        self._wiped: set[ReplicaKey] = set()
        self._strikes = VoterStrikes(self)
        self._counted: dict[str, tuple[VotersRecord | None, VoterSet | None]] = {}
        """What was compared last: the voters by the log, and by raft."""
        self._has_healed = False
        self._asked: object = None
        self._asked_at = 0.0
        super().start()
        self._operate()

    def is_wiped(self, key: ReplicaKey) -> bool:
        """Whether the disk that a voter had is gone."""
        return key in self._wiped

    def _after_round(self, name: str) -> None:
        super()._after_round(name)
        machine = self.machines.get(name)
        if machine is not None and machine.quorum is not None:
            self._check_counted(name, machine.quorum)
            self._strikes.look(machine)

    def _check_counted(self, name: str, quorum: MetadataQuorum) -> None:
        """Check that a node counts by the voters that its log names."""
        named, counted = quorum.voters, quorum.raft.voters
        before = self._counted.get(name, (None, None))
        if named is None or (named is before[0] and counted is before[1]):
            return
        self._counted[name] = (named, counted)
        if tuple(each.voter_id for each in named.voters) != counted.ids:
            ids = [each.voter_id for each in named.voters]
            raise ViolationError(f"{name} counts {counted.ids}, and its log names {ids}")

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
        if not self.layout.is_dynamic:
            self._upgrade(leader, quorum)
            return
        chance = self._random.random()
        if chance < 0.1 and self._is_whole(quorum, voters_min=3):
            self._lose_disk(self._random.choice(list(self.machines.values())))
            return
        # Of two voters, one that moved and lags can neither be found by the other nor be elected.
        if chance > 0.9 and self._is_whole(quorum, voters_min=3) and not self._has_healed:
            self._change_port(self._random.choice(list(self.machines.values())))
            return
        request = self._plan(quorum)
        if request is not None:
            if self._random.random() < CUT_OFF and not self._has_healed:
                self._cut_off(leader)
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
        if len(voters) < self.wanted and others and not self.joins:
            return self._add(self._random.choice(others))
        if len(voters) > max(self.wanted, 1):
            is_own = self._random.random() < 0.4
            return _remove(quorum.replica_key if is_own else self._random.choice(voters))
        return None

    def _known_keys(self) -> dict[int, ReplicaKey]:
        """Return the controllers as their disks have them, of those that are up."""
        quorums = [machine.quorum for machine in self.machines.values()]
        return {each.node_id: each.replica_key for each in quorums if each is not None}

    def _add(self, key: ReplicaKey) -> Message:
        port = self.layout.controller_port(key.id)
        return AddRaftVoterRequest(
            cluster_id=None,
            voter_id=key.id,
            voter_directory_id=key.directory_id or Uuid(16),
            listeners=[Listener(name="CONTROLLER", host=f"node-{key.id}", port=port)],
        )

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
                self._check_told(leader.name, quorum, request)
                self.oracle.reached["voters added" if is_added else "voters removed"] += 1

        leader.sim.loop.call_soon(quorum.handle, request, request.VERSION_MAX, answered)

    def _check_told(self, leader: str, quorum: MetadataQuorum, request: Message) -> None:
        """Check that a change which the operator was told of is committed."""
        assert isinstance(request, AddRaftVoterRequest | RemoveRaftVoterRequest)
        key = ReplicaKey(request.voter_id, request.voter_directory_id)
        voters = quorum.raft._quorum.history.at(quorum.high_watermark or 0)
        if voters.contains(key) is not isinstance(request, AddRaftVoterRequest):
            known = f"{voters.ids} are the voters at {quorum.high_watermark}"
            self.world.fail(leader, f"{request} was answered, and {known}")

    def _upgrade(self, leader: Machine, quorum: MetadataQuorum) -> None:
        """Let the log name the voters, and the configs no more once it does."""
        if quorum.kraft_version:
            self.oracle.reached["kraft.version upgraded"] += 1
            self.layout = replace(self.layout, is_dynamic=True)
            self._configure()
        elif isinstance(node := leader.node, QuorumNode):
            leader.sim.loop.call_soon(node.upgrade)

    def _configure(self) -> None:
        for machine in self.machines.values():
            machine.configure(self.layout)

    def _cut_off(self, leader: Machine) -> None:
        """Cut a leader off that is about to be asked: what it appends may be lost."""
        network = self.world.network
        others = [each for each in self.machines if each != leader.name]
        self.oracle.reached["leaders cut off"] += 1
        for name in others:
            network.cut(leader.name, name)

        def heal() -> None:
            for name in others:
                network.heal(leader.name, name)

        self.world.call_later(self._random.uniform(1, 6), heal)

    # Disks and ports.

    def _is_whole(self, leader: MetadataQuorum, voters_min: int) -> bool:
        """Whether all controllers are up, and know the voters as they are."""
        role, known = leader.raft.role, self._known_keys()
        if not isinstance(role, Leader) or role.change is not None:
            return False
        voters = leader.raft.voters
        quorums = [machine.quorum for machine in self.machines.values()]
        agree = all(each is not None and each.raft.voters == voters for each in quorums)
        are_whole = agree and all(known[key.id] == key for key in voters.voters)
        are_there = all(self._is_there(voters, key.id) for key in voters.voters)
        return are_whole and are_there and len(voters.voters) >= voters_min

    def _is_there(self, voters: VoterSet, node_id: int) -> bool:
        """Whether a voter listens where the log says."""
        (endpoint,) = voters.details[node_id].endpoints
        return endpoint.port == self.layout.controller_port(node_id)

    def _lose_disk(self, machine: Machine) -> None:
        self.say(f"{machine.name} loses its disk")
        quorum = machine.quorum
        assert quorum is not None
        self._wiped.add(quorum.replica_key)
        self.replaced.add(machine.place.node_id)
        machine.kill()
        machine.replace_disk()
        self.oracle.on_new_disk(machine)
        self.world.call_later(NEW_DISK_SECONDS, machine.start)

    def _change_port(self, machine: Machine) -> None:
        """Start a controller again with another port: if it votes, it says so (UpdateRaftVoter)."""
        moved = self.layout.moved ^ {machine.place.node_id}
        self.layout = replace(self.layout, moved=moved)
        self.say(f"{machine.name} moves to {self.layout.controller_port(machine.place.node_id)}")
        self.oracle.reached["ports changed"] += 1
        self._configure()
        machine.kill()
        machine.start()

    # The end.

    def check_well(self) -> None:
        self._has_healed = self._strikes.is_over = True
        super().check_well()
        self.wanted = len(self.machines) if self.joins else self.wanted
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
        lost = [key.id for key in voters if not self._is_there(leader.quorum.raft.voters, key.id)]
        return f"{lost} listen elsewhere than the log says" if lost else ""


def _remove(key: ReplicaKey) -> Message:
    return RemoveRaftVoterRequest(
        cluster_id=None, voter_id=key.id, voter_directory_id=key.directory_id or Uuid(16)
    )
