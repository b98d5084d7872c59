"""Clients of a group, as far as the group sees them: one for each protocol.

Both give up partitions only after a while, as real ones do to commit first, and both do what
Kafka's clients do about errors and lost answers.
"""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from odradek.coordinator.group.consumer.consumer_group import ConsumerGroup
from odradek.coordinator.result import Caller, Reply, Result
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import Uuid
from odradek.protocol.generated.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from odradek.protocol.generated.consumer_protocol import ConsumerProtocolSubscription
from odradek.protocol.generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.protocol.generated.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from odradek.protocol.generated.leave_group import LeaveGroupRequest, MemberIdentity
from odradek.protocol.generated.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from odradek.protocol.message import Message
from odradek.protocol.versioned import decode_versioned
from tests.unit.coordinator.consumer.group_driver import (
    GROUP_ID,
    FakeTopics,
    Owned,
    assignment,
    read_assignment,
    subscription,
)

if TYPE_CHECKING:
    from tests.simulation.groups.consumer_world import World

HEARTBEAT_MS = 3_000


class Client:
    """Sends one request at a time; ``is_waiting`` until it is answered or lost."""

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = name
        self.member_id = ""
        self.is_alive = True
        self.is_paused = False
        self.is_waiting = False
        world.after(0, self._loop)

    def partitions(self) -> set[tuple[Uuid, int]]:
        raise NotImplementedError

    def topic_names(self, topics: FakeTopics) -> Iterable[str]:
        raise NotImplementedError

    def call(self, world: "World", request: Message, caller: Caller) -> Result:
        raise NotImplementedError

    def on_answer(self, message: Message) -> None:
        raise NotImplementedError

    def poll(self) -> None:
        raise NotImplementedError

    def leave(self) -> None:
        raise NotImplementedError

    def on_lost(self) -> None:
        self.is_waiting = False

    def send(self, request: Message, version: int) -> None:
        self.is_waiting = True
        self.world.send(self, request, version)

    def _loop(self) -> None:
        if self.is_alive:
            if not self.is_paused and not self.is_waiting:
                self.poll()
            delay_ms = HEARTBEAT_MS + self.world.random.randrange(200)
            self.world.after(delay_ms, self._loop)

    def crash(self) -> None:
        self.is_alive = False

    def pause(self, for_ms: int) -> None:
        self.is_paused = True
        self.world.after(for_ms, self.wake)

    def wake(self) -> None:
        self.is_paused = False


