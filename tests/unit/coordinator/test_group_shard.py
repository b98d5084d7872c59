"""A shard of groups: who gets a request, what is forgotten when, what a restart brings back."""

from collections.abc import Iterable
from random import Random

import pytest

from odradek.coordinator.group.record_types import decode_group_record
from odradek.coordinator.group.settings import GroupSettings
from odradek.coordinator.group.shard import (
    GROUPS_PER_TURN_MAX,
    RECORDS_PER_RESULT_MAX,
    GroupShard,
)
from odradek.coordinator.group.topic_view import Topic
from odradek.coordinator.record import CoordinatorRecord
from odradek.coordinator.result import Caller, Result
from odradek.core.clock import Instant
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import Uuid
from odradek.protocol.generated.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from odradek.protocol.generated.consumer_protocol import ConsumerProtocolSubscription
from odradek.protocol.generated.delete_groups import DeleteGroupsResponse
from odradek.protocol.generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.protocol.generated.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from odradek.protocol.generated.leave_group import LeaveGroupRequest, MemberIdentity
from odradek.protocol.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek.protocol.generated.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from odradek.protocol.generated.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from odradek.protocol.generated.sync_group import SyncGroupRequest, SyncGroupResponse
from odradek.protocol.message import Message
from odradek.protocol.versioned import encode_versioned

TOPIC = Topic.of(Uuid(b"t" * 16), "t", 4)
DAY_MS = 24 * 3600 * 1000
RETENTION_MS = 7 * DAY_MS
GROUPS_CHECKED_MAX = 10


class Topics:
    version = names_version = 1

    def find(self, name: str) -> Topic | None:
        return TOPIC if name == TOPIC.name else None

    def find_by_id(self, topic_id: Uuid) -> Topic | None:
        return TOPIC if topic_id == TOPIC.topic_id else None

    def names(self) -> Iterable[str]:
        return [TOPIC.name]


