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
from typing import Final, TypeAlias, cast, get_args

from odradek.core.errors import ErrorCode
from odradek.core.ids import Uuid
from odradek.raft import HardState, LogView, Message, RaftConfig, RaftNode, ReplicaKey, VoterSet
from odradek.raft.driver import RaftDriver
from odradek.raft.messages import ProbeVoterRequest, ProbeVoterResponse, Request, VoterDetails
from tests.simulation.raft.oracle import Oracle
from tests.simulation.raft.ports import CrashError, SimPorts
from tests.simulation.raft.sim_log import Entry, SimLog, history_of

Event: TypeAlias = Callable[[], None]
OPERATOR: Final = -1
"""Who asks for other voters; no node."""
_BOOTSTRAP_FIRST: Final = -2


@dataclass
class Faults:
    loss: float = 0.0
    doubling: float = 0.0
    crash: float = 0.0  # at each step of carrying out a Ready
    crash_after_promise: float = 0.0  # when a new hard state has just been told to others
    partition: float = 0.0  # at each client append
    snapshot: float = 0.0  # at each client append
    delay_ms: int = 20
    straggler: float = 0.0  # messages and flushes that take up to two seconds
    restart_ms_max: int = 3_000
    election_timeout_ms: int = 1_000

    # Planted bugs.
    forgets_vote: bool = False
    skips_truncation: bool = False
    keeps_log_under_snapshot: bool = False


CALM = Faults()
STORM = Faults(loss=0.05, doubling=0.03, crash=0.006, partition=0.08, delay_ms=60, straggler=0.02)
SNAPSHOTS = replace(STORM, snapshot=0.3)  # logs that begin late, and followers that come later
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
    driver: RaftDriver | None = None
    incarnation: int = 0
    wakes_at_ms: int | None = None
    inbox: dict[int, tuple[int, int, int, int]] = field(default_factory=dict)
    """Whom to answer: who asked, its token, its incarnation, by what name it asked."""
    is_crash_safe: bool = False
    is_formatted: bool = True  # knows the first voters
    replaced_in: int = 0  # the incarnation in which it got its disk

    @property
    def node(self) -> RaftNode | None:
        return None if self.driver is None else self.driver.node


