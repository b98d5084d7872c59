"""Online migration: classic groups become consumer groups, and back."""

from random import Random

import pytest

from odradek.coordinator.group.classic.classic_group import ClassicGroup
from odradek.coordinator.group.classic.config import GroupConfig
from odradek.coordinator.group.classic.member import Member as ClassicMember
from odradek.coordinator.group.classic.state import GroupState as ClassicState
from odradek.coordinator.group.consumer.config import ConsumerGroupConfig, MigrationPolicy
from odradek.coordinator.group.consumer.consumer_group import ConsumerGroup
from odradek.core.errors import ApiError, ErrorCode
from odradek.protocol.generated.join_group import JoinGroupResponse
from odradek.protocol.generated.offset_records import GroupMetadataKey, GroupMetadataValue
from tests.unit.coordinator.consumer.group_driver import (
    GROUP_ID,
    FakeTopics,
    GroupDriver,
    Owned,
    assignment,
    read_assignment,
    subscription,
    through_bytes,
)


def classic_group(
    driver: GroupDriver, members: dict[str, Owned], *, user_data: bytes = b"", topic: str = "orders"
) -> ClassicGroup:
    group = ClassicGroup.from_members(
        GROUP_ID,
        [
            ClassicMember(
                member_id,
                None,
                "client",
                "/127.0.0.1",
                60_000,
                30_000,
                "consumer",
                (("cooperative-sticky", subscription([topic], owned)),),
                assignment(owned)[:-4] + len(user_data).to_bytes(4, "big") + user_data
                if user_data
                else assignment(owned),
            )
            for member_id, owned in members.items()
        ],
        7,
        GroupConfig(),
        Random(1),
        driver.now,
    )
    group.metadata_record()
    return group


def upgrade(driver: GroupDriver, classic: ClassicGroup) -> ConsumerGroup:
    group, records = ConsumerGroup.from_classic(
        classic, driver.config, Random(3), driver.now, driver.topics
    )
    driver.group = group
    driver.log = [through_bytes(record) for record in records]
    return group


def test_a_classic_group_goes_on_as_a_consumer_group() -> None:
    driver = GroupDriver(FakeTopics(orders=4))
    classic = classic_group(driver, {"a": {"orders": {0, 1}}, "b": {"orders": {2, 3}}})
    group = upgrade(driver, classic)
    group.check_invariants()
    assert driver.load().state == group.state
    assert (group.state.group_epoch, group.state.assignment_epoch, group.state_name) == (
        7,
        7,
        "Stable",
    )
    assert group.state.classic_members == 2

    joined = driver.join("new", ["orders"])
    assert (joined.member_epoch, driver.told(joined)) == (8, {})
    assert driver.heartbeat_classic("a", 7) == ErrorCode.REBALANCE_IN_PROGRESS
    again = driver.join_classic("a", ["orders"], owned={"orders": {0, 1}})
    assert again.error_code == 0


def test_what_a_cooperative_member_has_yet_to_give_up_is_not_free() -> None:
    """It was assigned one partition, and had two when it joined: it may not have synced yet."""
    driver = GroupDriver(FakeTopics(orders=2))
    classic = classic_group(driver, {"a": {"orders": {0, 1}}})
    classic.members["a"].assignment = assignment({"orders": {0}})
    group = upgrade(driver, classic)
    assert {each: set(epochs) for each, epochs in group.state.members["a"].assigned.items()} == {
        driver.topics.id_of("orders"): {0, 1}
    }
    joined = driver.join("new", ["orders"])
    assert driver.told(joined) == {}
    driver.join_classic("a", ["orders"], owned={"orders": {0}})
    assert driver.told(driver.heartbeat("new", 8)) == {"orders": {1}}


def test_members_of_an_upgraded_group_have_sessions() -> None:
    driver = GroupDriver(FakeTopics(orders=4))
    upgrade(driver, classic_group(driver, {"a": {"orders": {0}}}))
    driver.advance(30_000)
    driver.tick()
    assert driver.group.is_empty


@pytest.mark.parametrize(
    ("members", "fields", "policy"),
    [
        ({"a": {"orders": {0}}}, {}, MigrationPolicy.DISABLED),
        ({"a": {"orders": {0}}}, {}, MigrationPolicy.DOWNGRADE),
        ({"a": {"orders": {0}}}, {"user_data": b"mine"}, MigrationPolicy.UPGRADE),
        ({"a": {"orders": {0}}, "b": {"orders": {0}}}, {}, MigrationPolicy.UPGRADE),
        (
            {"a": {}, "b": {}, "c": {}},
            {},
            MigrationPolicy.BIDIRECTIONAL,
        ),
    ],
)
def test_not_upgradable(
    members: dict[str, Owned], fields: dict[str, bytes], policy: MigrationPolicy
) -> None:
    config = ConsumerGroupConfig(migration_policy=policy, group_size_max=2)
    driver = GroupDriver(FakeTopics(orders=4), config)
    classic = classic_group(driver, members, **fields)  # type: ignore[arg-type]
    with pytest.raises(ApiError) as refusal:
        upgrade(driver, classic)
    assert refusal.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_malformed_subscriptions_are_not_upgradable() -> None:
    driver = GroupDriver(FakeTopics(orders=4))
    classic = classic_group(driver, {"a": {"orders": {0}}})
    classic.members["a"].assignment = b"\x00"
    with pytest.raises(ApiError):
        upgrade(driver, classic)