class Host:
    """Does what the broker does with results; records go through their bytes."""

    def __init__(self, settings: GroupSettings | None = None) -> None:
        self.settings = settings or GroupSettings()
        self.settings.classic.group_initial_rebalance_delay_ms = 0
        self.shard = GroupShard(self.settings, Topics(), Random(1))
        self.now = Instant(10 * 365 * DAY_MS, 1_000)
        self.log: list[tuple[bytes, bytes | None]] = []
        list(self.shard.on_loaded(self.now))
        self._waiters = 0

    def caller(self, version: int) -> Caller:
        self._waiters += 1
        return Caller(self._waiters, version, "client", "/10.0.0.1")

    def apply(self, result: Result) -> list[Message]:
        for record in result.records:
            self.shard.replay(record.key, record.value, offset=len(self.log), producer_id=-1)
            self.log.append((record.key_bytes(), record.value_bytes()))
        if len(self.shard.groups) < GROUPS_CHECKED_MAX:
            self.shard.check_invariants()
        return [reply.message for reply in result.replies]

    def pass_time(self, ms: int) -> list[Message]:
        """Let time pass and return what it brought for those who waited."""
        self.now = Instant(self.now.wall_ms + ms, self.now.monotonic_ms + ms)
        answers = []
        while (self.shard.next_deadline_ms() or 0) <= self.now.monotonic_ms:
            for result in self.shard.tick(self.now):
                answers += self.apply(result)
        return answers

    def restarted(self) -> GroupShard:
        fresh = GroupShard(self.settings, Topics(), Random(2))
        for offset, (key, value) in enumerate(self.log):
            decoded = decode_group_record(key, value)
            assert decoded is not None
            fresh.replay(*decoded, offset=offset, producer_id=-1)
        list(fresh.on_loaded(self.now))
        fresh.check_invariants()
        return fresh

    # Requests.

    def commit(
        self, offset: int, group: str = "g", member_id: str = "", generation: int = -1
    ) -> ErrorCode:
        request = OffsetCommitRequest(
            group_id=group,
            member_id=member_id,
            generation_id_or_member_epoch=generation,
            topics=[
                OffsetCommitRequestTopic(
                    name="t",
                    topic_id=TOPIC.topic_id,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=0, committed_offset=offset, committed_metadata="m"
                        )
                    ],
                )
            ],
        )
        (answer,) = self.apply(self.shard.commit(request, self.caller(9), self.now))
        assert isinstance(answer, OffsetCommitResponse)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    def join(self, group: str = "g", member_id: str = "") -> JoinGroupResponse:
        subscription = encode_versioned(ConsumerProtocolSubscription(topics=["t"]), 1)
        request = JoinGroupRequest(
            group_id=group,
            member_id=member_id,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=30_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription)],
        )
        answers = self.apply(self.shard.join(request, self.caller(3), self.now))
        (answer,) = answers + self.pass_time(1)  # the first rebalance waits, if only so long
        assert isinstance(answer, JoinGroupResponse)
        return answer

    def stable_member(self, group: str = "g") -> tuple[str, int]:
        """Return the member id and generation of a group of one."""
        joined = self.join(group)
        assert joined.error_code == 0
        request = SyncGroupRequest(
            group_id=group, generation_id=joined.generation_id, member_id=joined.member_id
        )
        (synced,) = self.apply(self.shard.sync(request, self.caller(3), self.now))
        assert isinstance(synced, SyncGroupResponse)
        assert synced.error_code == 0
        return joined.member_id, joined.generation_id

    def leave(self, member_id: str, group: str = "g") -> None:
        members = [MemberIdentity(member_id=member_id)]
        request = LeaveGroupRequest(group_id=group, members=members)
        self.apply(self.shard.leave(request, self.caller(3), self.now))

    def beat(self, member_id: str, epoch: int, group: str = "g") -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(
            group_id=group, member_id=member_id, member_epoch=epoch
        )
        if epoch == 0:
            request.subscribed_topic_names = ["t"]
            request.rebalance_timeout_ms = 30_000
            request.topic_partitions = []
        caller = self.caller(1)
        result = self.shard.consumer_heartbeat(request, caller, self.now)
        self.apply(result)
        (answer,) = [each.message for each in result.replies if each.waiter == caller.waiter]
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        return answer

    def fetched(self, group: str = "g", shard: GroupShard | None = None) -> dict[int, int]:
        topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1])]
        request = OffsetFetchRequestGroup(group_id=group, topics=topics)
        answer = (shard or self.shard).fetch_offsets(request, require_stable=True)
        return {each.partition_index: each.committed_offset for each in answer.topics[0].partitions}

    def type_of(self, group: str = "g", shard: GroupShard | None = None) -> tuple[str, str] | None:
        for listed in (shard or self.shard).list_groups():
            if listed.group_id == group:
                return listed.group_type, listed.group_state
        return None


def test_a_commit_without_membership_makes_a_group_without_members() -> None:
    host = Host()
    assert host.commit(5) == 0
    assert host.type_of() == ("classic", "Empty")
    assert host.fetched() == {0: 5, 1: -1}
    assert host.fetched(shard=host.restarted()) == {0: 5, 1: -1}


def test_a_commit_of_a_generation_that_nobody_knows_is_refused() -> None:
    host = Host()
    with pytest.raises(ApiError) as refused:
        host.commit(5, generation=3)
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert host.type_of() is None


