"""A consumer group, its coordinator and its clients on a virtual clock, all from one seed.

Requests and answers get lost, records are not written, the coordinator fails over, clients crash,
pause and come back. After every event the safety rules are checked: nobody who is in the group uses
a partition that the coordinator does not count as his, so no partition is used by two; epochs never
go back; the log gives the same group again.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Final

from odradek.coordinator.group.classic.classic_group import ClassicGroup
from odradek.coordinator.group.consumer.config import ConsumerGroupConfig
from odradek.coordinator.group.consumer.consumer_group import ConsumerGroup
from odradek.coordinator.record import CoordinatorRecord
from odradek.coordinator.result import Caller, Result, Waiter
from odradek.core.clock import Instant
from odradek.core.ids import Uuid
from odradek.protocol.message import Message
from tests.simulation.groups.group_clients import Client
from tests.unit.coordinator.consumer.group_driver import GROUP_ID, FakeTopics, through_bytes

_GROUP_METADATA: Final = 2
_FAILOVER_CHECK_EVERY: Final = 20


class World:
    def __init__(self, seed: int, config: ConsumerGroupConfig) -> None:
        self.random = Random(seed)
        self.config = config
        self.topics = FakeTopics()
        self.now_ms = 0
        self.clients: list[Client] = []
        self.is_calm = False
        self.group: ConsumerGroup | ClassicGroup = ConsumerGroup(GROUP_ID, config, self.random)
        self.log: list[CoordinatorRecord] = []
        self.upgrades = self.downgrades = self.failovers = 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._scheduled = 0
        self._waiters: dict[Waiter, Client] = {}
        self._epochs = (0, 0)
        self._member_epochs: dict[str, int] = {}
        self._checks = 0

    @property
    def now(self) -> Instant:
        return Instant(1_700_000_000_000 + self.now_ms, 1_000 + self.now_ms)

    def chance(self, probability: float) -> bool:
        return not self.is_calm and self.random.random() < probability

    # Events.

    def after(self, delay_ms: int, event: Callable[[], None]) -> None:
        self._scheduled += 1
        heappush(self._events, (self.now_ms + delay_ms, self._scheduled, event))

    def run(self, until_ms: int) -> None:
        while True:
            due_ms = self._group_due_ms()
            if self._events and self._events[0][0] <= due_ms:
                at_ms, _, event = self._events[0]
                if at_ms > until_ms:
                    break
                heappop(self._events)
                self.now_ms = max(self.now_ms, at_ms)
                event()
            elif due_ms <= until_ms:
                self.now_ms = max(self.now_ms, due_ms)
                self._tick()
            else:
                break
            self.check()
        self.now_ms = until_ms

    def begin_classic(self) -> None:
        """Begin as a group does whose first member speaks the classic protocol."""
        self.group = ClassicGroup(GROUP_ID, self.config.classic, self.random, self.now)

    def _group_due_ms(self) -> int:
        due = self.group.next_deadline_ms()
        return 1 << 62 if due is None else due - 1_000

    def _tick(self) -> None:
        if isinstance(self.group, ConsumerGroup):
            self._carry_out(self.group.tick(self.now, self.topics))
        else:
            self._carry_out(self.group.tick(self.now))

    # The coordinator.

    def send(self, client: Client, request: Message, version: int) -> None:
        """Deliver a request, unless it or its answer is lost: then the client hears of that."""
        if self.chance(0.03):
            self.after(1_000, client.on_lost)
            return
        self._scheduled += 1
        waiter = self._scheduled
        self._waiters[waiter] = client
        caller = Caller(waiter, version, client.name, "/sim")
        self._carry_out(client.call(self, request, caller))

    def _carry_out(self, result: Result) -> None:
        is_consumer = isinstance(self.group, ConsumerGroup)
        successor = self.group.take_successor() if isinstance(self.group, ConsumerGroup) else None
        if is_consumer and result.records and self.chance(0.02):
            # Nothing was written and nobody is told.
            for waiter, _ in result.replies:
                self.after(1_000, self._waiters.pop(waiter).on_lost)
            return
        self._append(result.records)
        if successor is not None:
            self.downgrades += 1
            self.group = successor
        for waiter, message in result.replies:
            client = self._waiters.pop(waiter)
            if self.chance(0.03):
                self.after(1_000, client.on_lost)
            else:
                client.on_answer(message)

    def _append(self, records: tuple[CoordinatorRecord, ...]) -> None:
        for record in records:
            if record.key.ID == _GROUP_METADATA:
                continue
            read = through_bytes(record)
            self.log.append(read)
            if isinstance(self.group, ConsumerGroup):
                self.group.replay(read)
        if isinstance(self.group, ConsumerGroup) and self.group.is_deleted:
            self.log.clear()

    def adopt(self, group: ConsumerGroup, records: list[CoordinatorRecord], result: Result) -> None:
        """Put a consumer group in the place of a classic one; an empty one begins anew."""
        self.upgrades += bool(records)
        if not records:
            self._epochs = (0, 0)
            self._member_epochs.clear()
        self.group = group
        self.log = [through_bytes(record) for record in records]
        self._carry_out(result)

    def fail_over(self) -> None:
        if isinstance(self.group, ConsumerGroup):
            self.failovers += 1
            self.group = self._load()
            self.group.on_loaded(self.now)

    def _load(self) -> ConsumerGroup:
        loaded = ConsumerGroup(GROUP_ID, self.config, self.random)
        for record in self.log:
            loaded.replay(record)
        return loaded

    # Safety.

    def check(self) -> None:
        self.group.check_invariants()
        if isinstance(self.group, ConsumerGroup):
            self._check_consumer_group(self.group)
        self._check_ownership()

    def _check_consumer_group(self, group: ConsumerGroup) -> None:
        epochs = (group.state.group_epoch, group.state.assignment_epoch)
        assert epochs[0] >= self._epochs[0], "the group epoch went back"
        assert epochs[1] >= self._epochs[1], "the assignment epoch went back"
        self._epochs = epochs
        for member_id, member in group.state.members.items():
            if member.member_epoch > 0:
                assert member.member_epoch >= self._member_epochs.get(member_id, 0), member_id
                self._member_epochs[member_id] = member.member_epoch
        self._checks += 1
        if self._checks % _FAILOVER_CHECK_EVERY == 0:
            assert self._load().state == group.state, "the log tells another story"

    def _check_ownership(self) -> None:
        """Assert that no partition is used by two of the group, and none without permission."""
        users: dict[tuple[Uuid, int], str] = {}
        members = self.members()
        for client in self.clients:
            if client.member_id not in members:
                continue  # fenced, and about to learn it
            for topic_id, number in client.partitions():
                if self.topics.find_by_id(topic_id) is None:
                    continue  # there is nothing left to be used twice
                user = users.setdefault((topic_id, number), client.name)
                assert user == client.name, f"{user} and {client.name} use {number}"
                if isinstance(self.group, ConsumerGroup):
                    holder = self.group.state.holders.get(topic_id, {}).get(number)
                    assert holder == client.member_id, f"{client.name} uses {number}"

    def members(self) -> set[str]:
        if isinstance(self.group, ConsumerGroup):
            return set(self.group.state.members)
        return set(self.group.members)

    # Progress.

    def settle(self, for_ms: int) -> None:
        """Stop all faults and give everybody time."""
        self.is_calm = True
        for client in self.clients:
            client.wake()
        self.run(self.now_ms + for_ms)

    def check_settled(self) -> None:
        live = {client.member_id: client for client in self.clients if client.is_alive}
        assert self.members() == set(live)
        used = [each for client in live.values() for each in client.partitions()]
        wanted = {
            (topic.topic_id, partition)
            for client in live.values()
            for name in client.topic_names(self.topics)
            if (topic := self.topics.find(name)) is not None
            for partition in range(topic.partition_count)
        }
        assert len(used) == len(set(used))
        assert set(used) == wanted, "partitions are without a consumer"
        if isinstance(self.group, ConsumerGroup) and live:
            assert self.group.state_name == "Stable"
            for member_id, client in live.items():
                target = self.group.state.target.get(member_id, {})
                assert {
                    (topic_id, partition)
                    for topic_id, partitions in target.items()
                    for partition in partitions
                } == client.partitions()
