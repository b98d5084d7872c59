"""Members that speak the classic protocol inside a consumer group."""

from dataclasses import replace

import pytest

from odradek.coordinator.group.consumer.config import ConsumerGroupConfig, MigrationPolicy
from odradek.coordinator.group.consumer.embedded import encode_assignment
from odradek.core.errors import ErrorCode
from odradek.protocol.generated.join_group import JoinGroupRequest, JoinGroupResponse
from odradek.protocol.generated.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from tests.unit.coordinator.consumer.group_driver import (
    FakeTopics,
    GroupDriver,
    read_assignment,
    subscription,
)


def driver(policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL) -> GroupDriver:
    config = ConsumerGroupConfig(assignment_interval_ms=0, migration_policy=policy)
    group = GroupDriver(FakeTopics(orders=4), config)
    group.join("new", ["orders"])
    return group


def test_a_classic_member_is_reconciled_by_joining_again() -> None:
    group = driver()
    required = group.join_classic("", ["orders"])
    assert required.error_code == ErrorCode.MEMBER_ID_REQUIRED
    member_id = required.member_id
    assert member_id
    assert group.last.records == ()

    joined = group.join_classic(member_id, ["orders"])
    assert joined == JoinGroupResponse(
        generation_id=3,
        protocol_type="consumer",
        protocol_name="cooperative-sticky",
        member_id=member_id,
    )
    synced = group.sync_classic(member_id, 3)
    assert (synced.error_code, read_assignment(synced.assignment)) == (0, {})
    # The other one still has everything, so there is nothing to join again for.
    assert group.heartbeat_classic(member_id, 3) == ErrorCode.NONE

    group.heartbeat("new", 2)
    group.heartbeat("new", 2, owned={"orders": {0, 1}})
    assert group.heartbeat_classic(member_id, 3) == ErrorCode.REBALANCE_IN_PROGRESS
    again = group.join_classic(member_id, ["orders"], owned={})
    assert again.generation_id == 3
    synced = group.sync_classic(member_id, 3)
    assert read_assignment(synced.assignment) == {"orders": {2, 3}}
    assert group.heartbeat_classic(member_id, 3) == ErrorCode.NONE
    assert group.group.state_name == "Stable"
    assert group.load().state == group.state
    kinds = {
        each.member_id: each.member_type for each in group.group.describe(group.topics).members
    }
    assert kinds == {"new": 1, member_id: 0}


def settled_mix() -> tuple[GroupDriver, str]:
    group = driver()
    member_id = group.join_classic("", ["orders"], version=3).member_id
    group.heartbeat("new", 2)
    group.heartbeat("new", 2, owned={"orders": {0, 1}})
    group.join_classic(member_id, ["orders"])
    group.sync_classic(member_id, 3)
    return group, member_id


def test_a_cooperative_member_gives_up_in_two_rounds() -> None:
    group, member_id = settled_mix()
    group.join("third", ["orders"])
    group.heartbeat("new", 3, owned={"orders": {0, 1}})
    assert group.heartbeat_classic(member_id, 3) == ErrorCode.REBALANCE_IN_PROGRESS
    first = group.join_classic(member_id, ["orders"], owned={"orders": {2, 3}})
    assert first.generation_id == 3  # it has to give up a partition in its epoch
    kept = read_assignment(group.sync_classic(member_id, 3).assignment)
    assert kept == {"orders": {2}}
    assert group.heartbeat_classic(member_id, 3) == ErrorCode.REBALANCE_IN_PROGRESS
    second = group.join_classic(member_id, ["orders"], owned=kept)
    assert second.generation_id == 4
    assert read_assignment(group.sync_classic(member_id, 4).assignment) == {"orders": {2}}


def test_an_eager_member_has_given_up_everything_when_it_joins_again() -> None:
    group, member_id = settled_mix()
    group.join("third", ["orders"])
    assert group.heartbeat_classic(member_id, 3) == ErrorCode.REBALANCE_IN_PROGRESS
    assert group.sync_classic(member_id, 3).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    joined = group.join_classic(member_id, ["orders"])
    assert joined.generation_id == 4
    assert read_assignment(group.sync_classic(member_id, 4).assignment) == {"orders": {2}}


def test_classic_heartbeats_alone_keep_the_group_up_to_date() -> None:
    """A group that may not go back to the classic protocol can be left with classic members."""
    group, member_id = settled_mix()
    group.group.config = replace(group.config, migration_policy=MigrationPolicy.UPGRADE)
    group.heartbeat("new", -1)
    assert group.heartbeat_classic(member_id, 3) == ErrorCode.REBALANCE_IN_PROGRESS
    joined = group.join_classic(member_id, ["orders"], owned={"orders": {2, 3}})
    synced = group.sync_classic(member_id, joined.generation_id)
    assert read_assignment(synced.assignment) == {"orders": {0, 1, 2, 3}}
    group.topics.grow("orders", 5)
    again = group.heartbeat_classic(member_id, joined.generation_id)
    assert again == ErrorCode.REBALANCE_IN_PROGRESS
    assert group.load().state == group.state


def test_a_removed_member_that_still_owns_partitions_is_not_taken_for_a_new_one() -> None:
    group, member_id = settled_mix()
    group.advance(30_000)
    group.heartbeat("new", 3)
    group.tick()
    refused = group.join_classic(member_id, ["orders"], owned={"orders": {2, 3}})
    assert refused.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.join_classic(member_id, ["orders"]).error_code == 0


