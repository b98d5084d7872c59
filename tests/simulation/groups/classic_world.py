"""A coordinator of one classic group with its log, consumers around it, and all that goes wrong.

One seed, one history. After every step: the group's invariants; every request is either waiting in
the group or answered, once. At any time: in a generation, a partition has one holder; a commit that
is accepted is not of a generation older than one already handed out; a new coordinator does not
begin behind what was handed out; and nobody waits longer than a rebalance may take.
"""

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from random import Random
from typing import Final

from odradek.coordinator.group.classic.classic_group import ClassicGroup
from odradek.coordinator.group.classic.config import GroupConfig
from odradek.coordinator.group.classic.state import GroupState
from odradek.coordinator.record import CoordinatorRecord
from odradek.coordinator.result import Caller, Reply, Result
from odradek.core.clock import Instant
from odradek.core.errors import ApiError, ErrorCode
from odradek.protocol.generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.protocol.generated.join_group import JoinGroupRequest, JoinGroupResponse
from odradek.protocol.generated.leave_group import LeaveGroupRequest, LeaveGroupResponse
from odradek.protocol.generated.offset_records import GroupMetadataValue
from odradek.protocol.generated.sync_group import SyncGroupRequest, SyncGroupResponse
from odradek.protocol.message import Message
from tests.simulation.groups.classic_consumer import PARTITIONS, Consumer

WALL_MS: Final = 1_700_000_000_000
CONSUMERS_MAX: Final = 8
SETTLE_MS: Final = 300_000
QUIET_MS: Final = 60_000
REBALANCE_TIMEOUTS_MS: Final = (10_000, 20_000)
WAIT_MS_MAX: Final = max(REBALANCE_TIMEOUTS_MS) + 100

_RESPONSES: Final[dict[type[Message], type[Message]]] = {
    JoinGroupRequest: JoinGroupResponse,
    SyncGroupRequest: SyncGroupResponse,
    HeartbeatRequest: HeartbeatResponse,
    LeaveGroupRequest: LeaveGroupResponse,
}


@dataclass
class Faults:
    loss: float = 0.03
    append_failure: float = 0.05
    failover: float = 0.08


