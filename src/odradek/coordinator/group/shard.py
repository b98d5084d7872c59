"""All groups of one partition of ``__consumer_offsets``, and the offsets they committed.

Requests come with a group id; the shard finds the group, or makes one, and lets it decide. A group
is of the classic protocol or of the consumer protocol; what a request of one protocol means to a
group of the other is decided here, by conversion if it may be converted.

``replay`` changes what is durable, live and when the partition is loaded; classic groups, whose
members are soft until a rebalance is over, change themselves and are only loaded by it.

A group that is to take another's place, or that begins with its first records, waits in
``_coming`` until they are in the log: if the append fails, it never was.
"""

from collections.abc import Iterable, Iterator
from random import Random
from typing import Final

from odradek.coordinator.deadlines import Deadlines
from odradek.coordinator.group.classic.classic_group import ClassicGroup
from odradek.coordinator.group.consumer.commit_rules import PartitionCheck
from odradek.coordinator.group.consumer.consumer_group import ConsumerGroup
from odradek.coordinator.group.consumer.heartbeat_rules import check_request
from odradek.coordinator.group.consumer.member import JOIN_EPOCH
from odradek.coordinator.group.offset_requests import (
    fetch_offsets,
    plan_commit,
    plan_commit_in_transaction,
    plan_delete,
    plan_delete_all,
    plan_expiry,
    plan_topics_deleted,
)
from odradek.coordinator.group.offsets import (
    NO_EXPIRE_TIMESTAMP,
    CommittedOffset,
    OffsetStore,
)
from odradek.coordinator.group.settings import GroupSettings
from odradek.coordinator.group.topic_view import TopicView
from odradek.coordinator.record import CoordinatorRecord
from odradek.coordinator.result import Caller, Producer, Reply, Result
from odradek.core.clock import Instant
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import Uuid
from odradek.protocol.generated import consumer_group_describe, describe_groups
from odradek.protocol.generated.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from odradek.protocol.generated.consumer_group_records import (
    ConsumerGroupTargetAssignmentMetadataKey,
)
from odradek.protocol.generated.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from odradek.protocol.generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.protocol.generated.join_group import JoinGroupRequest, JoinGroupResponse
from odradek.protocol.generated.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)
from odradek.protocol.generated.list_groups import ListedGroup
from odradek.protocol.generated.offset_commit import OffsetCommitRequest
from odradek.protocol.generated.offset_delete import OffsetDeleteRequest
from odradek.protocol.generated.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
)
from odradek.protocol.generated.offset_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from odradek.protocol.generated.sync_group import SyncGroupRequest, SyncGroupResponse
from odradek.protocol.generated.txn_offset_commit import TxnOffsetCommitRequest
from odradek.protocol.message import Message

Group = ClassicGroup | ConsumerGroup

RECORDS_PER_RESULT_MAX: Final = 1_000
"""Of a deletion that need not be atomic: a batch has to stay below ``max.message.bytes``."""
GROUPS_PER_TURN_MAX: Final = 1_000
"""Looked at for expired offsets before others have their turn."""
LONG_AGO: Final = Instant(0, 0)
_STALE: Final = ErrorCode.ILLEGAL_GENERATION
_NOT_FOUND_VERSION: Final = 9
_LEAVE_BATCHES_VERSION: Final = 3


