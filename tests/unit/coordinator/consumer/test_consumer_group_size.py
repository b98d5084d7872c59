"""What a request costs in a large group, counted in calls: those do not depend on the machine."""

import gc
import sys
from types import FrameType

import pytest

from odradek.protocol.generated.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.unit.coordinator.consumer.group_driver import FakeTopics, GroupDriver

TOPICS = ["orders", "payments"]


def group_of(size: int) -> GroupDriver:
    group = GroupDriver(FakeTopics(orders=1_000, payments=1_000))
    group.group.check_invariants = lambda: None  # type: ignore[method-assign]
    for number in range(size):
        group.join(f"m{number:04}", TOPICS)
    return group


def calls(group: GroupDriver, request: ConsumerGroupHeartbeatRequest) -> int:
    counted = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    gc.disable()  # what other tests left has finalizers, and those are calls too
    sys.setprofile(count)
    try:
        result = group.group.heartbeat(request, group.caller(), group.now, group.topics)
    finally:
        sys.setprofile(None)
        gc.enable()
    group.apply(result)
    return counted


def steady(group: GroupDriver, member_id: str) -> int:
    epoch = group.state.members[member_id].member_epoch
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch)
    return calls(group, request)


def joining(group: GroupDriver) -> int:
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="new",
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=TOPICS,
        topic_partitions=[],
    )
    return calls(group, request)


def test_a_steady_heartbeat_costs_the_same_in_any_group() -> None:
    small, large = group_of(1), group_of(1)
    for number in range(300):
        large.join(f"m{number + 1:04}", ["nothing"])
    for group in (small, large):
        group.heartbeat("m0000", group.state.members["m0000"].member_epoch)
    assert steady(small, "m0000") == steady(large, "m0000") < 60


@pytest.mark.slow
def test_a_join_costs_one_pass_over_the_members() -> None:
    few, many = joining(group_of(50)), joining(group_of(200))
    assert few < many < 6 * few