def test_only_the_member_of_the_generation_commits() -> None:
    host = Host()
    member_id, generation = host.stable_member()
    assert host.commit(5, member_id=member_id, generation=generation) == 0
    for who, when, code in (
        ("", -1, ErrorCode.UNKNOWN_MEMBER_ID),
        (member_id, generation - 1, ErrorCode.ILLEGAL_GENERATION),
        ("stranger", generation, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        with pytest.raises(ApiError) as refused:
            host.commit(9, member_id=who, generation=when)
        assert refused.value.code is code
    assert host.fetched()[0] == 5


@pytest.mark.seed_row("0.16")
def test_metadata_that_is_too_long_is_refused_for_its_partition() -> None:
    host = Host()
    host.settings.offset_metadata_bytes_max = 0
    assert host.commit(5) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert host.log == []


def test_a_group_nobody_knows_has_read_nothing() -> None:
    assert Host().fetched() == {0: -1, 1: -1}


def test_who_is_not_known_is_told_so() -> None:
    host = Host()
    assert host.join(member_id="old").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    beat = HeartbeatRequest(group_id="g", member_id="old")
    (answer,) = host.apply(host.shard.heartbeat(beat, host.caller(3), host.now))
    assert answer == HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
    assert host.beat("old", 4).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert host.type_of() is None


def test_a_restart_brings_back_a_stable_group_with_its_member() -> None:
    host = Host()
    member_id, generation = host.stable_member()
    host.commit(7, member_id=member_id, generation=generation)
    fresh = host.restarted()
    assert host.type_of(shard=fresh) == ("classic", "Stable")
    beat = HeartbeatRequest(group_id="g", member_id=member_id, generation_id=generation)
    (answer,) = fresh.heartbeat(beat, host.caller(3), host.now).replies
    assert answer.message == HeartbeatResponse(error_code=0)


def test_a_silent_member_is_removed_in_time() -> None:
    host = Host()
    host.stable_member()
    host.pass_time(9_999)
    assert host.type_of() == ("classic", "Stable")
    host.pass_time(1)
    assert host.type_of() == ("classic", "Empty")


@pytest.mark.seed_row("0.12")
def test_offsets_expire_a_while_after_the_group_is_empty_and_the_group_with_them() -> None:
    host = Host()
    member_id, generation = host.stable_member()
    host.commit(7, member_id=member_id, generation=generation)
    host.leave(member_id)
    host.pass_time(RETENTION_MS - 1)
    assert host.fetched()[0] == 7
    host.pass_time(host.settings.offsets_retention_check_interval_ms)
    assert host.fetched()[0] == -1
    assert host.type_of() is None
    fresh = host.restarted()
    assert (fresh.groups, fresh.offsets.count) == ({}, 0)


@pytest.mark.seed_row("0.12")
def test_offsets_of_members_that_still_read_the_topic_do_not_expire() -> None:
    host = Host()
    joined = host.beat("m", 0)
    host.commit(7, member_id="m", generation=joined.member_epoch)
    host.settings.offsets_retention_ms = 600_000
    for _ in range(100):
        host.pass_time(24_000)
        host.beat("m", joined.member_epoch)
    assert host.fetched()[0] == 7


def test_many_dead_groups_go_some_at_a_time() -> None:
    host = Host()
    count = 3 * GROUPS_PER_TURN_MAX
    for number in range(count):
        host.commit(1, group=f"g{number}")
    assert len(host.shard.groups) == count
    wait_ms = RETENTION_MS + host.settings.offsets_retention_check_interval_ms
    host.now = Instant(host.now.wall_ms + wait_ms, host.now.monotonic_ms + wait_ms)
    (result,) = host.shard.tick(host.now)
    assert 0 < len(result.records) <= RECORDS_PER_RESULT_MAX + 1
    host.apply(result)
    assert host.shard.groups
    host.pass_time(0)
    assert (host.shard.groups, host.shard.offsets.count) == ({}, 0)


def test_only_an_empty_group_is_deleted_with_all_it_committed() -> None:
    host = Host()
    member_id, generation = host.stable_member()
    host.commit(7, member_id=member_id, generation=generation)
    with pytest.raises(ApiError) as refused:
        host.shard.delete_group("g", host.caller(2))
    assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
    host.leave(member_id)
    (answer,) = host.apply(host.shard.delete_group("g", host.caller(2)))
    assert isinstance(answer, DeleteGroupsResponse)
    assert [each.error_code for each in answer.results] == [0]
    assert (host.shard.groups, host.shard.offsets.count) == ({}, 0)
    assert host.restarted().groups == {}
    with pytest.raises(ApiError) as refused:
        host.shard.delete_group("g", host.caller(2))
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_are_deleted_only_for_topics_that_nobody_reads() -> None:
    host = Host()
    member_id, generation = host.stable_member()
    host.commit(7, member_id=member_id, generation=generation)

    def delete() -> int:
        partitions = [OffsetDeleteRequestPartition(partition_index=0)]
        topics = [OffsetDeleteRequestTopic(name="t", partitions=partitions)]
        request = OffsetDeleteRequest(group_id="g", topics=topics)
        (answer,) = host.apply(host.shard.delete_offsets(request, host.caller(0)))
        assert isinstance(answer, OffsetDeleteResponse)
        return answer.topics[0].partitions[0].error_code

    assert delete() == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    host.leave(member_id)
    assert delete() == 0
    assert host.fetched()[0] == -1


def test_a_deleted_topic_takes_its_offsets_with_it() -> None:
    host = Host()
    host.commit(7)
    for result in host.shard.on_topics_deleted([("t", Uuid(b"x" * 16))]):
        host.apply(result)
    assert host.fetched()[0] == 7  # another topic of the same name
    for result in host.shard.on_topics_deleted([("t", TOPIC.topic_id)]):
        host.apply(result)
    assert host.fetched()[0] == -1


def test_a_consumer_group_begins_with_its_first_member_and_is_there_after_a_restart() -> None:
    host = Host()
    joined = host.beat("m", 0)
    assert joined.error_code == 0
    assert joined.assignment is not None
    assert host.type_of() == ("consumer", "Stable")
    assert host.type_of(shard=host.restarted()) == ("consumer", "Stable")


def test_a_refused_first_heartbeat_leaves_no_group_behind() -> None:
    host = Host()
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0)
    (reply,) = host.shard.consumer_heartbeat(request, host.caller(1), host.now).replies
    assert isinstance(reply.message, ConsumerGroupHeartbeatResponse)
    assert reply.message.error_code == ErrorCode.INVALID_REQUEST
    assert host.type_of() is None


def test_a_classic_group_is_upgraded_by_its_first_consumer_and_goes_back_after_the_last() -> None:
    host = Host()
    classic_id, generation = host.stable_member()
    host.commit(7, member_id=classic_id, generation=generation)
    joined = host.beat("m", 0)
    assert joined.error_code == 0
    kind = host.type_of()
    assert kind is not None
    assert kind[0] == "consumer"
    assert host.fetched()[0] == 7
    restarted = host.type_of(shard=host.restarted())
    assert restarted is not None
    assert restarted[0] == "consumer"
    assert host.beat("m", -1).error_code == 0
    kind = host.type_of()
    assert kind is not None
    assert kind[0] == "classic"
    assert host.fetched()[0] == 7
    restarted = host.type_of(shard=host.restarted())
    assert restarted is not None
    assert restarted[0] == "classic"


def test_an_empty_group_takes_whichever_protocol_comes() -> None:
    host = Host()
    host.beat("m", 0)
    host.beat("m", -1)
    assert host.type_of() == ("consumer", "Empty")
    member_id, _ = host.stable_member()
    assert host.type_of() == ("classic", "Stable")
    host.leave(member_id)
    assert host.beat("n", 0).error_code == 0
    assert host.type_of() == ("consumer", "Stable")
    assert host.type_of(shard=host.restarted()) == ("consumer", "Stable")


def test_an_upgrade_that_cannot_be_written_leaves_nothing_behind() -> None:
    host = Host()
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    result = host.shard.consumer_heartbeat(request, host.caller(1), host.now)
    assert result.records
    assert list(host.shard.on_append_failed(result.records, host.now)) == []
    assert host.type_of() is None
    # The next one is not taken for the one that failed.
    assert host.beat("n", 0).error_code == 0
    described = host.shard.describe_consumer("g")
    assert [member.member_id for member in described.members] == ["n"]


def test_records_of_types_from_the_future_are_passed_over() -> None:
    assert decode_group_record(b"\x7f\x00whatever", b"\x00\x00") is None


def test_tombstones_of_groups_that_are_gone_change_nothing() -> None:
    host = Host()
    host.beat("m", 0)
    host.beat("m", -1)
    gone = host.shard.groups["g"]
    host.apply(host.shard.delete_group("g", host.caller(2)))
    records: list[CoordinatorRecord] = gone.tombstones()  # type: ignore[union-attr]
    for record in records:
        host.shard.replay(record.key, record.value, offset=0, producer_id=-1)
    assert host.shard.groups == {}