class GroupShard:
    def __init__(self, settings: GroupSettings, topics: TopicView, random: Random) -> None:
        """``settings`` may be changed by their owner, and ``topics`` show what is there now."""
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetStore()
        # For metrics, since the shard was loaded.
        self.rebalances = self.commits = self.expired = 0
        self._settings = settings
        self._topics = topics
        self._random = random
        self._is_loaded = False
        self._coming: dict[str, Group] = {}
        self._deadlines = Deadlines()
        self._expiry_due_ms = 0
        self._expiry_left: list[str] = []

    # The classic protocol.

    def join(self, request: JoinGroupRequest, caller: Caller, now: Instant) -> Result:
        group_id = request.group_id
        group = self.groups.get(group_id)
        match group:
            case ConsumerGroup() if not group.is_empty:
                result = group.join_classic(request, caller, now, self._topics)
                return self._after(group, result)
            case ConsumerGroup():
                # Nobody is left who would mind: it starts anew under the other protocol.
                successor = self._new_classic(group_id, now)
                self.groups[group_id] = successor
                joined = successor.join(request, caller, now)
                return self._after(successor, _preceded(group.tombstones(), joined))
            case ClassicGroup():
                return self._after(group, group.join(request, caller, now))
            case None if request.member_id:
                return Result(replies=(Reply(caller.waiter, _join_refused(request)),))
            case None:
                group = self.groups[group_id] = self._new_classic(group_id, now)
                return self._after(group, group.join(request, caller, now))

    def sync(self, request: SyncGroupRequest, caller: Caller, now: Instant) -> Result:
        group = self.groups.get(request.group_id)
        match group:
            case ConsumerGroup():
                return self._after(group, group.sync_classic(request, caller, now, self._topics))
            case ClassicGroup():
                return self._after(group, group.sync(request, caller, now))
            case None:
                response = SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
                return Result(replies=(Reply(caller.waiter, response),))

    def heartbeat(self, request: HeartbeatRequest, caller: Caller, now: Instant) -> Result:
        group = self.groups.get(request.group_id)
        match group:
            case ConsumerGroup():
                return self._after(
                    group, group.heartbeat_classic(request, caller, now, self._topics)
                )
            case ClassicGroup():
                return self._after(group, group.heartbeat(request, caller, now))
            case None:
                response = HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
                return Result(replies=(Reply(caller.waiter, response),))

    def leave(self, request: LeaveGroupRequest, caller: Caller, now: Instant) -> Result:
        group = self.groups.get(request.group_id)
        match group:
            case ConsumerGroup():
                return self._after(group, group.leave_classic(request, caller, now, self._topics))
            case ClassicGroup():
                return self._after(group, group.leave(request, caller, now))
            case None:
                return Result(replies=(Reply(caller.waiter, _leave_refused(request, caller)),))

    # The consumer protocol.

    def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller, now: Instant
    ) -> Result:
        group_id = request.group_id
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return self._after(group, group.heartbeat(request, caller, now, self._topics))
        config = self._settings.consumer_for(group_id)
        try:
            check_request(request, caller.version, config)
            if request.member_epoch != JOIN_EPOCH:
                raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
            if group is None or group.is_empty:
                return self._begin_consumer(group, request, caller, now)
            return self._upgrade(group, request, caller, now)
        except ApiError as error:
            response = ConsumerGroupHeartbeatResponse(
                error_code=error.code, error_message=error.message
            )
            return Result(replies=(Reply(caller.waiter, response),))

    def _begin_consumer(
        self,
        empty: ClassicGroup | None,
        request: ConsumerGroupHeartbeatRequest,
        caller: Caller,
        now: Instant,
    ) -> Result:
        config = self._settings.consumer_for(request.group_id)
        group = ConsumerGroup(request.group_id, config, self._random)
        result = group.heartbeat(request, caller, now, self._topics)
        if not result.records:
            return result  # refused: there will be no group
        self._coming[request.group_id] = group
        before = () if empty is None or empty.is_simple else (empty.tombstone(),)
        return self._after(group, _preceded(before, result))

    def _upgrade(
        self,
        classic: ClassicGroup,
        request: ConsumerGroupHeartbeatRequest,
        caller: Caller,
        now: Instant,
    ) -> Result:
        config = self._settings.consumer_for(request.group_id)
        group, planned = ConsumerGroup.from_classic(
            classic, config, self._random, now, self._topics
        )
        result = group.heartbeat(request, caller, now, self._topics)
        if not result.records:
            return result  # refused: nothing changes its protocol for that
        self._coming[request.group_id] = group
        # Whoever waits for a generation that will never come is to join again.
        released = classic.retire(ErrorCode.REBALANCE_IN_PROGRESS, now)
        result = _preceded((classic.tombstone(), *planned), result)
        return self._after(group, Result(result.records, released.replies + result.replies))

    # Offsets.

    def commit(self, request: OffsetCommitRequest, caller: Caller, now: Instant) -> Result:
        """Plan a commit.

        Raises:
            ApiError: The whole request is refused.
        """
        generation = request.generation_id_or_member_epoch
        unknown = ErrorCode.GROUP_ID_NOT_FOUND if caller.version >= _NOT_FOUND_VERSION else _STALE
        group = self._group_for_commit(request.group_id, generation, unknown, now)
        who = (request.member_id, request.group_instance_id, generation)
        check = group.check_commit(*who, is_transactional=False, version=caller.version)
        _check_partitions(check, request)
        if isinstance(group, ClassicGroup):
            group.on_commit(request.member_id, now)
        records, response = plan_commit(
            request, now.wall_ms, self._settings.offset_metadata_bytes_max
        )
        self.commits += len(records)
        return Result(tuple(records), (Reply(caller.waiter, response),))

    def commit_in_transaction(
        self, request: TxnOffsetCommitRequest, caller: Caller, now: Instant
    ) -> Result:
        """Plan a commit that counts when the producer's transaction does.

        Raises:
            ApiError: The whole request is refused.
        """
        generation = request.generation_id_or_member_epoch
        group = self._group_for_commit(request.group_id, generation, _STALE, now)
        try:
            check = group.check_commit(
                request.member_id,
                request.group_instance_id,
                generation,
                is_transactional=True,
                version=caller.version,
            )
            _check_partitions(check, request)
        except ApiError as error:
            is_stale = error.code is ErrorCode.STALE_MEMBER_EPOCH
            raise ApiError(_STALE if is_stale else error.code, error.message) from error
        records, response = plan_commit_in_transaction(
            request, now.wall_ms, self._settings.offset_metadata_bytes_max
        )
        self.commits += len(records)
        producer = Producer(request.producer_id, request.producer_epoch)
        return Result(tuple(records), (Reply(caller.waiter, response),), producer)

    def _group_for_commit(
        self, group_id: str, generation: int, unknown: ErrorCode, now: Instant
    ) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            if generation >= 0:
                raise ApiError(unknown, group_id)
            # A consumer that assigns itself, or an administrator: a group without members.
            group = self.groups[group_id] = self._new_classic(group_id, now)
        return group

    def fetch_offsets(
        self, request: OffsetFetchRequestGroup, *, require_stable: bool
    ) -> OffsetFetchResponseGroup:
        """Answer how far a group has read; one that does not exist has read nothing.

        Raises:
            ApiError: The member or its epoch is not what it was.
        """
        group = self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            group.check_fetch(request.member_id, request.member_epoch)
        return fetch_offsets(self.offsets, request, require_stable=require_stable)

    def delete_offsets(self, request: OffsetDeleteRequest, caller: Caller) -> Result:
        """Plan an OffsetDelete.

        Raises:
            ApiError: The whole request is refused.
        """
        group = self._existing(request.group_id)
        if isinstance(group, ClassicGroup):
            group.check_offset_delete()
        records, response = plan_delete(self.offsets, request, group.is_subscribed_to)
        return Result(tuple(records), (Reply(caller.waiter, response),))

    # Administration.

    def list_groups(self) -> Iterator[ListedGroup]:
        return (group.listed() for group in self.groups.values())

    def describe_classic(self, group_id: str) -> describe_groups.DescribedGroup:
        """Describe a classic group.

        Raises:
            ApiError: GROUP_ID_NOT_FOUND.
        """
        group = self._existing(group_id)
        if not isinstance(group, ClassicGroup):
            problem = f"Group {group_id} is not a classic group."
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, problem)
        return group.describe()

    def describe_consumer(self, group_id: str) -> consumer_group_describe.DescribedGroup:
        """Describe a consumer group.

        Raises:
            ApiError: GROUP_ID_NOT_FOUND.
        """
        group = self._existing(group_id)
        if not isinstance(group, ConsumerGroup):
            problem = f"Group {group_id} is not a consumer group."
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, problem)
        return group.describe(self._topics)

    def delete_group(self, group_id: str, caller: Caller) -> Result:
        """Plan the end of an empty group and of all it committed.

        Raises:
            ApiError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
        """
        group = self._existing(group_id)
        group.check_delete()
        records = (*plan_delete_all(self.offsets, group_id), *_tombstones(group))
        response = DeleteGroupsResponse(results=[DeletableGroupResult(group_id=group_id)])
        return Result(records, (Reply(caller.waiter, response),))

    def _existing(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    # What happens meanwhile.

    def on_topics_deleted(self, topics: Iterable[tuple[str, Uuid]]) -> Iterator[Result]:
        """Forget what was committed for topics that are gone, some at a time."""
        records = plan_topics_deleted(self.offsets, topics)
        for start in range(0, len(records), RECORDS_PER_RESULT_MAX):
            yield Result(tuple(records[start : start + RECORDS_PER_RESULT_MAX]))

    def on_settings_changed(self) -> None:
        for group_id, group in self.groups.items():
            if isinstance(group, ConsumerGroup):
                group.config = self._settings.consumer_for(group_id)

    def next_deadline_ms(self) -> int | None:
        deadline_ms = self._deadlines.next_ms()
        return self._expiry_due_ms if deadline_ms is None else min(deadline_ms, self._expiry_due_ms)

    def tick(self, now: Instant) -> Iterator[Result]:
        for group_id in self._deadlines.take_expired(now.monotonic_ms):
            group = self.groups.get(group_id)
            if isinstance(group, ClassicGroup):
                yield self._after(group, group.tick(now))
            elif isinstance(group, ConsumerGroup):
                yield self._after(group, group.tick(now, self._topics))
        if self._expiry_due_ms <= now.monotonic_ms:
            yield self._expire_some(now)

    def _expire_some(self, now: Instant) -> Result:
        """Look for offsets that nobody wants any more in some groups; others have their turn."""
        if not self._expiry_left:
            self._expiry_left = list(self.groups)
        records: list[CoordinatorRecord] = []
        looked_at = 0
        while self._expiry_left and looked_at < GROUPS_PER_TURN_MAX:
            looked_at += 1
            records += self._expire(self._expiry_left.pop(), now.wall_ms)
            if len(records) >= RECORDS_PER_RESULT_MAX:
                break
        interval_ms = self._settings.offsets_retention_check_interval_ms
        self._expiry_due_ms = now.monotonic_ms + (0 if self._expiry_left else interval_ms)
        return Result(tuple(records))

    def _expire(self, group_id: str, now_ms: int) -> list[CoordinatorRecord]:
        group = self.groups.get(group_id)
        if group is None:
            return []

        def is_expired(committed: CommittedOffset) -> bool:
            if committed.expire_timestamp_ms != NO_EXPIRE_TIMESTAMP:
                return now_ms >= committed.expire_timestamp_ms
            start_ms: int | None = committed.commit_timestamp_ms
            if isinstance(group, ClassicGroup):
                start_ms = group.retention_start_ms(committed.commit_timestamp_ms)
            retention_ms = self._settings.offsets_retention_ms
            return start_ms is not None and now_ms - start_ms >= retention_ms

        records, has_none_left = plan_expiry(
            self.offsets, group_id, group.is_subscribed_to, is_expired
        )
        self.expired += len(records)
        if has_none_left and group.is_empty:
            records += _tombstones(group)
        return records

    # The log.

    def replay(self, key: Message, value: Message | None, *, offset: int, producer_id: int) -> None:
        match key, value:
            case OffsetCommitKey(), OffsetCommitValue():
                self.offsets.replay_commit(key, value, offset, producer_id)
                if key.group not in self.groups:
                    self.groups[key.group] = self._new_classic(key.group, LONG_AGO)
            case OffsetCommitKey(), None:
                self.offsets.replay_tombstone(key)
            case GroupMetadataKey(), GroupMetadataValue():
                self._replay_classic(key.group, value)
            case GroupMetadataKey(), None:
                self._remove(key.group, ClassicGroup)
            case _:
                self._replay_consumer(CoordinatorRecord(key, value))

    def replay_marker(self, producer_id: int, *, is_committed: bool) -> None:
        self.offsets.end_transaction(producer_id, is_committed=is_committed)

    def _replay_classic(self, group_id: str, value: GroupMetadataValue) -> None:
        if not self._is_loaded:
            self.groups[group_id] = ClassicGroup.load(
                group_id, value, self._settings.classic, self._random, LONG_AGO
            )
            return
        self.rebalances += bool(value.members)
        if group_id in self._coming:
            self.groups[group_id] = self._coming.pop(group_id)

    def _replay_consumer(self, record: CoordinatorRecord) -> None:
        group_id: str = record.key.group_id  # type: ignore[attr-defined]  # all of these have one
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            if record.value is None:
                return  # a tombstone whose group is gone, or has another protocol now
            coming = self._coming.pop(group_id, None)
            config = self._settings.consumer_for(group_id)
            group = coming if isinstance(coming, ConsumerGroup) else None
            group = group or ConsumerGroup(group_id, config, self._random)
            self.groups[group_id] = group
        group.replay(record)
        is_epoch = isinstance(record.key, ConsumerGroupTargetAssignmentMetadataKey)
        self.rebalances += self._is_loaded and is_epoch and record.value is not None
        if group.is_deleted:
            self._remove(group_id, ConsumerGroup)

    def _remove(self, group_id: str, kind: type[Group]) -> None:
        if isinstance(self.groups.get(group_id), kind):
            del self.groups[group_id]
            self._deadlines.cancel(group_id)

    def on_loaded(self, now: Instant) -> Iterator[Result]:
        self._is_loaded = True
        self._expiry_due_ms = now.monotonic_ms + self._settings.offsets_retention_check_interval_ms
        for group in list(self.groups.values()):
            loaded = group.on_loaded(now)
            yield self._after(group, loaded or Result())

    def on_append_failed(
        self, records: Iterable[CoordinatorRecord], now: Instant
    ) -> Iterator[Result]:
        """Hear that a result's records are not in the log, and its replies were refused."""
        for record in records:
            if isinstance(record.key, GroupMetadataKey):
                self._coming.pop(record.key.group, None)
                group = self.groups.get(record.key.group)
                if isinstance(group, ClassicGroup):
                    yield self._after(group, group.on_append_failed(now))
            elif not isinstance(record.key, OffsetCommitKey):
                self._coming.pop(record.key.group_id, None)  # type: ignore[attr-defined]

    def _new_classic(self, group_id: str, now: Instant) -> ClassicGroup:
        return ClassicGroup(group_id, self._settings.classic, self._random, now)

    def _after(self, group: Group, result: Result) -> Result:
        """Note what a group wants besides its result: a deadline, or another in its place."""
        successor = group.take_successor() if isinstance(group, ConsumerGroup) else None
        if successor is not None:
            self._coming[group.group_id] = successor
            group = successor
        deadline_ms = group.next_deadline_ms()
        if deadline_ms is None:
            self._deadlines.cancel(group.group_id)
        else:
            self._deadlines.set(group.group_id, deadline_ms)
        return result

    def check_invariants(self) -> None:
        self.offsets.check_invariants()
        for group_id, group in self.groups.items():
            assert group.group_id == group_id
            group.check_invariants()


def _check_partitions(
    check: PartitionCheck | None, request: OffsetCommitRequest | TxnOffsetCommitRequest
) -> None:
    """Raise what stands against any of the partitions: all are committed or none."""
    if check is None:
        return
    for topic in request.topics:
        for partition in topic.partitions:
            code = check(topic.topic_id, partition.partition_index)
            if code:
                raise ApiError(code, f"{topic.name}-{partition.partition_index}")


def _tombstones(group: Group) -> list[CoordinatorRecord]:
    return [group.tombstone()] if isinstance(group, ClassicGroup) else group.tombstones()


def _preceded(records: Iterable[CoordinatorRecord], result: Result) -> Result:
    return Result((*records, *result.records), result.replies)


def _join_refused(request: JoinGroupRequest) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=ErrorCode.UNKNOWN_MEMBER_ID,
        generation_id=-1,
        member_id=request.member_id,
        protocol_name="",
        leader="",
    )


def _leave_refused(request: LeaveGroupRequest, caller: Caller) -> LeaveGroupResponse:
    code = ErrorCode.UNKNOWN_MEMBER_ID
    if caller.version < _LEAVE_BATCHES_VERSION:
        return LeaveGroupResponse(error_code=code)
    members = [
        MemberResponse(
            member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=code
        )
        for each in request.members
    ]
    return LeaveGroupResponse(members=members)