class Cluster:
    def __init__(
        self,
        seed: int,
        size: int,
        faults: Faults = CALM,
        *,
        observers: int = 0,
        is_by_log: bool = False,
        auto_join: bool = False,
        trace: bool = False,
    ) -> None:
        """``is_by_log``: the log names the voters; observers know but bootstrap servers."""
        self.is_by_log = is_by_log
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
            auto_join=auto_join,
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
        for member in self.members[size:]:
            member.is_formatted = not is_by_log
        self.oracle = Oracle([member.log for member in self.members], keys, self.voters)
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
            keeps_log_under_snapshot=self.faults.keeps_log_under_snapshot,
        )
        self.cut.clear()
        for member in self.members:
            if member.driver is None:
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
        if member.driver is not None:
            return
        self.note("start %d", member.key.id)
        member.is_crash_safe = True  # or it might never come up
        log: LogView = member.log
        first = self.voters if member.is_formatted else VoterSet(())
        node = RaftNode(
            member.key,
            history_of(member.log, first, is_by_log=self.is_by_log),
            log,
            member.hard_state,
            config=self.config,
            random=self.random,
            now_ms=self.now_ms,
            can_become_voter=self.is_by_log or self.voters.contains(member.key),
            bootstrap_ids=self.bootstrap_ids if self.is_by_log else (),
            details=VoterDetails((), 0, 1) if self.is_by_log else None,
        )
        member.driver = RaftDriver(node, SimPorts(self, member))
        self.oracle.on_start(member.key.id, member.log)
        self.drive(member, RaftDriver.start)
        member.is_crash_safe = False

    @property
    def bootstrap_ids(self) -> tuple[int, ...]:
        return tuple(_BOOTSTRAP_FIRST - each for each in range(len(self.members)))

    def replace_disk(self, member: Member) -> None:
        """Let a member lose all that it had, its vote with it; it starts with an empty disk."""
        self.note("%d loses its disk", member.key.id)
        self.crash(member)
        member.key = ReplicaKey(member.key.id, Uuid.random(self.random))
        member.log, member.hard_state = SimLog(), HardState()
        member.is_formatted, member.replaced_in = False, member.incarnation
        self.oracle.on_replaced(member.key.id, member.log, member.key)

    def crash(self, member: Member) -> None:
        self.note("crash %d", member.key.id)
        member.driver = None
        member.incarnation += 1
        member.wakes_at_ms = None
        member.inbox.clear()
        member.log.crash(self.random)
        if self.faults.forgets_vote:
            member.hard_state = replace(member.hard_state, voted=None)
        self.at(self.random.randint(20, self.faults.restart_ms_max), lambda: self.start(member))

    def drive(self, member: Member, action: Callable[[RaftDriver], None]) -> None:
        """Let something happen to a node, and check what must hold afterwards."""
        driver = member.driver
        if driver is None:
            return
        try:
            action(driver)
        except CrashError:
            self.crash(member)
            return
        driver.node.check_invariants()
        self.oracle.check(member.key.id, driver.node)

    def later(self, member: Member, delay_ms: int, action: Callable[[RaftDriver], None]) -> None:
        """Drive a member then, if it has not crashed by then."""
        incarnation = member.incarnation

        def event() -> None:
            if member.incarnation == incarnation:
                self.drive(member, action)

        self.at(delay_ms, event)

    def may_crash(self, member: Member, chance: float | None = None) -> None:
        chance = self.faults.crash if chance is None else chance
        if self.random.random() < chance and not member.is_crash_safe:
            raise CrashError

    def post(self, source: int, target: int, message: Message, incarnation: int) -> None:
        """Send a message to a node; requests may go to one of the bootstrap servers."""
        name, target = target, _BOOTSTRAP_FIRST - target if target < OPERATOR else target
        if (source, target) in self.cut or self.random.random() < self.faults.loss:
            return
        slow = self.random.random() < self.faults.straggler
        delay_ms = self.random.randint(1, 2_000 if slow else self.faults.delay_ms)
        self.at(delay_ms, lambda: self._deliver(source, target, message, incarnation, name))

    def _deliver(
        self, source: int, target: int, message: Message, incarnation: int, name: int
    ) -> None:
        if target == OPERATOR:
            self.on_answer(message)
            return
        member = self.members[target]
        if member.node is None or (source, target) in self.cut:
            return
        self.note("%d -> %d %s", source, target, message)
        if isinstance(message, ProbeVoterRequest):
            answer = ProbeVoterResponse(message.correlation_id, target, ErrorCode.NONE, (0, 1))
            self.post(target, source, answer, incarnation)
            return
        if isinstance(message, get_args(Request)):
            if source >= 0 and incarnation < self.members[source].replaced_in:
                return  # what an earlier disk said of itself
            self._sequence += 1
            member.inbox[self._sequence] = (source, message.correlation_id, incarnation, name)
            message = replace(message, correlation_id=self._sequence)
        elif incarnation != member.incarnation:
            return  # its connection went with the process that asked
        self.drive(member, lambda driver: driver.step(message))

    def on_answer(self, message: Message) -> None:
        """An operator gets an answer."""

    def _client(self) -> None:
        self.at(self.random.randint(50, 400), self._client)
        if self.random.random() < self.faults.partition:
            self._partition()
        self._snapshot()
        for member in self.members:
            if member.node is not None and member.node.is_leader:
                self._values += 1
                self._append(member, f"v{self._values}")

    def _append(self, member: Member, value: str) -> None:
        assert member.driver is not None
        member.log.append([Entry(member.driver.node.epoch, value)])
        self.drive(member, RaftDriver.on_appended)

    def _snapshot(self) -> None:
        """Let a member replace the committed part of its log by a snapshot."""
        member = self.random.choice(self.members)
        if member.node is not None and self.random.random() < self.faults.snapshot:
            member.log.snapshot(member.node.high_watermark or 0)
            self.note("%d snapshot %s", member.key.id, member.log.latest_snapshot)

    def _partition(self) -> None:
        """Cut a random set of nodes off, or heal; now and then in one direction only."""
        self.cut.clear()
        ids = range(OPERATOR if self.is_by_log else 0, len(self.members))
        island = {i for i in ids if self.random.random() < 0.4}
        one_way = self.random.random() < 0.3
        for a in ids:
            for b in ids:
                if a in island and b not in island:
                    self.cut.add((a, b))
                    if not one_way:
                        self.cut.add((b, a))
        self.note("cut %s", sorted(self.cut))

    def note(self, text: str, *args: object) -> None:
        if self.trace is not None:
            self.trace.append(f"{self.now_ms} " + text % args)