class ConsumerClient(Client):
    """Speaks ConsumerGroupHeartbeat."""

    def __init__(
        self,
        world: "World",
        name: str,
        topics: list[str] | None,
        regex: str | None = None,
        instance_id: str | None = None,
    ) -> None:
        self.topics = topics
        self.regex = regex
        self.instance_id = instance_id
        self.epoch = 0
        self.owned: dict[Uuid, set[int]] = {}
        self._wanted: dict[Uuid, set[int]] | None = None
        self._is_changing = False
        self._must_tell = False
        self._is_full = True
        self._incarnation = 0
        super().__init__(world, name)
        self._new_id()

    def _new_id(self) -> None:
        self._incarnation += 1
        self.member_id = f"{self.name}-{self._incarnation}"

    def partitions(self) -> set[tuple[Uuid, int]]:
        return {(topic, number) for topic, numbers in self.owned.items() for number in numbers}

    def topic_names(self, topics: FakeTopics) -> Iterable[str]:
        if self.regex:
            yield from (name for name in topics.names() if re.fullmatch(self.regex, name))
        yield from self.topics or ()

    def subscribe(self, topics: list[str]) -> None:
        self.topics, self.regex = topics, "" if self.regex else None
        self._is_full = True

    def poll(self) -> None:
        is_full = self._is_full or self.epoch == 0
        owned = None
        if is_full or self._must_tell:
            owned = [
                TopicPartitions(topic_id=topic, partitions=sorted(numbers))
                for topic, numbers in self.owned.items()
            ]
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP_ID,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=20_000 if is_full else -1,
            subscribed_topic_names=self.topics if is_full else None,
            subscribed_topic_regex=self.regex if is_full else None,
            topic_partitions=owned,
        )
        self._must_tell = self._is_full = False
        self.send(request, 1)

    def call(self, world: "World", request: Message, caller: Caller) -> Result:
        assert isinstance(request, ConsumerGroupHeartbeatRequest)
        group = world.group
        if isinstance(group, ConsumerGroup):
            return group.heartbeat(request, caller, world.now, world.topics)
        if request.member_epoch != 0:
            return _refused(caller, ErrorCode.GROUP_ID_NOT_FOUND)
        if group.is_empty:
            fresh = ConsumerGroup(GROUP_ID, world.config, world.random)
            world.adopt(fresh, [], fresh.heartbeat(request, caller, world.now, world.topics))
            return Result()
        try:
            upgraded, records = ConsumerGroup.from_classic(
                group, world.config, world.random, world.now, world.topics
            )
        except ApiError as refusal:
            return _refused(caller, refusal.code)
        result = upgraded.heartbeat(request, caller, world.now, world.topics)
        replies = group.retire(ErrorCode.REBALANCE_IN_PROGRESS, world.now).replies
        world.adopt(upgraded, records, Result(result.records, (*result.replies, *replies)))
        return Result()

    def on_lost(self) -> None:
        super().on_lost()
        self._is_full = True

    def on_answer(self, message: Message) -> None:
        assert isinstance(message, ConsumerGroupHeartbeatResponse)
        self.is_waiting = False
        if not self.is_alive:
            return
        match ErrorCode(message.error_code):
            case ErrorCode.NONE:
                self._on_told(message)
            case ErrorCode.FENCED_MEMBER_EPOCH | ErrorCode.UNKNOWN_MEMBER_ID:
                self._abandon()
            case ErrorCode.GROUP_ID_NOT_FOUND:
                self._abandon()
            case ErrorCode.UNRELEASED_INSTANCE_ID:
                pass  # whoever has it will lose its session
            case ErrorCode.FENCED_INSTANCE_ID:
                self._abandon()
                self.crash()
            case code:
                raise AssertionError(f"{self.name}: {code.name} {message.error_message}")

    def _abandon(self) -> None:
        self.owned = {}
        self._wanted = None
        self.epoch = 0

    def _on_told(self, message: ConsumerGroupHeartbeatResponse) -> None:
        if message.member_epoch > 0:
            self.epoch = message.member_epoch
        if message.assignment is not None:
            self._wanted = {
                each.topic_id: set(each.partitions) for each in message.assignment.topic_partitions
            }
            if not self._is_changing:
                self._change()

    def _change(self) -> None:
        """Give up first, which takes its time, then take."""
        wanted = self._wanted
        assert wanted is not None
        if all(numbers <= wanted.get(topic, set()) for topic, numbers in self.owned.items()):
            if self.owned != wanted:
                self.owned = {topic: set(numbers) for topic, numbers in wanted.items()}
                self._must_tell = True
            return
        self._is_changing = True
        incarnation = self._incarnation
        self.world.after(self.world.random.randrange(1, 6_000), lambda: self._changed(incarnation))

    def _changed(self, incarnation: int) -> None:
        self._is_changing = False
        if self._wanted is None or incarnation != self._incarnation or not self.is_alive:
            return
        self.owned = {
            topic: kept
            for topic, numbers in self.owned.items()
            if (kept := numbers & self._wanted.get(topic, set()))
        }
        self._must_tell = True
        self._change()
        if not self.is_waiting and not self.is_paused:
            self.poll()

    def leave(self) -> None:
        if self.is_waiting or not self.epoch:
            self.crash()
            return
        self.is_alive = False
        self.owned = {}
        epoch = -1 if self.instance_id is None else -2
        self._send_leave(epoch)

    def _send_leave(self, epoch: int) -> None:
        self.send(
            ConsumerGroupHeartbeatRequest(
                group_id=GROUP_ID,
                member_id=self.member_id,
                member_epoch=epoch,
                instance_id=self.instance_id,
            ),
            1,
        )

    def restart(self) -> None:
        """Come back under the same instance id and another member id."""
        self._abandon()
        self._new_id()
        if not self.is_alive:
            self.is_alive = True
            self._is_full = True
            self._is_changing = self._must_tell = False
            self._loop()


def _refused(caller: Caller, code: ErrorCode) -> Result:
    message = ConsumerGroupHeartbeatResponse(error_code=code)
    return Result(replies=(Reply(caller.waiter, message),))


