"""Subscriptions by regular expression: RE2, whole names, resolved again when topics come."""

from odradek.core.errors import ErrorCode
from odradek.protocol.generated import consumer_group_records as wire
from tests.unit.coordinator.consumer.group_driver import FakeTopics, GroupDriver


def test_the_first_answer_has_the_topics_whose_whole_name_matches() -> None:
    group = GroupDriver(FakeTopics(orders=1, orders_eu=1, my_orders=1))
    joined = group.join("a", regex="orders.*")
    assert (joined.member_epoch, group.told(joined)) == (2, {"orders": {0}, "orders_eu": {0}})
    assert (
        wire.ConsumerGroupRegularExpressionKey(group_id="g", regular_expression="orders.*"),
        wire.ConsumerGroupRegularExpressionValue(
            topics=["orders", "orders_eu"],
            version=group.topics.version,
            timestamp=group.now.wall_ms,
        ),
    ) in [(record.key, record.value) for record in group.log]
    assert group.group.is_subscribed_to("orders_eu")
    assert not group.group.is_subscribed_to("my_orders")
    assert group.load().state == group.state


def test_names_and_regex_may_be_mixed() -> None:
    group = GroupDriver(FakeTopics(orders=1, payments=1, other=1))
    joined = group.join("a", ["payments"], regex="ord.*")
    assert group.told(joined) == {"orders": {0}, "payments": {0}}


def test_a_new_topic_is_found_not_before_ten_seconds_have_passed() -> None:
    group = GroupDriver(FakeTopics(orders_1=1))
    group.join("a", regex="orders_.")
    group.topics.create("orders_2", 1)
    group.advance(10_000)
    assert group.heartbeat("a", 2).member_epoch == 2
    group.advance(1)
    found = group.heartbeat("a", 2)
    assert (found.member_epoch, group.told(found)) == (3, {"orders_1": {0}, "orders_2": {0}})


def test_expressions_are_resolved_again_after_the_interval_even_if_no_topic_came() -> None:
    group = GroupDriver(FakeTopics(orders_1=1, orders_2=1))
    group.join("a", regex="orders_.")
    group.topics.delete("orders_2")
    told = group.heartbeat("a", 2)
    assert group.told(told) == {"orders_1": {0}}
    group.heartbeat("a", 2, owned={"orders_1": {0}})
    assert group.state.subscriptions.resolved["orders_."].topics == {"orders_1", "orders_2"}
    group.advance(600_001)
    group.heartbeat("a", 3)
    assert group.state.subscriptions.resolved["orders_."].topics == {"orders_1"}


def test_the_last_member_with_an_expression_takes_it_along() -> None:
    group = GroupDriver(FakeTopics(orders=2))
    group.join("a", regex="o.*")
    group.join("b", regex="o.*")
    group.heartbeat("a", -1)
    assert list(group.state.subscriptions.resolved) == ["o.*"]
    group.heartbeat("b", 3, regex="", topics=["orders"])
    assert not group.state.subscriptions.resolved
    group.heartbeat("b", group.state.group_epoch, regex="ord.*")
    assert list(group.state.subscriptions.resolved) == ["ord.*"]
    group.heartbeat("b", -1)
    assert not group.state.subscriptions.resolved
    assert group.load().state == group.state


def test_an_expression_that_matches_nothing_is_a_member_without_partitions() -> None:
    group = GroupDriver(FakeTopics(orders=2))
    joined = group.join("a", regex="nothing")
    assert (joined.error_code, group.told(joined)) == (0, {})
    assert group.group.state_name == "Stable"


def test_a_refused_expression_leaves_the_member_as_it_was() -> None:
    group = GroupDriver(FakeTopics(orders=2))
    group.join("a", ["orders"])
    refused = group.heartbeat("a", 2, regex="[")
    assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "missing" in (refused.error_message or "")
    assert group.heartbeat("a", 2).error_code == 0


def test_many_expressions_are_resolved_again_a_few_at_a_time() -> None:
    group = GroupDriver(FakeTopics(orders=1))
    for number in range(20):
        group.join(f"m{number:02}", regex=f"orders(_{number})?")
    group.topics.create("orders_3", 1)
    group.advance(10_001)
    refreshed = []
    for _ in range(3):
        group.heartbeat("m00", group.state.members["m00"].member_epoch, owned={})
        keys = [record.key for record in group.last.records]
        refreshed.append(
            sum(isinstance(key, wire.ConsumerGroupRegularExpressionKey) for key in keys)
        )
    assert refreshed == [16, 4, 0]
    assert group.group.is_subscribed_to("orders_3")
