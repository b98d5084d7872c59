"""A quorum whose voters come, go and lose their disks: an operator works while a storm goes on.

The quorum begins with one voter. The operator wants three, then five, then three; it asks whichever
node it takes for the leader, does not wait for long, and asks again. Now and then a node loses its
disk, but never so many at once that the voters that are left could not commit: no algorithm brings
back what a majority has lost.
"""

from collections.abc import Iterator
from typing import Final

from odradek.core.errors import ErrorCode
from odradek.raft import Message, ReplicaKey, VoterSet
from odradek.raft.leader import Leader
from odradek.raft.messages import (
    AddVoterRequest,
    AddVoterResponse,
    RemoveVoterRequest,
    RemoveVoterResponse,
)
from tests.simulation.raft.cluster import OPERATOR, Cluster, Faults, Member
from tests.simulation.raft.sim_log import voters_in

SIZES: Final = (3, 5, 3)
NODES: Final = 5
PATIENCE_MS: Final = 4_000
DISK_LOSS: Final = 0.15  # each time that the operator looks


class ChangingCluster(Cluster):
    def __init__(self, seed: int, faults: Faults, *, trace: bool = False) -> None:
        """Controllers of every third seed join by themselves."""
        self.is_auto = seed % 3 == 0
        super().__init__(
            seed,
            1,
            faults,
            observers=NODES - 1,
            is_by_log=True,
            auto_join=self.is_auto,
            trace=trace,
        )
        self._sizes: Iterator[int] = iter(SIZES)
        self.wanted = next(self._sizes)
        self._asked: dict[int, AddVoterRequest | RemoveVoterRequest] = {}
        self._since_ms = 0
        self.added = self.removed = self.disks_lost = self.leaders_removed = 0
        self.at(500, self._operate)

    # The operator.

    def _operate(self) -> None:
        self.at(self.random.randint(200, 1_200), self._operate)
        self._lose_disk()
        for member in self.members:
            if member.node is not None:
                self.oracle.check_voters(member.key.id, member.node)
        if self._asked and self.now_ms - self._since_ms < PATIENCE_MS:
            return
        self._asked.clear()
        voters = self.oracle.committed_voters
        lost = [key for key in voters.voters if key != self.members[key.id].key]
        if not lost and len(voters.voters) == self.wanted:
            self.wanted = next(self._sizes, self.wanted)
        request = self._plan(voters, lost)
        if request is not None:
            self._ask(request)

    def _plan(
        self, voters: VoterSet, lost: list[ReplicaKey]
    ) -> AddVoterRequest | RemoveVoterRequest | None:
        self._values += 1
        if lost:
            return RemoveVoterRequest(self._values, lost[0])
        others = [each.key for each in self.members if each.key not in voters.voters]
        if len(voters.voters) < self.wanted and others and not self.is_auto:
            return AddVoterRequest(self._values, self.random.choice(others), ())
        if len(voters.voters) > self.wanted or self.random.random() < 0.1:
            leader = self.leader()
            of_leader = leader is not None and self.random.random() < 0.4
            key = leader.key if leader and of_leader else self.random.choice(voters.voters)
            return RemoveVoterRequest(self._values, key)
        return None

    def _ask(self, request: AddVoterRequest | RemoveVoterRequest) -> None:
        leader = self.leader()
        is_guess = leader is None or self.random.random() < 0.1
        target = self.random.choice(self.members) if is_guess or leader is None else leader
        self._asked[request.correlation_id] = request
        self._since_ms = self.now_ms
        is_own = isinstance(request, RemoveVoterRequest) and request.voter == target.key
        self.leaders_removed += is_own
        self.note("operator -> %d %s", target.key.id, request)
        self.post(OPERATOR, target.key.id, request, 0)

    def on_answer(self, message: Message) -> None:
        assert isinstance(message, AddVoterResponse | RemoveVoterResponse)
        request = self._asked.pop(message.correlation_id, None)
        self.note("operator <- %s", message)
        if request is None or message.error is not ErrorCode.NONE:
            return
        is_added = isinstance(request, AddVoterRequest)
        self.oracle.check_acknowledged(request.voter, is_added=is_added)
        self.added += is_added
        self.removed += not is_added

    # Disks.

    def _lose_disk(self) -> None:
        if self.random.random() >= DISK_LOSS * (self.faults.crash > 0):
            return
        member = self.random.choice(self.members)
        if self._can_be_spared(member):
            self.disks_lost += 1
            self.replace_disk(member)

    def _can_be_spared(self, member: Member) -> bool:
        """Whether a majority of each set of voters that may count has its disks without this."""
        for each in self.members:
            role = None if each.node is None else each.node.role
            if isinstance(role, Leader) and role.change is not None:
                return False
        if any(isinstance(each, AddVoterRequest) for each in self._asked.values()):
            return False
        whole = {each.key for each in self.members if each is not member}
        for log in (each.log.entries for each in self.members):
            found = voters_in(log)
            voters = self.voters if found is None else found[1]
            if sum(key in whole for key in voters.voters) < voters.majority:
                return False
        return True

    def settle_voters(self) -> None:
        """Heal, and expect that the operator gets what it wants."""
        self.settle()
        self.wanted = NODES if self.is_auto else self.wanted

        def is_done() -> bool:
            voters, keys = self.oracle.committed_voters, [each.key for each in self.members]
            return len(voters.voters) == self.wanted and all(each in keys for each in voters.voters)

        self.run_until(is_done, within_ms=240_000)
        self.settle()
