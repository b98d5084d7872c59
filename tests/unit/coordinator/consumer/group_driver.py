"""A consumer group with its log: every record goes through its bytes, and into a second group."""

from collections.abc import Iterable
from random import Random
from typing import Final

from odradek.coordinator.group.classic.classic_group import ClassicGroup
from odradek.coordinator.group.consumer.config import ConsumerGroupConfig
from odradek.coordinator.group.consumer.consumer_group import ConsumerGroup
from odradek.coordinator.group.consumer.group_state import GroupState
from odradek.coordinator.group.topic_view import Topic
from odradek.coordinator.record import CoordinatorRecord
from odradek.coordinator.result import Caller, Result
from odradek.core.clock import Instant
from odradek.core.ids import Uuid
from odradek.protocol.generated import consumer_group_records as wire
from odradek.protocol.generated.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from odradek.protocol.generated.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from odradek.protocol.generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.protocol.generated.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from odradek.protocol.generated.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from odradek.protocol.generated.sync_group import SyncGroupRequest, SyncGroupResponse
from odradek.protocol.message import Message
from odradek.protocol.versioned import (
    decode_key,
    decode_versioned,
    encode_versioned,
    record_type,
)

GROUP_ID: Final = "g"
_KINDS: Final[dict[int, tuple[type[Message], type[Message]]]] = {
    3: (wire.ConsumerGroupMetadataKey, wire.ConsumerGroupMetadataValue),
    4: (wire.ConsumerGroupPartitionMetadataKey, wire.ConsumerGroupPartitionMetadataValue),
    5: (wire.ConsumerGroupMemberMetadataKey, wire.ConsumerGroupMemberMetadataValue),
    6: (
        wire.ConsumerGroupTargetAssignmentMetadataKey,
        wire.ConsumerGroupTargetAssignmentMetadataValue,
    ),
    7: (
        wire.ConsumerGroupTargetAssignmentMemberKey,
        wire.ConsumerGroupTargetAssignmentMemberValue,
    ),
    8: (
        wire.ConsumerGroupCurrentMemberAssignmentKey,
        wire.ConsumerGroupCurrentMemberAssignmentValue,
    ),
    16: (wire.ConsumerGroupRegularExpressionKey, wire.ConsumerGroupRegularExpressionValue),
}

Owned = dict[str, set[int]]
"""Partitions by topic name, as tests think of them."""


