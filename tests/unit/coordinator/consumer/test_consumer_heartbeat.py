"""What members are told, and what is written, from the first join to a balanced group."""

import pytest

from odradek.coordinator.group.consumer.config import ConsumerGroupConfig
from odradek.core.errors import ErrorCode
from odradek.protocol.generated import consumer_group_records as wire
from odradek.protocol.generated.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.unit.coordinator.consumer.group_driver import FakeTopics, GroupDriver


def driver(**topics: int) -> GroupDriver:
    return GroupDriver(FakeTopics(**(topics or {"orders": 4})))


def test_first_member_joins_with_all_partitions_and_five_records() -> None:
    group = driver()
    response = group.join("a", ["orders"])
    orders = group.topics.id_of("orders")
    assert response == ConsumerGroupHeartbeatResponse(
        member_id="a",
        member_epoch=2,
        heartbeat_interval_ms=5_000,
        assignment=Assignment(
            topic_partitions=[TopicPartitions(topic_id=orders, partitions=[0, 1, 2, 3])]
        ),
    )
    assert [(record.key, record.value) for record in group.log] == [
        (
            wire.ConsumerGroupMemberMetadataKey(group_id="g", member_id="a"),
            wire.ConsumerGroupMemberMetadataValue(
                instance_id=None,
                rack_id=None,
                server_assignor=None,
                classic_member_metadata=None,
                client_id="client",
                client_host="/127.0.0.1",
                subscribed_topic_names=["orders"],
                subscribed_topic_regex="",
                rebalance_timeout_ms=60_000,
            ),
        ),
        (
            wire.ConsumerGroupMetadataKey(group_id="g"),
            wire.ConsumerGroupMetadataValue(epoch=2, metadata_hash=group.state.metadata_hash),
        ),
        (
            wire.ConsumerGroupTargetAssignmentMemberKey(group_id="g", member_id="a"),
            wire.ConsumerGroupTargetAssignmentMemberValue(
                topic_partitions=[wire.TopicPartition(topic_id=orders, partitions=[0, 1, 2, 3])]
            ),
        ),
        (
            wire.ConsumerGroupTargetAssignmentMetadataKey(group_id="g"),
            wire.ConsumerGroupTargetAssignmentMetadataValue(
                assignment_epoch=2, assignment_timestamp=group.now.wall_ms
            ),
        ),
        (
            wire.ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="a"),
            wire.ConsumerGroupCurrentMemberAssignmentValue(
                member_epoch=2,
                previous_member_epoch=0,
                assigned_partitions=[
                    wire.TopicPartitions(
                        topic_id=orders, partitions=[0, 1, 2, 3], assignment_epochs=[2, 2, 2, 2]
                    )
                ],
            ),
        ),
    ]
    assert group.group.state_name == "Stable"


def test_partitions_change_hands_only_after_they_were_given_up() -> None:
    group = driver()
    group.join("a", ["orders"])
    joined = group.join("b", ["orders"])
    assert (joined.member_epoch, group.told(joined)) == (3, {})
    assert group.group.state_name == "Reconciling"

    asked = group.heartbeat("a", 2)
    assert (asked.member_epoch, group.told(asked)) == (2, {"orders": {0, 1}})
    waiting = group.heartbeat("b", 3)
    assert (waiting.member_epoch, group.told(waiting)) == (3, None)
    # Silence is not consent: without a list of what it owns nothing is given up.
    silent = group.heartbeat("a", 2)
    assert (silent.member_epoch, group.told(silent)) == (2, None)
    still = group.heartbeat("a", 2, owned={"orders": {0, 1, 3}})
    assert still.member_epoch == 2

    revoked = group.heartbeat("a", 2, owned={"orders": {0, 1}})
    assert (revoked.member_epoch, group.told(revoked)) == (3, None)
    given = group.heartbeat("b", 3)
    assert (given.member_epoch, group.told(given)) == (3, {"orders": {2, 3}})
    assert group.group.state_name == "Stable"
    assert group.load().state == group.state


def test_a_heartbeat_without_news_writes_nothing_and_tells_no_assignment() -> None:
    group = driver()
    group.join("a", ["orders"])
    response = group.heartbeat("a", 2)
    assert group.last.records == ()
    assert response == ConsumerGroupHeartbeatResponse(
        member_id="a", member_epoch=2, heartbeat_interval_ms=5_000
    )