class ClassicClient(Client):
    """Speaks JoinGroup, SyncGroup and Heartbeat, eagerly or cooperatively."""

    def __init__(
        self, world: "World", name: str, topics: list[str], *, is_cooperative: bool
    ) -> None:
        self.topics = topics
        self.is_cooperative = is_cooperative
        self.generation_id = -1
        self.owned: Owned = {}
        self._topic_ids: dict[str, Uuid] = {}
        self._must_join = True
        self._must_sync = False
        self._assignments: list[SyncGroupRequestAssignment] = []
        self._is_giving_up = False
        super().__init__(world, name)

    def partitions(self) -> set[tuple[Uuid, int]]:
        return {
            (self._topic_ids[name], number)
            for name, numbers in self.owned.items()
            for number in numbers
        }

    def _take(self, told: Owned) -> None:
        # The protocol knows names only: it is the topic of now that is meant.
        self.owned, self._topic_ids = {}, {}
        for name, numbers in told.items():
            topic = self.world.topics.find(name)
            if topic is not None:
                self.owned[name] = set(numbers)
                self._topic_ids[name] = topic.topic_id

    def topic_names(self, topics: FakeTopics) -> Iterable[str]:
        return self.topics

    def poll(self) -> None:
        if self._is_giving_up:
            self._heartbeat()
        elif self._must_join:
            self._join()
        elif self._must_sync:
            self._sync()
        else:
            self._heartbeat()

    def _join(self) -> None:
        if not self.is_cooperative:
            self.owned = {}
        request = JoinGroupRequest(
            group_id=GROUP_ID,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=20_000,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[
                JoinGroupRequestProtocol(
                    name="cooperative-sticky" if self.is_cooperative else "range",
                    metadata=subscription(self.topics, self.owned),
                )
            ],
        )
        self.send(request, 9)

    def _sync(self) -> None:
        request = SyncGroupRequest(
            group_id=GROUP_ID,
            generation_id=self.generation_id,
            member_id=self.member_id,
            assignments=self._assignments,
        )
        self.send(request, 5)

    def _heartbeat(self) -> None:
        request = HeartbeatRequest(
            group_id=GROUP_ID, generation_id=self.generation_id, member_id=self.member_id
        )
        self.send(request, 4)

    def call(self, world: "World", request: Message, caller: Caller) -> Result:
        group, now, topics = world.group, world.now, world.topics
        if isinstance(group, ConsumerGroup):
            match request:
                case JoinGroupRequest():
                    return group.join_classic(request, caller, now, topics)
                case SyncGroupRequest():
                    return group.sync_classic(request, caller, now, topics)
                case LeaveGroupRequest():
                    return group.leave_classic(request, caller, now, topics)
                case HeartbeatRequest():
                    return group.heartbeat_classic(request, caller, now, topics)
        else:
            match request:
                case JoinGroupRequest():
                    return group.join(request, caller, now)
                case SyncGroupRequest():
                    return group.sync(request, caller, now)
                case LeaveGroupRequest():
                    return group.leave(request, caller, now)
                case HeartbeatRequest():
                    return group.heartbeat(request, caller, now)
        raise AssertionError(request)

    def on_answer(self, message: Message) -> None:
        self.is_waiting = False
        if not self.is_alive:
            return
        match message:
            case JoinGroupResponse():
                self._on_joined(message)
            case SyncGroupResponse():
                self._on_synced(message)
            case HeartbeatResponse():
                self._on_error(ErrorCode(message.error_code))

    def _on_joined(self, message: JoinGroupResponse) -> None:
        code = ErrorCode(message.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = message.member_id
        elif code is not ErrorCode.NONE:
            self._on_error(code)
        else:
            self.member_id = message.member_id
            self.generation_id = message.generation_id
            self._must_join, self._must_sync = False, True
            is_leader = message.leader == message.member_id
            self._assignments = self._assign(message) if is_leader else []

    def _on_synced(self, message: SyncGroupResponse) -> None:
        if message.error_code:
            self._on_error(ErrorCode(message.error_code))
            return
        self._must_sync = False
        told = read_assignment(message.assignment) if message.assignment else {}
        surplus = any(numbers - told.get(name, set()) for name, numbers in self.owned.items())
        if not surplus:
            self._take(told)
            return
        self._is_giving_up = True
        generation_id = self.generation_id
        delay_ms = self.world.random.randrange(1, 4_000)
        self.world.after(delay_ms, lambda: self._gave_up(told, generation_id))

    def _gave_up(self, told: Owned, generation_id: int) -> None:
        self._is_giving_up = False
        if generation_id == self.generation_id and self.owned:
            # What is new in ``told`` may be taken: the group counts it as ours.
            self._take(told)
            self._must_join = True

    def _on_error(self, code: ErrorCode) -> None:
        match code:
            case ErrorCode.NONE:
                pass
            case ErrorCode.REBALANCE_IN_PROGRESS:
                self._must_join = True
            case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.FENCED_INSTANCE_ID:
                self.member_id, self.owned = "", {}
                self.generation_id, self._must_join = -1, True
            case ErrorCode.ILLEGAL_GENERATION:
                self.owned, self.generation_id, self._must_join = {}, -1, True
            case _:
                raise AssertionError(f"{self.name}: {code.name}")

    def _assign(self, message: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        """Lead a classic generation: round robin, but nothing that another one still has."""
        told = {
            each.member_id: decode_versioned(ConsumerProtocolSubscription, each.metadata)
            for each in message.members
        }
        holders = {
            (owned.topic, number): member_id
            for member_id, each in told.items()
            for owned in each.owned_partitions
            for number in owned.partitions
        }
        plans: dict[str, Owned] = {member_id: {} for member_id in told}
        turn = 0
        for name in sorted({name for each in told.values() for name in each.topics}):
            takers = sorted(member_id for member_id, each in told.items() if name in each.topics)
            topic = self.world.topics.find(name)
            for number in range(topic.partition_count if topic else 0):
                taker = takers[turn % len(takers)]
                turn += 1
                if holders.get((name, number), taker) == taker:
                    plans[taker].setdefault(name, set()).add(number)
        return [
            SyncGroupRequestAssignment(member_id=member_id, assignment=assignment(plan))
            for member_id, plan in plans.items()
        ]

    def leave(self) -> None:
        if self.is_waiting or not self.member_id:
            self.crash()
            return
        self.is_alive = False
        self.owned = {}
        request = LeaveGroupRequest(
            group_id=GROUP_ID, members=[MemberIdentity(member_id=self.member_id)]
        )
        self.send(request, 5)