def mixed() -> GroupDriver:
    driver = GroupDriver(FakeTopics(orders=4))
    upgrade(driver, classic_group(driver, {"a": {"orders": {0, 1}}, "b": {"orders": {2, 3}}}))
    driver.join("new", ["orders"])
    return driver


def test_the_last_consumer_leaves_and_a_classic_group_remains() -> None:
    driver = mixed()
    driver.heartbeat("new", -1)
    assert driver.group.is_deleted
    assert driver.group.state_name == "Dead"
    assert not driver.group.state.members
    successor = driver.successor
    assert successor is not None
    successor.check_invariants()
    assert successor.state is ClassicState.PREPARING_REBALANCE
    assert (successor.generation_id, sorted(successor.members)) == (8, ["a", "b"])
    record = driver.last.records[-1]
    assert record.key == GroupMetadataKey(group=GROUP_ID)
    assert isinstance(record.value, GroupMetadataValue)
    held = {each.member_id: read_assignment(each.assignment) for each in record.value.members}
    # One of them was to give up a partition and has not heard of it: it still has all four.
    assert held == {"a": {"orders": {0, 1}}, "b": {"orders": {2, 3}}}


def test_what_is_yet_to_be_given_up_goes_along_into_the_classic_group() -> None:
    driver = mixed()
    for member_id, owned in (("a", {0, 1}), ("b", {2, 3})):
        driver.join_classic(member_id, ["orders"], owned={"orders": owned})
    assert any(each.pending_revocation for each in driver.state.members.values())
    driver.heartbeat("new", -1)
    value = driver.last.records[-1].value
    assert isinstance(value, GroupMetadataValue)
    held = {each.member_id: read_assignment(each.assignment) for each in value.members}
    assert held == {"a": {"orders": {0, 1}}, "b": {"orders": {2, 3}}}


def test_a_consumer_whose_session_ends_brings_the_classic_group_back_too() -> None:
    driver = mixed()
    driver.advance(29_000)
    for member_id in ("a", "b"):
        driver.heartbeat_classic(member_id, 7)
    driver.advance(16_000)
    driver.tick()
    assert driver.group.is_deleted
    assert driver.successor is not None
    assert sorted(driver.successor.members) == ["a", "b"]


@pytest.mark.parametrize("policy", [MigrationPolicy.UPGRADE, MigrationPolicy.DISABLED])
def test_without_the_policy_the_group_stays_what_it_is(policy: MigrationPolicy) -> None:
    driver = mixed()
    driver.group.config = ConsumerGroupConfig(migration_policy=policy, assignment_interval_ms=0)
    driver.heartbeat("new", -1)
    assert not driver.group.is_deleted
    assert driver.successor is None
    assert sorted(driver.group.state.members) == ["a", "b"]


def test_the_last_member_of_all_leaves_an_empty_consumer_group() -> None:
    driver = GroupDriver(FakeTopics(orders=4))
    driver.join("a", ["orders"])
    driver.heartbeat("a", -1)
    assert not driver.group.is_deleted
    assert driver.group.state_name == "Empty"


def test_a_classic_member_that_takes_the_last_consumers_place_brings_no_rebalance() -> None:
    driver = GroupDriver(FakeTopics(orders=4))
    driver.join("new", ["orders"], instance_id="i1")
    joined = driver.join_classic("", ["orders"], instance_id="i1")
    assert isinstance(joined, JoinGroupResponse)
    assert (joined.error_code, joined.generation_id) == (0, 2)
    successor = driver.successor
    assert successor is not None
    successor.check_invariants()
    assert successor.state is ClassicState.STABLE
    assert successor.generation_id == 2
    (member,) = successor.members.values()
    assert (member.member_id, member.instance_id) == (joined.member_id, "i1")
    assert read_assignment(member.assignment) == {"orders": {0, 1, 2, 3}}
    assert driver.group.is_deleted


def test_deleting_a_group_removes_every_record() -> None:
    driver = GroupDriver(FakeTopics(orders=4))
    driver.join("a", regex="o.*")
    with pytest.raises(ApiError) as refusal:
        driver.group.check_delete()
    assert refusal.value.code is ErrorCode.NON_EMPTY_GROUP
    driver.heartbeat("a", -1)
    driver.group.check_delete()
    live = {record.key_bytes() for record in driver.log if record.value is not None}
    dead = {record.key_bytes() for record in driver.log if record.value is None}
    tombstones = {record.key_bytes() for record in driver.group.tombstones()}
    assert live <= dead | tombstones
    for record in driver.group.tombstones():
        driver.group.replay(record)
    assert driver.group.is_deleted