def test_a_full_request_is_answered_with_the_assignment() -> None:
    group = driver()
    group.join("a", ["orders"])
    full = group.heartbeat(
        "a", 2, topics=["orders"], owned={"orders": {0}}, rebalance_timeout_ms=60_000
    )
    assert group.told(full) == {"orders": {0, 1, 2, 3}}
    assert group.last.records == ()


def test_version_0_lets_the_coordinator_make_the_member_id() -> None:
    group = driver()
    response = group.heartbeat(
        "", 0, topics=["orders"], owned={}, rebalance_timeout_ms=60_000, version=0
    )
    assert response.error_code == 0
    assert list(group.state.members) == [response.member_id]
    assert len(response.member_id or "") == 22


def test_leaving_frees_the_partitions_and_bumps_the_group() -> None:
    group = driver()
    members = {"a": group.told(group.join("a", ["orders"])) or {}}
    members["b"] = group.told(group.join("b", ["orders"])) or {}
    group.settle(members)
    response = group.heartbeat("a", -1)
    assert response == ConsumerGroupHeartbeatResponse(member_id="a", member_epoch=-1)
    assert group.group.state_name == "Assigning"
    assert group.state.group_epoch == 4
    settled = group.settle({"b": members["b"]})
    assert settled == {"b": {"orders": {0, 1, 2, 3}}}
    group.heartbeat("b", -1)
    assert group.group.state_name == "Empty"
    assert group.load().state == group.state


def test_what_was_just_given_up_may_be_given_back() -> None:
    group = driver(orders=2)
    group.join("a", ["orders"])
    group.join("b", ["orders"])
    assert group.told(group.heartbeat("a", 2)) == {"orders": {0}}
    group.heartbeat("b", -1)
    back = group.heartbeat("a", 2, owned={"orders": {0}})
    assert (back.member_epoch, group.told(back)) == (4, {"orders": {0, 1}})
    orders = group.topics.id_of("orders")
    assert group.state.members["a"].assigned == {orders: {0: 2, 1: 4}}


def test_targets_that_stay_are_not_written_again() -> None:
    group = driver(orders=2)
    group.join("a", ["orders"])
    group.join("b", ["orders"])
    group.join("c", ["orders"])
    written = [
        record.key.member_id
        for record in group.last.records
        if isinstance(record.key, wire.ConsumerGroupTargetAssignmentMemberKey)
    ]
    assert written == ["c"]


def test_a_lost_answer_is_made_good_by_the_previous_epoch() -> None:
    group = driver()
    group.join("a", ["orders"])
    group.topics.grow("orders", 6)
    assert group.heartbeat("a", 2).member_epoch == 3  # this answer is lost
    again = group.heartbeat(
        "a", 2, topics=["orders"], owned={"orders": {0, 1, 2, 3}}, rebalance_timeout_ms=60_000
    )
    assert (again.error_code, again.member_epoch) == (0, 3)
    assert group.told(again) == {"orders": {0, 1, 2, 3, 4, 5}}
    foreign = group.heartbeat("a", 2, owned={"orders": {7}})
    assert foreign.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    silent = group.heartbeat("a", 2)
    assert silent.error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_epoch_0_of_a_known_member_gives_it_what_it_has() -> None:
    group = driver()
    group.join("a", ["orders"])
    again = group.join("a", ["orders"])
    assert (again.member_epoch, group.told(again)) == (2, {"orders": {0, 1, 2, 3}})
    assert group.last.records == ()


def test_a_change_of_subscription_takes_effect_at_once() -> None:
    group = driver(orders=2, payments=2)
    group.join("a", ["orders"])
    both = group.heartbeat("a", 2, topics=["orders", "payments"])
    assert group.told(both) == {"orders": {0, 1}, "payments": {0, 1}}
    fewer = group.heartbeat("a", 3, topics=["payments"])
    assert (fewer.member_epoch, group.told(fewer)) == (3, {"payments": {0, 1}})
    done = group.heartbeat("a", 3, owned={"payments": {0, 1}})
    assert (done.member_epoch, group.told(done)) == (4, None)