class World:
    def __init__(self, seed: int, faults: Faults | None = None) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.faults = faults or Faults()
        self.now_ms = 0
        self.consumers: list[Consumer] = []
        self.history: list[str] = []
        self.holders: dict[tuple[int, int], str] = {}
        self.newest_generation = -1
        self.config = GroupConfig(group_initial_rebalance_delay_ms=1_000)
        self.log: list[CoordinatorRecord] = []
        self.committed = 0
        self.is_loading = False
        self.group = ClassicGroup("g", self.config, self.random, self._instant())
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self._waiting: dict[int, Callable[[Message], None]] = {}
        self._kinds: dict[int, type[Message]] = {}
        self._arrived_ms: dict[object, int] = {}
        self._uncommitted: list[tuple[int, Reply]] = []
        self._term = 0

    def _instant(self) -> Instant:
        return Instant(WALL_MS + self.now_ms, self.now_ms)

    def note(self, what: str) -> None:
        self.history.append(f"{self.now_ms} {what}")

    def at(self, due_ms: int, then: Callable[[], None]) -> None:
        self._sequence += 1
        heappush(self._events, (due_ms, self._sequence, then))

    def run(self, for_ms: int, until: Callable[[], bool] = lambda: False) -> bool:
        end_ms = self.now_ms + for_ms
        while self._events and self._events[0][0] <= end_ms:
            self.now_ms, _, event = heappop(self._events)
            event()
            if until():
                return True
        self.now_ms = end_ms
        return False

    # The network, as consumers see it.

    def later(self, consumer: Consumer, by_ms: int, then: Callable[[], None]) -> None:
        self._wake(consumer, self.now_ms + by_ms, then)

    def _wake(self, consumer: Consumer, due_ms: int, then: Callable[[], None]) -> None:
        def wake() -> None:
            if consumer.paused_until_ms > self.now_ms:
                self._wake(consumer, consumer.paused_until_ms, then)
            elif consumer.is_alive:
                then()

        self.at(due_ms, wake)

    def send(
        self, consumer: Consumer, request: Message, version: int, then: Callable[[Message], None]
    ) -> None:
        def deliver(response: Message) -> None:
            if self.random.random() >= self.faults.loss:
                self._wake(consumer, self.now_ms + self._latency_ms(), lambda: then(response))

        if self.random.random() >= self.faults.loss:
            arrival_ms = self.now_ms + self._latency_ms()
            self.at(arrival_ms, lambda: self._receive(consumer, request, version, deliver))

    def _latency_ms(self) -> int:
        return self.random.randint(1, 20)

    def on_assigned(self, consumer: Consumer) -> None:
        self.note(f"{consumer.name} g{consumer.generation_id} {consumer.owned}")
        self.newest_generation = max(self.newest_generation, consumer.generation_id)
        holder = consumer.instance_id or consumer.member_id
        for partition in consumer.owned:
            first = self.holders.setdefault((consumer.generation_id, partition), holder)
            assert first == holder, (
                f"seed {self.seed}: generation {consumer.generation_id} gave partition "
                f"{partition} to {first} and {holder}"
            )

    def commit(self, consumer: Consumer) -> None:
        member_id, generation_id = consumer.member_id, consumer.generation_id

        def arrive() -> None:
            if self.is_loading:
                return
            try:
                self.group.check_commit(
                    member_id,
                    consumer.instance_id,
                    generation_id,
                    is_transactional=False,
                    version=8,
                )
            except ApiError:
                return
            self.group.on_commit(member_id, self._instant())
            assert generation_id >= self.newest_generation, (
                f"seed {self.seed}: a commit of generation {generation_id} was accepted after "
                f"{self.newest_generation} was handed out"
            )

        self.at(self.now_ms + self._latency_ms(), arrive)

    # The coordinator.

    def _receive(
        self,
        consumer: Consumer,
        request: Message,
        version: int,
        deliver: Callable[[Message], None],
    ) -> None:
        if self.is_loading:
            deliver(refusal(type(request), ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
            return
        self._sequence += 1
        caller = Caller(self._sequence, version, consumer.name, "/host")
        self._waiting[self._sequence] = deliver
        self._kinds[self._sequence] = type(request)
        self._arrived_ms[self._sequence] = self.now_ms
        now = self._instant()
        match request:
            case JoinGroupRequest():
                result = self.group.join(request, caller, now)
            case SyncGroupRequest():
                result = self.group.sync(request, caller, now)
            case HeartbeatRequest():
                result = self.group.heartbeat(request, caller, now)
            case LeaveGroupRequest():
                result = self.group.leave(request, caller, now)
            case _:
                raise AssertionError(request)
        self._apply(result)

    def _apply(self, result: Result) -> None:
        if result.records and self.random.random() < self.faults.append_failure:
            self.note("append failed")
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            for waiter, _ in result.replies:
                assert isinstance(waiter, int)
                self._answer(Reply(waiter, refusal(self._kinds[waiter], code)))
            result = self.group.on_append_failed(self._instant())
            assert not result.records
        self.log.extend(result.records)
        self._uncommitted += ((len(self.log), reply) for reply in result.replies)
        if result.records:
            end, term = len(self.log), self._term
            self.at(self.now_ms + self.random.randint(1, 50), lambda: self._commit(end, term))
        self._send_committed()
        self._check()
        self._schedule_tick()

    def _commit(self, end: int, term: int) -> None:
        if term == self._term:
            self.committed = max(self.committed, end)
            self._send_committed()

    def _send_committed(self) -> None:
        while self._uncommitted and self._uncommitted[0][0] <= self.committed:
            self._answer(self._uncommitted.pop(0)[1])

    def _answer(self, reply: Reply) -> None:
        assert isinstance(reply.waiter, int)
        assert reply.waiter in self._waiting, f"seed {self.seed}: {reply} is nobody's, or twice"
        assert type(reply.message) is _RESPONSES[self._kinds.pop(reply.waiter)]
        self._waiting.pop(reply.waiter)(reply.message)

    def _check(self) -> None:
        self.group.check_invariants()
        parked = set[object]()
        for member in self.group.members.values():
            for caller in (member.awaiting_join, member.awaiting_sync):
                if caller is not None:
                    parked.add(caller.waiter)
        answered = {reply.waiter for _, reply in self._uncommitted}
        assert self._waiting.keys() - answered == parked, f"seed {self.seed}: a waiter is lost"
        for waiter in parked:
            waited_ms = self.now_ms - self._arrived_ms[waiter]
            assert waited_ms <= WAIT_MS_MAX, f"seed {self.seed}: waits for {waited_ms} ms"

    def _schedule_tick(self) -> None:
        due_ms = self.group.next_deadline_ms()
        if due_ms is None:
            return
        group = self.group

        def tick() -> None:
            # A later request may have put the deadline off, and asked for a tick of its own.
            if group is self.group and group.next_deadline_ms() == due_ms:
                self._apply(group.tick(self._instant()))

        self.at(max(due_ms, self.now_ms) + self.random.choice((0, 0, 0, 15)), tick)

    def fail_over(self) -> None:
        """Unload the group, lose some of what was not committed, and load it elsewhere."""
        if self.is_loading:
            return
        self.note("failover")
        retired = self.group.retire(ErrorCode.NOT_COORDINATOR, self._instant())
        for _, reply in self._uncommitted:
            assert isinstance(reply.waiter, int)
            code = ErrorCode.NOT_COORDINATOR
            self._answer(Reply(reply.waiter, refusal(self._kinds[reply.waiter], code)))
        self._uncommitted.clear()
        for reply in retired.replies:
            self._answer(reply)
        assert not self._waiting, f"seed {self.seed}: a waiter was not answered at the end"
        del self.log[self.random.randint(self.committed, len(self.log)) :]
        self.committed, self._term, self.is_loading = len(self.log), self._term + 1, True
        self.at(self.now_ms + self.random.randint(0, 2_000), self._load)

    def _load(self) -> None:
        self.is_loading = False
        now = self._instant()
        self.group = ClassicGroup("g", self.config, self.random, now)
        if self.log:
            value = self.log[-1].value
            assert isinstance(value, GroupMetadataValue)
            self.group = ClassicGroup.load("g", value, self.config, self.random, now)
            assert self.group.metadata_record() == self.log[-1], f"seed {self.seed}: not the same"
        assert self.group.generation_id >= self.newest_generation, f"seed {self.seed}: behind"
        self._apply(self.group.on_loaded(now))

    # Stories.

    def start(self, instance_id: str | None = None) -> Consumer:
        random = self.random
        consumer = Consumer(
            self,
            f"c{len(self.consumers)}",
            instance_id=instance_id,
            join_version=random.choice((5, 8, 9) if instance_id else (1, 3, 4, 9)),
            session_timeout_ms=random.choice((6_000, 10_000, 30_000)),
            rebalance_timeout_ms=random.choice(REBALANCE_TIMEOUTS_MS),
        )
        self.consumers.append(consumer)
        self.note(f"start {consumer.name} {instance_id}")
        consumer.start()
        return consumer

    def alive(self) -> list[Consumer]:
        return [consumer for consumer in self.consumers if consumer.is_alive]

    def storm(self, for_ms: int) -> None:
        """Let things happen to consumers and coordinator, at random moments."""
        end_ms = self.now_ms + for_ms
        while self.now_ms < end_ms:
            self._mischief()
            self.run(self.random.choice((10, 200, 1_000, 4_000, 12_000)))

    def _mischief(self) -> None:
        random, alive = self.random, self.alive()
        if random.random() < self.faults.failover:
            self.fail_over()
        if len(alive) < 2 or (len(alive) < CONSUMERS_MAX and random.random() < 0.3):
            names = [c.instance_id for c in self.consumers if c.instance_id]
            roll = random.random()
            if roll < 0.5:
                self.start()
            elif names and roll < 0.8:
                self._restart(random.choice(names))
            else:
                self.start(f"i{len(self.consumers)}")
            return
        victim = random.choice(alive)
        match random.choice(("pause", "pause", "busy", "crash", "leave", "subscribe", "rejoin")):
            case "pause":
                victim.paused_until_ms = self.now_ms + random.choice((500, 5_000, 15_000, 25_000))
            case "busy":
                victim.is_busy = True
                self.at(self.now_ms + 25_000, lambda: setattr(victim, "is_busy", False))
            case "crash":
                self.note(f"crash {victim.name}")
                victim.die()
            case "leave" if victim.member_id:
                self.note(f"leave {victim.name}")
                victim.leave()
            case "subscribe" if victim.phase == "stable":
                victim.subscribe(random.choice((["t"], ["t", "u"])))
            case "rejoin" if victim.phase == "stable":
                victim.join()

    def _restart(self, name: str) -> None:
        """Start a static member anew; its former self is dead, or a zombie with a pause."""
        for former in self.alive():
            if former.instance_id == name:
                if self.random.random() < 0.5:
                    former.die()
                else:
                    former.paused_until_ms = self.now_ms + 3_000
        self.start(name)

    def settle(self) -> None:
        """With all faults gone, everybody must find a place in good time, and a newcomer too."""
        self.faults = Faults(loss=0.0, append_failure=0.0, failover=0.0)
        for consumer in self.alive():
            consumer.paused_until_ms = 0
        if self.alive():
            self._await_settled()
        self.start()
        self._await_settled()
        generation_id = self.group.generation_id
        self.run(QUIET_MS)
        assert self._is_settled(), f"seed {self.seed}: unsettled again"
        assert self.group.generation_id == generation_id, f"seed {self.seed}: restless"
        owned = sorted(partition for c in self.alive() for partition in c.owned)
        assert owned == list(range(PARTITIONS)), f"seed {self.seed}: {owned} are owned"

    def _await_settled(self) -> None:
        assert self.run(SETTLE_MS, until=self._is_settled), (
            f"seed {self.seed}: stuck in {self.group.state}, "
            f"{[(c.name, c.phase, c.generation_id) for c in self.alive()]}"
        )

    def _is_settled(self) -> bool:
        alive = self.alive()
        return (
            self.group.state is GroupState.STABLE
            and all(c.phase == "stable" for c in alive)
            and {c.generation_id for c in alive} == {self.group.generation_id}
            and {c.member_id for c in alive} == self.group.members.keys()
        )


def refusal(kind: type[Message], code: ErrorCode) -> Message:
    response = _RESPONSES[kind]()
    response.error_code = code  # type: ignore[attr-defined]
    return response
