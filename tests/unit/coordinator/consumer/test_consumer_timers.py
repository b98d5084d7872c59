"""Members that fall silent, or do not give up what they must, are removed in time."""

from odradek.coordinator.group.consumer.config import ConsumerGroupConfig
from odradek.coordinator.result import Result
from odradek.core.errors import ErrorCode
from odradek.protocol.generated.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.unit.coordinator.consumer.group_driver import FakeTopics, GroupDriver


def test_a_silent_member_is_removed_when_its_session_ends() -> None:
    group = GroupDriver(FakeTopics(orders=2))
    group.join("a", ["orders"])
    group.advance(1_000)
    group.join("b", ["orders"])
    assert group.group.next_deadline_ms() == 5_000 + 45_000
    group.advance(43_999)
    group.tick()
    assert group.last.records == ()
    group.advance(1)
    group.tick()
    assert list(group.state.members) == ["b"]
    assert group.group.next_deadline_ms() == 6_000 + 45_000
    assert group.heartbeat("a", 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_all_who_are_due_go_in_one_epoch() -> None:
    group = GroupDriver(FakeTopics(orders=2))
    for name in "abc":
        group.join(name, ["orders"])
    epoch = group.state.group_epoch
    group.advance(45_000)
    group.tick()
    assert group.group.is_empty
    assert group.state.group_epoch == epoch + 1
    assert group.group.next_deadline_ms() is None


def test_who_does_not_give_up_partitions_within_its_rebalance_timeout_is_removed() -> None:
    group = GroupDriver(FakeTopics(orders=2))
    group.join("a", ["orders"], rebalance_timeout_ms=10_000)
    group.join("b", ["orders"])
    group.heartbeat("a", 2)
    group.advance(9_999)
    # Heartbeats keep the session alive; they do not put this off.
    group.heartbeat("a", 2, owned={"orders": {0, 1}})
    group.tick()
    assert "a" in group.state.members
    group.advance(1)
    group.tick()
    assert list(group.state.members) == ["b"]


def test_who_has_given_them_up_is_not() -> None:
    group = GroupDriver(FakeTopics(orders=2))
    group.join("a", ["orders"], rebalance_timeout_ms=10_000)
    group.join("b", ["orders"])
    group.heartbeat("a", 2)
    group.heartbeat("a", 2, owned={"orders": {0}})
    group.advance(10_000)
    group.tick()
    assert sorted(group.state.members) == ["a", "b"]


def test_a_removal_whose_records_are_lost_is_tried_again() -> None:
    group = GroupDriver(FakeTopics(orders=2))
    group.join("a", ["orders"])
    group.advance(45_000)
    lost = group.group.tick(group.now, group.topics)
    assert lost.records
    assert group.group.next_deadline_ms() == group.now.monotonic_ms + 500
    group.advance(500)
    group.tick()
    assert group.group.is_empty


def test_a_join_whose_records_are_lost_leaves_a_deadline_that_does_nothing() -> None:
    group = GroupDriver(FakeTopics(orders=2))
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="a",
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=["orders"],
        topic_partitions=[],
    )
    lost = group.group.heartbeat(request, group.caller(), group.now, group.topics)
    assert lost.records
    assert group.group.next_deadline_ms() == group.now.monotonic_ms + 45_000
    group.advance(45_000)
    group.tick()
    assert group.last == Result()
    assert group.group.next_deadline_ms() is None
    # And the next try starts from where the log is.
    assert group.join("a", ["orders"]).member_epoch == 2


def test_after_a_failover_everybody_has_a_whole_session() -> None:
    group = GroupDriver(FakeTopics(orders=2))
    group.join("a", ["orders"], rebalance_timeout_ms=1_000)
    group.join("b", ["orders"])
    group.heartbeat("a", 2)
    group.advance(44_000)
    group.group = group.load()
    group.group.on_loaded(group.now)
    group.advance(999)
    group.tick()
    assert sorted(group.state.members) == ["a", "b"]
    group.advance(1)
    group.tick()  # "a" had partitions to give up
    assert sorted(group.state.members) == ["b"]
    group.advance(44_000)
    group.tick()
    assert group.group.is_empty


def test_the_session_timeout_of_the_group_counts() -> None:
    group = GroupDriver(FakeTopics(orders=2), ConsumerGroupConfig(session_timeout_ms=50_000))
    group.join("a", ["orders"])
    assert group.group.next_deadline_ms() == 55_000
