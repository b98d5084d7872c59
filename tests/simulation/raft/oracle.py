"""What must hold in a quorum after every event; the list is that of Kafka's own simulation."""

from odradek.raft import BecameLeader, HardState, RaftNode, ReplicaKey, VoterSet
from odradek.raft.leader import Leader
from odradek.raft.ready import RoleEvent
from odradek.raft.roles import Resigned
from tests.simulation.raft.sim_log import Entry, SimLog, voters_in


class Oracle:
    def __init__(self, logs: list[SimLog], keys: list[ReplicaKey], voters: VoterSet) -> None:
        """``voters`` are those that count while a log names none."""
        self.logs = logs
        self.keys = keys
        self.voters = voters
        self.committed: list[Entry] = []
        self.committed_in: list[int] = []  # epoch of the leader that committed it
        self.leaders: dict[int, int] = {}
        self.votes: dict[tuple[ReplicaKey, int], ReplicaKey] = {}
        self._lost: dict[ReplicaKey, list[Entry]] = {}
        self.epochs: dict[int, int] = {}
        self.high_watermarks: dict[int, int] = {}

    def on_start(self, node_id: int, log: SimLog) -> None:
        self.epochs.pop(node_id, None)
        self.high_watermarks[node_id] = 0
        start = log.log_start_offset
        assert log.entries[:start] == self.committed[:start], f"node {node_id}: a false snapshot"

    def check(self, node_id: int, node: RaftNode) -> None:
        assert node.epoch >= self.epochs.get(node_id, 0), f"node {node_id}: its epoch went back"
        self.epochs[node_id] = node.epoch
        high_watermark = node.high_watermark or 0
        assert high_watermark >= self.high_watermarks[node_id], (
            f"node {node_id}: high watermark went back"
        )
        assert high_watermark <= len(self.committed)
        if node.is_leader:
            other = self.leaders.setdefault(node.epoch, node_id)
            assert other == node_id, f"epoch {node.epoch} has two leaders, {other} and {node_id}"

    def on_hard_state(self, node_id: int, state: HardState) -> None:
        if state.voted is not None:
            voted = self.votes.setdefault((self.keys[node_id], state.epoch), state.voted)
            assert voted == state.voted, f"node {node_id} voted twice in epoch {state.epoch}"

    def on_event(self, node_id: int, event: RoleEvent) -> None:
        if isinstance(event, BecameLeader):
            other = self.leaders.setdefault(event.epoch, node_id)
            assert other == node_id, f"epoch {event.epoch} has two leaders, {other} and {node_id}"
            self._check_leader_is_complete(node_id, event.epoch)

    def on_committed(self, node_id: int, node: RaftNode, high_watermark: int) -> None:
        entries = self.logs[node_id].entries
        before = self.high_watermarks[node_id]
        assert high_watermark > before, f"node {node_id}: high watermark went back"
        self.high_watermarks[node_id] = high_watermark
        known = len(self.committed)
        assert (
            entries[before : min(known, high_watermark)]
            == (self.committed[before : min(known, high_watermark)])
        ), f"node {node_id} has other committed entries between {before} and {high_watermark}"
        if high_watermark > known:
            # A removed leader resigns with what it has just committed.
            assert isinstance(node.role, Leader | Resigned), (
                f"node {node_id} is the first to know that {high_watermark} is committed"
            )
            self._check_majority_has(entries, high_watermark)
            self.committed += entries[known:high_watermark]
            self.committed_in += [node.epoch] * (high_watermark - known)

    def _check_majority_has(self, entries: list[Entry], high_watermark: int) -> None:
        last, voters = high_watermark - 1, self._voters_of(entries)
        wanted = entries[last:high_watermark]
        holders = [
            key.id for key in voters.voters if self._disk_of(key)[last:high_watermark] == wanted
        ]
        assert len(holders) >= voters.majority, (
            f"offset {last} is committed and of {voters.ids} only {holders} have it on disk"
        )

    def _disk_of(self, key: ReplicaKey) -> list[Entry]:
        """Return what a voter has on its disk, or had when it lost it: that was acknowledged."""
        if key.matches(self.keys[key.id]):
            return self.logs[key.id].durable
        return self._lost.get(key, [])

    def _voters_of(self, entries: list[Entry]) -> VoterSet:
        """Return those that count for a log: the last that it names, committed or not."""
        found = voters_in(entries)
        return self.voters if found is None else found[1]

    # Voters that change.

    def on_voters(self, node_id: int, voters: VoterSet) -> None:
        """A leader is about to name other voters."""
        entries = self.logs[node_id].entries
        found = voters_in(entries)
        if found is not None:
            offset = found[0]
            assert entries[: offset + 1] == self.committed[: offset + 1], (
                f"node {node_id} names {voters.ids} before the change at {offset} is committed"
            )
        before, after = set(self._voters_of(entries).voters), set(voters.voters)
        assert len(before - after) + len(after - before) <= 1, f"{before} and {after} at once"

    def on_replaced(self, node_id: int, log: SimLog, key: ReplicaKey) -> None:
        """A node has a new disk."""
        self._lost[self.keys[node_id]] = self.logs[node_id].durable
        self.logs[node_id], self.keys[node_id] = log, key
        self.epochs.pop(node_id, None)
        self.high_watermarks[node_id] = 0

    def check_acknowledged(self, key: ReplicaKey, *, is_added: bool) -> None:
        """Check what a leader said of a change: it must have been committed."""
        named = [entry.voters for entry in self.committed]
        sets = [self.voters, *(each for each in named if each is not None)]
        assert any((key in each.voters) is is_added for each in sets), f"{key} {is_added}"

    def check_voters(self, node_id: int, node: RaftNode) -> None:
        """A node counts by the last voters in its log, whatever was cut off."""
        found = voters_in(self.logs[node_id].entries)
        assert found is None or node.voters.voters == found[1].voters, f"node {node_id}"

    @property
    def committed_voters(self) -> VoterSet:
        return self._voters_of(self.committed)

    def _check_leader_is_complete(self, node_id: int, epoch: int) -> None:
        """Whatever leaders of earlier epochs committed is in the log of a new leader."""
        entries = self.logs[node_id].entries
        count = sum(committed_in < epoch for committed_in in self.committed_in)
        assert entries[:count] == self.committed[:count], (
            f"leader {node_id} of epoch {epoch} lacks committed entries"
        )

    def check_logs(self) -> None:
        """Log matching: same epoch at the same offset means same log up to there."""
        for i, a in enumerate(self.logs):
            for b in self.logs[:i]:
                shared = [
                    offset
                    for offset, (left, right) in enumerate(zip(a.entries, b.entries, strict=False))
                    if left.epoch == right.epoch
                ]
                end = shared[-1] + 1 if shared else 0
                assert a.entries[:end] == b.entries[:end]
        for node_id, high_watermark in self.high_watermarks.items():
            assert self.logs[node_id].entries[:high_watermark] == self.committed[:high_watermark]
