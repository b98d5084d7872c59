"""What must hold in a quorum after every event; the list is that of Kafka's own simulation."""

from odradek.raft import BecameLeader, HardState, RaftNode, ReplicaKey, VoterSet
from odradek.raft.ready import RoleEvent
from tests.simulation.raft.sim_log import Entry, SimLog


class Oracle:
    def __init__(self, logs: list[SimLog], voters: VoterSet) -> None:
        self.logs = logs
        self.voters = voters
        self.committed: list[Entry] = []
        self.committed_in: list[int] = []  # epoch of the leader that committed it
        self.leaders: dict[int, int] = {}
        self.votes: dict[tuple[int, int], ReplicaKey] = {}
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
            voted = self.votes.setdefault((node_id, state.epoch), state.voted)
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
            assert node.is_leader, (
                f"node {node_id} is the first to know that {high_watermark} is committed"
            )
            self._check_majority_has(entries, high_watermark)
            self.committed += entries[known:high_watermark]
            self.committed_in += [node.epoch] * (high_watermark - known)

    def _check_majority_has(self, entries: list[Entry], high_watermark: int) -> None:
        last = high_watermark - 1
        holders = [
            node_id
            for node_id in self.voters.ids
            if len(self.logs[node_id].durable) > last
            and self.logs[node_id].durable[last] == entries[last]
        ]
        assert len(holders) >= self.voters.majority, (
            f"offset {last} is committed and only {holders} have it on disk"
        )

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
