"""What a member of the quorum must remember through a crash.

Raft's safety rests on it: a node that forgot its vote could give a second one in the same epoch,
and then two leaders could each count a majority.
"""

from dataclasses import dataclass

from odradek.raft.messages import ReplicaKey


@dataclass(frozen=True, slots=True)
class HardState:
    epoch: int = 0
    leader_id: int | None = None
    voted: ReplicaKey | None = None

    def check_invariants(self) -> None:
        assert self.epoch >= 0
        assert self.leader_id is None or self.leader_id >= 0
        assert self.voted is None or self.voted.id >= 0