@pytest.mark.parametrize(("version", "answered"), [(0, 0), (1, 1), (3, 3), (7, 3)])
def test_assignments_come_in_the_version_of_the_subscription(version: int, answered: int) -> None:
    embedded = subscription(["orders"], version=min(version, 3))
    embedded = version.to_bytes(2, "big") + embedded[2:]
    data = encode_assignment({}, FakeTopics(), embedded)
    assert data[:2] == answered.to_bytes(2, "big")
    assert encode_assignment({}, FakeTopics(), b"")[:2] == b"\x00\x00"


@pytest.mark.parametrize(
    ("member_id", "generation_id", "code"),
    [
        ("nobody", 3, ErrorCode.UNKNOWN_MEMBER_ID),
        ("new", 3, ErrorCode.UNKNOWN_MEMBER_ID),
        ("classic", 2, ErrorCode.ILLEGAL_GENERATION),
        ("classic", 4, ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_sync_and_heartbeat_refused(member_id: str, generation_id: int, code: ErrorCode) -> None:
    group, classic_id = settled_mix()
    asking = classic_id if member_id == "classic" else member_id
    assert group.heartbeat_classic(asking, generation_id) == code
    assert group.sync_classic(asking, generation_id).error_code == code


def test_joins_refused() -> None:
    group, member_id = settled_mix()

    def code(**kwargs: object) -> int:
        return group.join_classic(**{"member_id": "x", "topics": [], **kwargs}).error_code  # type: ignore[arg-type]

    assert code(protocol="range") == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert code(session_timeout_ms=10) == ErrorCode.INVALID_SESSION_TIMEOUT
    assert code(instance_id="i9") == ErrorCode.UNKNOWN_MEMBER_ID
    request = JoinGroupRequest(group_id="g", session_timeout_ms=30_000, protocol_type="connect")
    result = group.group.join_classic(request, group.caller(9), group.now, group.topics)
    (reply,) = result.replies
    assert isinstance(reply.message, JoinGroupResponse)
    assert reply.message.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    group.group.config = replace(group.config, migration_policy=MigrationPolicy.DISABLED)
    assert code() == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    group.group.config = replace(group.config, group_size_max=2)
    assert code() == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert code(member_id=member_id, topics=["orders"], owned={"orders": {2, 3}}) == 0


def test_classic_members_have_their_own_timeouts() -> None:
    group, member_id = settled_mix()
    group.advance(29_999)
    group.heartbeat("new", 3)
    group.tick()
    assert member_id in group.state.members
    group.advance(1)
    group.tick()
    assert member_id not in group.state.members


def test_a_classic_member_that_does_not_join_again_is_removed() -> None:
    group, member_id = settled_mix()
    group.join("third", ["orders"])
    for _ in range(3):
        assert group.heartbeat_classic(member_id, 3) == ErrorCode.REBALANCE_IN_PROGRESS
        group.advance(20_000)
        group.heartbeat("new", 3)
        group.heartbeat("third", 4)
        group.tick()
    assert sorted(group.state.members) == ["new", "third"]


def test_a_classic_member_that_does_not_sync_is_removed() -> None:
    group = driver()
    member_id = group.join_classic("", ["orders"], version=3).member_id
    for _ in range(3):
        group.advance(20_000)
        group.heartbeat("new", 2)
        group.heartbeat_classic(member_id, 3)
        group.tick()
    assert sorted(group.state.members) == ["new"]


def test_a_static_classic_member_is_replaced_by_a_consumer_and_keeps_its_partitions() -> None:
    group = driver()
    member_id = group.join_classic("", ["orders"], instance_id="i1").member_id
    group.heartbeat("new", 2)
    group.heartbeat("new", 2, owned={"orders": {0, 1}})
    group.join_classic(member_id, ["orders"], instance_id="i1")
    back = group.join("upgraded", ["orders"], instance_id="i1")
    assert (back.error_code, group.told(back)) == (0, {"orders": {2, 3}})
    assert group.state.classic_members == 0
    assert group.state.group_epoch == 3


def test_leaving_answers_for_each() -> None:
    group, member_id = settled_mix()
    group.join("s", ["orders"], instance_id="i1")
    response = group.leave_classic(
        MemberIdentity(member_id="nobody"),
        MemberIdentity(member_id=member_id),
        MemberIdentity(member_id="", group_instance_id="i1"),
        MemberIdentity(member_id="wrong", group_instance_id="i1"),
    )
    assert [each.error_code for each in response.members] == [
        ErrorCode.UNKNOWN_MEMBER_ID,
        0,
        0,
        ErrorCode.FENCED_INSTANCE_ID,
    ]
    assert sorted(group.state.members) == ["new"]


def test_leaving_before_version_3_has_one_answer() -> None:
    group, member_id = settled_mix()
    for asking, code in (("nobody", ErrorCode.UNKNOWN_MEMBER_ID), (member_id, ErrorCode.NONE)):
        request = LeaveGroupRequest(group_id="g", member_id=asking)
        group.apply(group.group.leave_classic(request, group.caller(2), group.now, group.topics))
        assert group.only_reply() == LeaveGroupResponse(error_code=code)