def test_topics_that_change_are_noticed_by_the_next_heartbeat() -> None:
    group = driver(orders=2)
    group.join("a", ["orders", "later"])
    group.topics.grow("orders", 3)
    grown = group.heartbeat("a", 2)
    assert (grown.member_epoch, group.told(grown)) == (3, {"orders": {0, 1, 2}})
    group.topics.create("later", 1)
    created = group.heartbeat("a", 3)
    assert group.told(created) == {"orders": {0, 1, 2}, "later": {0}}
    group.topics.delete("orders")
    deleted = group.heartbeat("a", 4)
    assert (deleted.member_epoch, group.told(deleted)) == (4, {"later": {0}})
    done = group.heartbeat("a", 4, owned={"later": {0}})
    assert done.member_epoch == 5
    group.topics.create("stranger", 1)
    group.heartbeat("a", 5)
    assert group.last.records == ()


def test_a_change_of_topics_whose_records_are_lost_is_noticed_again() -> None:
    group = driver(orders=2)
    group.join("a", ["orders"])
    group.topics.grow("orders", 3)
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="a", member_epoch=2)
    lost = group.group.heartbeat(request, group.caller(), group.now, group.topics)
    assert lost.records
    grown = group.heartbeat("a", 2)
    assert (grown.member_epoch, group.told(grown)) == (3, {"orders": {0, 1, 2}})


def test_a_loaded_group_compares_topics_once_and_keeps_its_epoch() -> None:
    group = driver()
    group.join("a", ["orders"])
    group.group = group.load()
    response = group.heartbeat("a", 2)
    assert (response.member_epoch, group.last.records) == (2, ())


def test_the_assignment_interval_puts_off_the_next_target() -> None:
    group = GroupDriver(FakeTopics(orders=2), ConsumerGroupConfig())
    group.join("a", ["orders"])
    group.advance(999)
    early = group.join("b", ["orders"])
    assert (early.member_epoch, group.told(early)) == (2, {})
    assert group.group.state_name == "Assigning"
    group.advance(1)
    assert group.heartbeat("a", 2).member_epoch == 2
    assert group.state.assignment_epoch == 3


def test_most_members_choose_the_assignor() -> None:
    group = driver(orders=2, payments=2)
    group.join("b", ["orders", "payments"], assignor="range")
    assert group.group.describe(group.topics).assignor_name == "range"
    group.join("a", ["orders", "payments"])
    orders, payments = group.topics.id_of("orders"), group.topics.id_of("payments")
    assert group.state.target == {
        "a": {orders: frozenset({0}), payments: frozenset({0})},
        "b": {orders: frozenset({1}), payments: frozenset({1})},
    }


def test_describe_shows_what_is_held_and_what_is_wanted() -> None:
    group = driver()
    group.join("a", ["orders"])
    group.join("b", ["orders"])
    group.heartbeat("a", 2)
    described = group.group.describe(group.topics)
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == (
        "Reconciling",
        3,
        3,
    )
    shown = {
        member.member_id: (
            [each.partitions for each in member.assignment.topic_partitions],
            [each.partitions for each in member.target_assignment.topic_partitions],
            member.member_type,
        )
        for member in described.members
    }
    # The two that "a" has to give up are still its own.
    assert shown == {"a": ([[0, 1, 2, 3]], [[0, 1]], 1), "b": ([], [[2, 3]], 1)}
    assert described.assignor_name == "uniform"
    listed = group.group.listed()
    assert (listed.group_type, listed.group_state, listed.protocol_type) == (
        "consumer",
        "Reconciling",
        "consumer",
    )


def test_group_configs_reach_the_next_answer() -> None:
    group = driver()
    group.group.config = group.config.with_overrides(
        {"consumer.heartbeat.interval.ms": 7_000, "share.session.timeout.ms": 1}
    )
    assert group.join("a", ["orders"]).heartbeat_interval_ms == 7_000


@pytest.mark.parametrize("regex", ["", None])
def test_an_empty_regex_is_no_regex(regex: str | None) -> None:
    """Librdkafka sends an empty string together with names."""
    group = driver()
    joined = group.join("a", ["orders"], regex=regex)
    assert group.told(joined) == {"orders": {0, 1, 2, 3}}
    assert not group.state.subscriptions.regexes


def test_requests_are_plain_values_to_the_group() -> None:
    group = driver()
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="a",
        rebalance_timeout_ms=1,
        subscribed_topic_names=["orders", "orders"],
        topic_partitions=[],
    )
    group.send(request)
    assert group.state.members["a"].subscribed_topic_names == {"orders"}
