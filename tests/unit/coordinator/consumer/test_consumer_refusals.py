"""Every way to be refused, by its code; a refusal writes nothing."""

from typing import Any

import pytest

from odradek.coordinator.group.consumer.config import ConsumerGroupConfig
from odradek.core.errors import ErrorCode
from odradek.core.ids import ZERO_UUID
from odradek.protocol.generated.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.unit.coordinator.consumer.group_driver import FakeTopics, GroupDriver

JOIN: dict[str, Any] = {
    "group_id": "g",
    "member_id": "new",
    "member_epoch": 0,
    "rebalance_timeout_ms": 60_000,
    "subscribed_topic_names": ["orders"],
    "topic_partitions": [],
}


@pytest.fixture
def group() -> GroupDriver:
    driver = GroupDriver(FakeTopics(orders=4))
    driver.join("a", ["orders"])
    driver.join("s1", ["orders"], instance_id="i1")
    return driver


def refusal(group: GroupDriver, version: int = 1, **fields: object) -> tuple[ErrorCode, str | None]:
    before = group.state.check_invariants, group.load().state
    request = ConsumerGroupHeartbeatRequest(**{**JOIN, **fields})
    reply = group.send(request, version)
    assert isinstance(reply, ConsumerGroupHeartbeatResponse)
    assert group.last.records == ()
    assert group.load().state == before[1] == group.state
    return ErrorCode(reply.error_code), reply.error_message


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
        (
            {"topic_partitions": [TopicPartitions(topic_id=ZERO_UUID, partitions=[0])]},
            ErrorCode.INVALID_REQUEST,
        ),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "sticky"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_regex": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ({"subscribed_topic_regex": "(?!x)"}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ({"subscribed_topic_regex": "a" * 5_000}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ({"member_epoch": 5}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_epoch": -1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "a", "member_epoch": 9}, ErrorCode.FENCED_MEMBER_EPOCH),
        ({"member_id": "a", "member_epoch": 1}, ErrorCode.FENCED_MEMBER_EPOCH),
        ({"instance_id": "i1"}, ErrorCode.UNRELEASED_INSTANCE_ID),
        ({"instance_id": "i1", "member_epoch": 3}, ErrorCode.FENCED_INSTANCE_ID),
        ({"instance_id": "i1", "member_epoch": -1}, ErrorCode.FENCED_INSTANCE_ID),
        ({"instance_id": "i1", "member_epoch": -2}, ErrorCode.FENCED_INSTANCE_ID),
        ({"instance_id": "i9", "member_epoch": 3}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"instance_id": "i9", "member_epoch": -2}, ErrorCode.UNKNOWN_MEMBER_ID),
        (
            {"instance_id": "i1", "member_id": "s1", "member_epoch": 9},
            ErrorCode.FENCED_MEMBER_EPOCH,
        ),
    ],
)
def test_refused(group: GroupDriver, fields: dict[str, Any], code: ErrorCode) -> None:
    got, message = refusal(group, **fields)
    assert got == code
    assert message


def test_member_id_may_be_empty_only_when_joining_in_version_0(group: GroupDriver) -> None:
    assert refusal(group, 0, member_id="", member_epoch=3)[0] == ErrorCode.INVALID_REQUEST
    assert refusal(group, 0, member_id="", member_epoch=-1)[0] == ErrorCode.INVALID_REQUEST


def test_a_full_group_takes_no_new_member_but_keeps_those_it_has() -> None:
    group = GroupDriver(
        FakeTopics(orders=4), ConsumerGroupConfig(assignment_interval_ms=0, group_size_max=2)
    )
    group.join("a", ["orders"])
    group.join("s1", ["orders"], instance_id="i1")
    assert refusal(group)[0] == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert refusal(group, 0, member_id="")[0] == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert group.heartbeat("a", 2).error_code == 0
    group.heartbeat("s1", -2, instance_id="i1")
    assert group.join("s2", ["orders"], instance_id="i1").error_code == 0
    assert group.heartbeat("a", -1).error_code == 0
    assert group.join("b", ["orders"]).error_code == 0


def test_a_member_in_a_state_from_the_future_has_to_start_again() -> None:
    group = GroupDriver(FakeTopics(orders=2))
    group.join("a", ["orders"])
    record = group.log[-1]
    record.value.state = 99  # type: ignore[union-attr]
    group.group = group.load()
    assert group.heartbeat("a", 2).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    again = group.join("a", ["orders"])
    assert (again.member_epoch, group.told(again)) == (2, {"orders": {0, 1}})
    assert group.group.state_name == "Stable"