class FakeTopics:
    """A TopicView that tests change as they like."""

    def __init__(self, **partition_counts: int) -> None:
        self.version = 0
        self.names_version = 0
        self._random = Random(7)
        self._topics: dict[str, Topic] = {}
        for name, count in partition_counts.items():
            self.create(name, count)

    def create(self, name: str, count: int) -> None:
        self.version += 1
        self.names_version = self.version
        self._topics[name] = Topic.of(Uuid.random(self._random), name, count)

    def grow(self, name: str, count: int) -> None:
        self.version += 1
        self._topics[name] = Topic.of(self._topics[name].topic_id, name, count)

    def delete(self, name: str) -> None:
        self.version += 1
        del self._topics[name]

    def find(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def find_by_id(self, topic_id: Uuid) -> Topic | None:
        return next((each for each in self._topics.values() if each.topic_id == topic_id), None)

    def names(self) -> Iterable[str]:
        return list(self._topics)

    def id_of(self, name: str) -> Uuid:
        return self._topics[name].topic_id

    def count_of(self, name: str) -> int:
        return self._topics[name].partition_count


def through_bytes(record: CoordinatorRecord) -> CoordinatorRecord:
    """Return what a coordinator would read back."""
    key = record.key_bytes()
    key_kind, value_kind = _KINDS[record_type(key)]
    value = record.value_bytes()
    return CoordinatorRecord(
        decode_key(key_kind, key), None if value is None else decode_versioned(value_kind, value)
    )


class GroupDriver:
    """Plays coordinator: plans, replays what was planned, and checks after every step."""

    def __init__(
        self, topics: FakeTopics, config: ConsumerGroupConfig | None = None, seed: int = 1
    ) -> None:
        self.topics = topics
        self.config = config or ConsumerGroupConfig(assignment_interval_ms=0)
        self.group = ConsumerGroup(GROUP_ID, self.config, Random(seed))
        self.log: list[CoordinatorRecord] = []
        self.now = Instant(wall_ms=1_700_000_000_000, monotonic_ms=5_000)
        self.successor: ClassicGroup | None = None
        self.last = Result()

    @property
    def state(self) -> GroupState:
        return self.group.state

    def advance(self, by_ms: int) -> None:
        self.now = Instant(self.now.wall_ms + by_ms, self.now.monotonic_ms + by_ms)

    def apply(self, result: Result) -> None:
        self.last = result
        self.successor = self.group.take_successor()
        for record in result.records:
            if record.key.ID == 2:  # the successor's; it is not ours to read
                assert self.successor is not None
                continue
            read = through_bytes(record)
            self.group.replay(read)
            self.log.append(read)
        if not self.group.is_deleted:
            self.group.check_invariants()

    def tick(self) -> None:
        self.apply(self.group.tick(self.now, self.topics))

    def load(self) -> ConsumerGroup:
        """Return a group made of the log, as after a failover."""
        loaded = ConsumerGroup(GROUP_ID, self.config, Random(2))
        for record in self.log:
            loaded.replay(record)
        return loaded

    def caller(self, version: int = 1, client_id: str = "client") -> Caller:
        return Caller("waiter", version, client_id, "/127.0.0.1")

    def heartbeat(
        self,
        member_id: str,
        member_epoch: int,
        *,
        topics: list[str] | None = None,
        regex: str | None = None,
        owned: Owned | None = None,
        instance_id: str | None = None,
        assignor: str | None = None,
        rebalance_timeout_ms: int = -1,
        version: int = 1,
    ) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP_ID,
            member_id=member_id,
            member_epoch=member_epoch,
            instance_id=instance_id,
            rebalance_timeout_ms=rebalance_timeout_ms,
            subscribed_topic_names=topics,
            subscribed_topic_regex=regex,
            server_assignor=assignor,
            topic_partitions=None if owned is None else self.topic_partitions(owned),
        )
        reply = self.send(request, version)
        assert isinstance(reply, ConsumerGroupHeartbeatResponse)
        return reply

    def send(self, request: ConsumerGroupHeartbeatRequest, version: int = 1) -> Message:
        caller = self.caller(version)
        self.apply(self.group.heartbeat(request, caller, self.now, self.topics))
        return self.only_reply()

    def only_reply(self) -> Message:
        ((waiter, message),) = self.last.replies
        assert waiter == "waiter"
        return message

    def join(
        self,
        member_id: str,
        topics: list[str] | None = None,
        *,
        regex: str | None = None,
        instance_id: str | None = None,
        assignor: str | None = None,
        rebalance_timeout_ms: int = 60_000,
    ) -> ConsumerGroupHeartbeatResponse:
        return self.heartbeat(
            member_id,
            0,
            topics=topics,
            regex=regex,
            owned={},
            instance_id=instance_id,
            assignor=assignor,
            rebalance_timeout_ms=rebalance_timeout_ms,
        )

    def topic_partitions(self, owned: Owned) -> list[TopicPartitions]:
        return [
            TopicPartitions(topic_id=self.topics.id_of(name), partitions=sorted(partitions))
            for name, partitions in owned.items()
        ]

    def told(self, response: ConsumerGroupHeartbeatResponse) -> Owned | None:
        """Return the assignment in a response by topic names."""
        if response.assignment is None:
            return None
        found = {}
        for each in response.assignment.topic_partitions:
            topic = self.topics.find_by_id(each.topic_id)
            assert topic is not None
            found[topic.name] = set(each.partitions)
        return found

    def settle(self, members: dict[str, Owned], rounds_max: int = 12) -> dict[str, Owned]:
        """Let members heartbeat, and do as they are told, until all have what they should."""
        for _ in range(rounds_max):
            for member_id in list(members):
                epoch = self.state.members[member_id].member_epoch
                told = self.told(self.heartbeat(member_id, epoch, owned=members[member_id]))
                if told is not None:
                    members[member_id] = told
            if self.group.state_name == "Stable":
                return members
        raise AssertionError(f"still {self.group.state_name}")

    # The classic protocol.

    def join_classic(
        self,
        member_id: str,
        topics: list[str],
        *,
        owned: Owned | None = None,
        instance_id: str | None = None,
        protocol: str = "cooperative-sticky",
        version: int = 9,
        session_timeout_ms: int = 30_000,
    ) -> JoinGroupResponse:
        request = JoinGroupRequest(
            group_id=GROUP_ID,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=60_000,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type="consumer",
            protocols=[
                JoinGroupRequestProtocol(name=protocol, metadata=subscription(topics, owned))
            ],
        )
        caller = self.caller(version)
        self.apply(self.group.join_classic(request, caller, self.now, self.topics))
        reply = self.last.replies[0].message
        assert isinstance(reply, JoinGroupResponse)
        return reply

    def sync_classic(
        self, member_id: str, generation_id: int, instance_id: str | None = None
    ) -> SyncGroupResponse:
        request = SyncGroupRequest(
            group_id=GROUP_ID,
            generation_id=generation_id,
            member_id=member_id,
            group_instance_id=instance_id,
        )
        caller = self.caller(5)
        self.apply(self.group.sync_classic(request, caller, self.now, self.topics))
        reply = self.only_reply()
        assert isinstance(reply, SyncGroupResponse)
        return reply

    def heartbeat_classic(self, member_id: str, generation_id: int) -> int:
        request = HeartbeatRequest(
            group_id=GROUP_ID, generation_id=generation_id, member_id=member_id
        )
        self.apply(self.group.heartbeat_classic(request, self.caller(4), self.now, self.topics))
        reply = self.only_reply()
        assert isinstance(reply, HeartbeatResponse)
        return reply.error_code

    def leave_classic(self, *identities: MemberIdentity, version: int = 5) -> LeaveGroupResponse:
        request = LeaveGroupRequest(group_id=GROUP_ID, members=list(identities))
        caller = self.caller(version)
        self.apply(self.group.leave_classic(request, caller, self.now, self.topics))
        reply = self.only_reply()
        assert isinstance(reply, LeaveGroupResponse)
        return reply


def subscription(topics: list[str], owned: Owned | None = None, version: int = 3) -> bytes:
    message = ConsumerProtocolSubscription(
        topics=topics,
        owned_partitions=[
            TopicPartition(topic=name, partitions=sorted(partitions))
            for name, partitions in (owned or {}).items()
        ],
    )
    return encode_versioned(message, version)


def assignment(owned: Owned, version: int = 3) -> bytes:
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            TopicPartition(topic=name, partitions=sorted(partitions))
            for name, partitions in owned.items()
        ]
    )
    return encode_versioned(message, version)


def read_assignment(data: bytes) -> Owned:
    decoded = decode_versioned(ConsumerProtocolAssignment, data)
    return {each.topic: set(each.partitions) for each in decoded.assigned_partitions}
