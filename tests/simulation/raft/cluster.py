"""A quorum of real nodes on virtual time, one heap and one seed.

Messages are lost, delayed, overtaken and (requests) doubled; links are cut in one direction or
both; nodes crash between any two steps of carrying out a Ready and lose what they had not flushed.
After each event ``Oracle`` checks what must always hold. The same seed gives the same history.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import TypeAlias, cast, get_args

from odradek.core.ids import Uuid
from odradek.raft import (
    AppendFetched,
    AppendLeaderChange,
    HardState,
    LogView,
    Message,
    RaftConfig,
    RaftNode,
    Ready,
    ReplicaKey,
    Truncate,
    VoterSet,
)
from odradek.raft.messages import FetchResponse, Request, Response
from odradek.raft.ready import FetchRead, LogInstruction
from tests.simulation.raft.oracle import Oracle
from tests.simulation.raft.sim_log import Entry, SimLog

Event: TypeAlias = Callable[[], None]


class CrashError(Exception):
    """Thrown through the driver of a node to stop it at this very point."""


@dataclass
class Faults:
    loss: float = 0.0
    doubling: float = 0.0
    crash: float = 0.0  # at each step of carrying out a Ready
    crash_after_promise: float = 0.0  # when a new hard state has just been told to others
    partition: float = 0.0  # at each client append
    delay_ms: int = 20
    straggler: float = 0.0  # messages and flushes that take up to two seconds
    restart_ms_max: int = 3_000
    election_timeout_ms: int = 1_000

    # Planted bugs.
    forgets_vote: bool = False
    skips_truncation: bool = False


CALM = Faults()
STORM = Faults(loss=0.05, doubling=0.03, crash=0.006, partition=0.08, delay_ms=60, straggler=0.02)
# Nodes that fall over each other: many candidates per epoch, leaders that hardly begin.
ELECTIONS = Faults(
    loss=0.1,
    crash=0.02,
    crash_after_promise=0.1,
    partition=0.3,
    delay_ms=120,
    straggler=0.05,
    restart_ms_max=150,
    election_timeout_ms=150,
)


@dataclass
class Member:
    key: ReplicaKey
    log: SimLog = field(default_factory=SimLog)
    hard_state: HardState = field(default_factory=HardState)  # on disk
    node: RaftNode | None = None
    incarnation: int = 0
    tick_at_ms: int | None = None
    inbox: dict[int, tuple[int, int, int]] = field(default_factory=dict)  # whom to answer
    is_crash_safe: bool = False


class Cluster:
    def __init__(
        self,
        seed: int,
        size: int,
        faults: Faults = CALM,
        *,
        observers: int = 0,
        trace: bool = False,
    ) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.faults = replace(faults)
        self.config = RaftConfig(
            election_timeout_ms=faults.election_timeout_ms,
            election_backoff_max_ms=faults.election_timeout_ms,
            fetch_timeout_ms=2 * faults.election_timeout_ms,
            request_timeout_ms=2 * faults.election_timeout_ms,
            fetch_max_wait_ms=300,
            retry_backoff_ms=50,
        )
        self.now_ms = 0
        self.events = 0
        self.cut: set[tuple[int, int]] = set()
        self.trace: list[str] | None = [] if trace else None
        self._heap: list[tuple[int, int, Event]] = []
        self._sequence = 0
        self._values = 0
        keys = [ReplicaKey(i, Uuid.random(self.random)) for i in range(size + observers)]
        self.voters = VoterSet(tuple(keys[:size]))
        self.members = [Member(key) for key in keys]
        self.oracle = Oracle([member.log for member in self.members], self.voters)
        for member in self.members:
            self.at(self.random.randint(0, 300), partial(self.start, member))
        self.at(100, self._client)

    def at(self, delay_ms: int, event: Event) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (self.now_ms + delay_ms, self._sequence, event))

    def run(self, *, for_ms: int) -> None:
        self.run_until(lambda: False, within_ms=for_ms, is_expected=False)

    def run_until(
        self, condition: Callable[[], bool], *, within_ms: int = 60_000, is_expected: bool = True
    ) -> None:
        end_ms = self.now_ms + within_ms
        while self._heap and self._heap[0][0] <= end_ms:
            self.now_ms, _, event = heapq.heappop(self._heap)
            self.events += 1
            event()
            if condition():
                return
        assert not is_expected, f"seed {self.seed}: no progress within {within_ms} ms"
        self.now_ms = end_ms

    def leader(self) -> Member | None:
        """The leader of the latest epoch, if there is one."""
        leaders = [m for m in self.members if m.node is not None and m.node.is_leader]
        return max(leaders, key=lambda m: cast("RaftNode", m.node).epoch, default=None)

    def heal(self) -> None:
        self.faults = replace(
            CALM,
            forgets_vote=self.faults.forgets_vote,
            skips_truncation=self.faults.skips_truncation,
        )
        self.cut.clear()
        for member in self.members:
            if member.node is None:
                self.start(member)

    def settle(self) -> None:
        """Heal, and expect that something new is committed and known to all."""
        self.heal()
        mark = f"settled-{self.now_ms}"
        self.run_until(lambda: self.leader() is not None)

        def is_done() -> bool:
            if all(entry.value != mark for entry in self.oracle.committed):
                leader = self.leader()
                if leader is not None and all(e.value != mark for e in leader.log.entries):
                    self._append(leader, mark)
                return False
            count = len(self.oracle.committed)
            return all(m.node and (m.node.high_watermark or 0) >= count for m in self.members)

        self.run_until(is_done)
        self.oracle.check_logs()

    def start(self, member: Member) -> None:
        if member.node is not None:
            return
        self._note("start %d", member.key.id)
        member.is_crash_safe = True  # or it might never come up
        log: LogView = member.log
        member.node = RaftNode(
            member.key,
            self.voters,
            log,
            member.hard_state,
            config=self.config,
            random=self.random,
            now_ms=self.now_ms,
        )
        self.oracle.on_start(member.key.id)
        self.drive(member, lambda node: None)
        member.is_crash_safe = False

    def crash(self, member: Member) -> None:
        self._note("crash %d", member.key.id)
        member.node = None
        member.incarnation += 1
        member.tick_at_ms = None
        member.inbox.clear()
        member.log.crash(self.random)
        if self.faults.forgets_vote:
            member.hard_state = replace(member.hard_state, voted=None)
        self.at(self.random.randint(20, self.faults.restart_ms_max), lambda: self.start(member))

    def drive(self, member: Member, action: Callable[[RaftNode], None]) -> None:
        """Let something happen to a node and carry out what it wants: the driver, in short."""
        node = member.node
        if node is None:
            return
        try:
            action(node)
            self._carry_out(member, node, node.take_ready())
        except CrashError:
            self.crash(member)
            return
        node.check_invariants()
        self.oracle.check(member.key.id, node)
        self._schedule_tick(member, node)

    def _carry_out(self, member: Member, node: RaftNode, ready: Ready) -> None:
        self._may_crash(member)
        if ready.hard_state is not None:
            self._note("%d state %s", member.key.id, ready.hard_state)
            member.hard_state = ready.hard_state
            self.oracle.on_hard_state(member.key.id, ready.hard_state)
            self._may_crash(member)
        if ready.log_instruction is not None:
            self._change_log(member, ready.log_instruction)
            self._may_crash(member)
        for event in ready.events:
            self._note("%d %s", member.key.id, event)
            self.oracle.on_event(member.key.id, event)
        if ready.high_watermark is not None:
            self.oracle.on_committed(member.key.id, node, ready.high_watermark)
        for read in ready.reads:
            self._may_crash(member)
            self._send(member, read.target, self._read(member.log, read))
        for target, message in ready.messages:
            self._may_crash(member)
            self._send(member, target, message)
        if ready.hard_state is not None:
            self._may_crash(member, self.faults.crash_after_promise)

    def _may_crash(self, member: Member, chance: float | None = None) -> None:
        chance = self.faults.crash if chance is None else chance
        if self.random.random() < chance and not member.is_crash_safe:
            raise CrashError

    def _change_log(self, member: Member, instruction: LogInstruction) -> None:
        log = member.log
        match instruction:
            case Truncate(offset=offset):
                if not self.faults.skips_truncation:
                    log.truncate(offset)
            case AppendFetched(records=records):
                log.append(cast("list[Entry]", records))
                self._flush_soon(member)
            case AppendLeaderChange(epoch=epoch):
                log.append([Entry(epoch, f"leader {member.key.id}")])
                self._flush_soon(member)
                incarnation = member.incarnation
                self.at(0, lambda: self._on_appended(member, incarnation))

    def _on_appended(self, member: Member, incarnation: int) -> None:
        if member.incarnation == incarnation:
            self.drive(member, lambda node: node.on_appended(self.now_ms))

    def _flush_soon(self, member: Member) -> None:
        started = (member.incarnation, member.log.generation)
        offset = member.log.log_end_offset

        def flushed() -> None:
            if started == (member.incarnation, member.log.generation):
                member.log.flush(offset)
                self.drive(member, lambda node: node.on_flushed(offset, self.now_ms))

        slow = self.random.random() < self.faults.straggler
        self.at(self.random.randint(0, 1_500 if slow else 15), flushed)

    def _schedule_tick(self, member: Member, node: RaftNode) -> None:
        deadline = node.next_deadline_ms()
        if deadline is None or deadline == member.tick_at_ms:
            return
        member.tick_at_ms = deadline
        incarnation = member.incarnation

        def tick() -> None:
            if member.incarnation == incarnation and member.tick_at_ms == deadline:
                member.tick_at_ms = None
                self.drive(member, lambda node: node.tick(self.now_ms))

        self.at(max(deadline - self.now_ms, 0), tick)

    def _read(self, log: SimLog, read: FetchRead) -> FetchResponse:
        # Few at a time, so that old records reach a follower long before those of this epoch.
        count = self.random.randint(1, 3)
        records = log.entries[read.fetch_offset : read.fetch_offset + count]
        return replace(read.response, records=records)

    def _send(self, member: Member, target: int, message: Message) -> None:
        source = member.key.id
        if isinstance(message, get_args(Response)):
            target, token, incarnation = member.inbox.pop(message.correlation_id)
            message = replace(message, correlation_id=token)
            self._post(source, target, message, incarnation)
            return
        for _ in range(1 + (self.random.random() < self.faults.doubling)):
            self._post(source, target, message, member.incarnation)

    def _post(self, source: int, target: int, message: Message, incarnation: int) -> None:
        if (source, target) in self.cut or self.random.random() < self.faults.loss:
            return
        slow = self.random.random() < self.faults.straggler
        delay_ms = self.random.randint(1, 2_000 if slow else self.faults.delay_ms)
        self.at(delay_ms, lambda: self._deliver(source, target, message, incarnation))

    def _deliver(self, source: int, target: int, message: Message, incarnation: int) -> None:
        member = self.members[target]
        if member.node is None or (source, target) in self.cut:
            return
        self._note("%d -> %d %s", source, target, message)
        if isinstance(message, get_args(Request)):
            self._sequence += 1
            member.inbox[self._sequence] = (source, message.correlation_id, incarnation)
            message = replace(message, correlation_id=self._sequence)
        elif incarnation != member.incarnation:
            return  # its connection went with the process that asked
        self.drive(member, lambda node: node.step(message, self.now_ms))

    def _client(self) -> None:
        self.at(self.random.randint(50, 400), self._client)
        if self.random.random() < self.faults.partition:
            self._partition()
        for member in self.members:
            if member.node is not None and member.node.is_leader:
                self._values += 1
                self._append(member, f"v{self._values}")

    def _append(self, member: Member, value: str) -> None:
        node = cast("RaftNode", member.node)
        member.log.append([Entry(node.epoch, value)])
        self._flush_soon(member)
        self.drive(member, lambda node: node.on_appended(self.now_ms))

    def _partition(self) -> None:
        """Cut a random set of nodes off, or heal; now and then in one direction only."""
        self.cut.clear()
        ids = range(len(self.members))
        island = {i for i in ids if self.random.random() < 0.4}
        one_way = self.random.random() < 0.3
        for a in ids:
            for b in ids:
                if a in island and b not in island:
                    self.cut.add((a, b))
                    if not one_way:
                        self.cut.add((b, a))
        self._note("cut %s", sorted(self.cut))

    def _note(self, text: str, *args: object) -> None:
        if self.trace is not None:
            self.trace.append(f"{self.now_ms} " + text % args)
