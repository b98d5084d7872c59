"""Static members: a restart under the same instance id moves nothing."""

from odradek.core.errors import ErrorCode
from tests.unit.coordinator.consumer.group_driver import FakeTopics, GroupDriver


def two_static() -> GroupDriver:
    group = GroupDriver(FakeTopics(orders=4))
    members = {"m1": group.told(group.join("m1", ["orders"], instance_id="i1")) or {}}
    members["m2"] = group.told(group.join("m2", ["orders"], instance_id="i2")) or {}
    group.settle(members)
    return group


def test_a_static_member_comes_back_to_its_partitions_without_a_rebalance() -> None:
    group = two_static()
    held = group.state.members["m1"].assigned
    left = group.heartbeat("m1", -2, instance_id="i1")
    assert (left.member_id, left.member_epoch, left.error_code) == ("m1", -2, 0)
    away = group.state.members["m1"]
    assert away.member_epoch == -2
    assert {each: set(epochs) for each, epochs in away.assigned.items()} == {
        each: set(epochs) for each, epochs in held.items()
    }
    assert {epoch for epochs in away.assigned.values() for epoch in epochs.values()} == {0}

    back = group.join("m3", ["orders"], instance_id="i1")
    assert (back.member_epoch, group.told(back)) == (3, {"orders": {0, 1}})
    assert sorted(group.state.members) == ["m2", "m3"]
    orders = group.topics.id_of("orders")
    assert group.state.target == {"m2": {orders: {2, 3}}, "m3": {orders: {0, 1}}}
    assert group.state.group_epoch == 3
    assert group.group.state_name == "Stable"
    assert group.load().state == group.state
    assert group.heartbeat("m1", 3, instance_id="i1").error_code == ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_may_come_back_with_another_subscription() -> None:
    group = two_static()
    group.topics.create("payments", 2)
    group.heartbeat("m1", -2, instance_id="i1")
    back = group.join("m3", ["payments"], instance_id="i1")
    assert group.told(back) == {"payments": {0, 1}}
    assert group.load().state == group.state
    response = group.heartbeat("m2", 3)
    assert (response.member_epoch, group.told(response)) == (4, {"orders": {0, 1, 2, 3}})


def test_while_it_is_away_nobody_gets_its_partitions_until_its_session_ends() -> None:
    group = two_static()
    group.heartbeat("m1", -2, instance_id="i1")
    group.advance(44_000)
    assert group.heartbeat("m2", 3, instance_id="i2").member_epoch == 3
    group.tick()
    assert "m1" in group.state.members
    group.advance(1_000)
    group.tick()
    assert sorted(group.state.members) == ["m2"]
    response = group.heartbeat("m2", 3, instance_id="i2")
    assert group.told(response) == {"orders": {0, 1, 2, 3}}


def test_a_static_member_that_leaves_for_good_gives_its_partitions_back() -> None:
    group = two_static()
    assert group.heartbeat("m1", -1, instance_id="i1").error_code == 0
    assert sorted(group.state.members) == ["m2"]
    assert group.state.static_members == {"i2": "m2"}


def test_a_static_member_may_come_back_under_the_member_id_it_had() -> None:
    """As a Java consumer does that unsubscribes and subscribes again."""
    group = two_static()
    group.heartbeat("m1", -2, instance_id="i1")
    back = group.join("m1", ["orders"], instance_id="i1")
    assert (back.member_epoch, group.told(back)) == (3, {"orders": {0, 1}})
    assert group.load().state == group.state
    group.advance(44_999)
    group.tick()
    assert sorted(group.state.members) == ["m1", "m2"]
    group.advance(1)
    group.tick()
    assert group.group.is_empty
