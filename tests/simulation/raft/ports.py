"""What a driver finds under it in the simulation: a log in memory, late flushes, bad links."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from odradek.raft import AppendLeaderChange, HardState, OffsetAndEpoch, VoterSet
from odradek.raft.driver import AppendedVoters, RaftDriver
from odradek.raft.messages import Request, Response
from odradek.raft.ready import AppendVoters, FetchRead, RoleEvent, SnapshotRead
from tests.simulation.raft.sim_log import Entry, voters_in

if TYPE_CHECKING:
    from tests.simulation.raft.cluster import Cluster, Member


class CrashError(Exception):
    """Thrown through the driver of a node to stop it at this very point."""


class SimPorts:
    """Implements ``odradek.raft.driver.DriverPorts``; a node may crash between any two calls."""

    def __init__(self, cluster: "Cluster", member: "Member") -> None:
        self.cluster = cluster
        self.member = member
        self.node_id = member.key.id

    def persist(self, state: HardState) -> None:
        self.cluster.may_crash(self.member)
        self.cluster.note("%d state %s", self.node_id, state)
        self.member.hard_state = state
        self.cluster.oracle.on_hard_state(self.node_id, state)
        self.cluster.may_crash(self.member)

    def truncate(self, offset: int) -> None:
        if not self.cluster.faults.skips_truncation:
            self.member.log.truncate(offset)
        self.cluster.may_crash(self.member)

    def append_fetched(self, records: object) -> Iterable[AppendedVoters]:
        return self._append(cast("list[Entry]", records))

    def append_leader_change(self, change: AppendLeaderChange) -> Iterable[AppendedVoters]:
        entries = [Entry(change.epoch, f"leader {self.node_id}")]
        if self.cluster.is_by_log and voters_in(self.member.log.entries) is None:
            assert self.member.driver is not None
            entries.append(Entry.of_voters(change.epoch, self.member.driver.node.voters))
        return self._append(entries)

    def append_voters(self, change: AppendVoters) -> Iterable[AppendedVoters]:
        self.cluster.note("%d names %s", self.node_id, change.voters.ids)
        self.cluster.oracle.on_voters(self.node_id, change.voters)
        return self._append([Entry.of_voters(change.epoch, change.voters)])

    def _append(self, entries: list[Entry]) -> list[AppendedVoters]:
        offset = self.member.log.log_end_offset
        self.member.log.append(entries)
        self.cluster.may_crash(self.member)
        named = [(at, each.voters) for at, each in enumerate(entries, offset)]
        return [(at, voters) for at, voters in named if voters is not None]

    def flush(self, then: Callable[[int], None]) -> None:
        log, cluster = self.member.log, self.cluster
        started, offset = log.generation, log.log_end_offset

        def flushed(_driver: RaftDriver) -> None:
            if log.generation == started:
                log.flush(offset)
            then(offset)

        slow = cluster.random.random() < cluster.faults.straggler
        cluster.later(self.member, cluster.random.randint(0, 1_500 if slow else 15), flushed)

    def store_piece(self, snapshot_id: OffsetAndEpoch, position: int, data: bytes) -> bool:
        part = self.member.log.parts.setdefault(snapshot_id, bytearray())
        del part[position:]
        assert len(part) == position
        part += data
        self.cluster.may_crash(self.member)
        return True

    def install_snapshot(
        self,
        snapshot_id: OffsetAndEpoch,
        then: Callable[[VoterSet | None], None],
        refused: Callable[[], None],
    ) -> None:
        def installed(_driver: RaftDriver) -> None:
            keeps_log = self.cluster.faults.keeps_log_under_snapshot
            self.member.log.install(snapshot_id, keeps_log=keeps_log)
            self.cluster.note("%d installed %s", self.node_id, snapshot_id)
            found = voters_in(self.member.log.entries)
            then(None if found is None else found[1])

        self.cluster.later(self.member, self.cluster.random.randint(0, 40), installed)

    def send(self, target: int, request: Request) -> None:
        cluster = self.cluster
        cluster.may_crash(self.member)
        for _ in range(1 + (cluster.random.random() < cluster.faults.doubling)):
            cluster.post(self.node_id, target, request, self.member.incarnation)

    def reply(self, response: Response) -> None:
        self.cluster.may_crash(self.member)
        target, token, incarnation, name = self.member.inbox.pop(response.correlation_id)
        response = replace(response, correlation_id=token, sender=name)
        self.cluster.post(self.node_id, target, response, incarnation)
        if self.member.hard_state.voted is not None:
            self.cluster.may_crash(self.member, self.cluster.faults.crash_after_promise)

    def reply_with_records(self, read: FetchRead) -> None:
        # Few at a time, so that old records reach a follower long before those of this epoch.
        count = self.cluster.random.randint(1, 3)
        records = self.member.log.read(read.fetch_offset, count)
        self.reply(replace(read.response, records=records))

    def reply_with_piece(self, read: SnapshotRead) -> None:
        content = self.member.log.snapshots[read.snapshot_id].content
        size = self.cluster.random.randint(1, 40)
        data = content[read.position : read.position + min(size, read.max_bytes)]
        self.reply(replace(read.response, data=data))

    def monotonic_ms(self) -> int:
        return self.cluster.now_ms

    def wake_at(self, deadline_ms: int) -> None:
        self.member.wakes_at_ms = deadline_ms

        def wake(driver: RaftDriver) -> None:
            if self.member.wakes_at_ms == deadline_ms:
                self.member.wakes_at_ms = None
                driver.tick()

        self.cluster.later(self.member, max(deadline_ms - self.cluster.now_ms, 0), wake)

    def on_event(self, event: RoleEvent) -> None:
        self.cluster.note("%d %s", self.node_id, event)
        self.cluster.oracle.on_event(self.node_id, event)

    def on_high_watermark(self, offset: int) -> None:
        node = self.member.node
        assert node is not None
        self.cluster.oracle.on_committed(self.node_id, node, offset)
