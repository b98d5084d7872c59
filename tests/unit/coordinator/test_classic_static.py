"""Static members: names that outlive their ids."""

import pytest

from odradek.coordinator.group.classic.records import metadata_record
from odradek.coordinator.group.classic.state import GroupState
from odradek.coordinator.result import Result
from odradek.core.errors import ErrorCode
from odradek.protocol.generated.offset_records import GroupMetadataValue, MemberMetadata
from tests.unit.coordinator.classic_story import (
    REBALANCE_MS,
    SESSION_MS,
    TOPIC,
    Story,
    assigned,
    refused,
    seen,
    subscription,
    told,
    unsynced,
)


def member(member_id: str, name: str, assignment: bytes) -> MemberMetadata:
    return MemberMetadata(
        member_id=member_id,
        group_instance_id=name,
        client_id="client",
        client_host="/10.0.0.1",
        rebalance_timeout=REBALANCE_MS,
        session_timeout=SESSION_MS,
        subscription=TOPIC,
        assignment=assignment,
    )


def test_static_member_needs_no_first_round_and_is_named_after_its_instance() -> None:
    story = Story()
    assert story.join("w", instance_id="one").replies == ()
    assert story.group.static_member_ids["one"].startswith("one-")


@pytest.mark.parametrize("version", [5, 8, 9])
def test_follower_that_restarts_keeps_its_assignment_and_nobody_else_notices(version: int) -> None:
    story = Story()
    leader, old = story.static_stable("one", "two")
    result = story.join("w", instance_id="two", version=version)
    new = story.group.static_member_ids["two"]
    assert new != old
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=1,
        protocol="range",
        leader=leader,
        current_state_timestamp=story.group.state_timestamp_ms,
        members=[member(leader, "one", b"a0"), member(new, "two", b"a1")],
    )
    assert result == Result((metadata_record("g", value),), (told("w", new, 1, leader),))
    assert story.sync("s", new, 1, instance_id="two").replies == (assigned("s", b"a1"),)
    assert story.heartbeat(leader, 1, "one") is ErrorCode.NONE
    assert story.heartbeat(old, 1, "two") is ErrorCode.FENCED_INSTANCE_ID
    assert story.heartbeat(old, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_leader_that_restarts_is_told_to_skip_the_assignment() -> None:
    story = Story()
    _, follower = story.static_stable("one", "two")
    replies = story.join("w", instance_id="one", version=9).replies
    new = story.group.static_member_ids["one"]
    everybody = [seen(follower, TOPIC, "two"), seen(new, TOPIC, "one")]
    assert replies == (told("w", new, 1, new, everybody, skip_assignment=True),)
    assert story.group.leader == new


def test_older_leader_that_restarts_is_told_that_another_leads() -> None:
    story = Story()
    old, _ = story.static_stable("one", "two")
    replies = story.join("w", instance_id="one", version=8).replies
    new = story.group.static_member_ids["one"]
    assert replies == (told("w", new, 1, old),)
    assert story.group.leader == new


def test_restart_with_another_subscription_is_read_at_once() -> None:
    story = Story()
    story.static_stable("one", "two")
    story.join("w", instance_id="two", protocols=(("range", subscription("u")),))
    assert story.group.state is GroupState.STABLE
    assert story.group.is_subscribed_to("u")


def test_restart_that_changes_the_protocol_calls_a_rebalance() -> None:
    story = Story()
    both = (("range", TOPIC), ("sticky", TOPIC))
    story.join("w0", instance_id="one", protocols=both)
    story.pass_time(3_000)
    old = story.group.static_member_ids["one"]
    story.sync("w0", old, 1)
    result = story.join("w", instance_id="one", protocols=(("sticky", TOPIC),))
    new = story.group.static_member_ids["one"]
    expected = told("w", new, 2, new, [seen(new, TOPIC, "one")], protocol_name="sticky")
    assert result == Result(replies=(expected,))


def test_restart_while_the_assignment_is_made_calls_a_rebalance() -> None:
    story = Story()
    story.join("one", instance_id="one")
    story.join("two", instance_id="two")
    story.pass_time(6_000)
    leader, old = (story.group.static_member_ids[name] for name in ("one", "two"))
    story.sync("s", old, 1, instance_id="two")
    assert story.join("w", instance_id="two").replies == (
        unsynced("s", ErrorCode.FENCED_INSTANCE_ID),
    )
    assert story.sync("s0", leader, 1, instance_id="one").replies == (
        unsynced("s0", ErrorCode.REBALANCE_IN_PROGRESS),
    )


def test_former_self_that_waits_is_fenced() -> None:
    story = Story()
    story.join("w0", instance_id="one")
    old = story.group.static_member_ids["one"]
    fenced = refused("w0", ErrorCode.FENCED_INSTANCE_ID, old, None)
    assert story.join("w1", instance_id="one").replies == (fenced,)


def test_wrong_id_for_a_name_is_fenced_and_unknown_name_is_unknown() -> None:
    story = Story()
    one, two = story.static_stable("one", "two")
    assert story.join("w", one, instance_id="two").replies == (
        refused("w", ErrorCode.FENCED_INSTANCE_ID, one, None),
    )
    assert story.join("w", two, instance_id="three").replies == (
        refused("w", ErrorCode.UNKNOWN_MEMBER_ID, two, None),
    )
    assert story.sync("w", "who", 1, instance_id="two").replies == (
        unsynced("w", ErrorCode.FENCED_INSTANCE_ID),
    )


def test_static_member_that_does_not_come_again_stays_until_its_sync_is_due() -> None:
    story = Story()
    _, two = story.static_stable("one", "two")
    story.group.members[two].session_timeout_ms = 10 * REBALANCE_MS
    story.heartbeat(two, 1)
    one = story.group.static_member_ids["one"]
    story.join("w", one, instance_id="one")
    (reply,) = story.pass_time(REBALANCE_MS).replies
    assert reply == told("w", one, 2, one, [seen(one, TOPIC, "one"), seen(two, TOPIC, "two")])
    story.sync("s", one, 2, {one: b"x", two: b"y"}, instance_id="one")
    story.keep_alive(REBALANCE_MS, one)
    assert list(story.group.members) == [one]
    assert story.heartbeat(one, 2) is ErrorCode.REBALANCE_IN_PROGRESS


def test_leader_that_does_not_come_again_is_replaced_but_stays_a_member() -> None:
    story = Story()
    one, two = story.static_stable("one", "two")
    story.join("w", two, instance_id="two", protocols=(("range", b"new"),))
    story.keep_alive(REBALANCE_MS, one)
    assert story.group.leader == two
    assert set(story.group.members) == {one, two}


def test_join_phase_goes_on_while_no_static_member_came_and_their_sessions_last() -> None:
    story = Story()
    ids = story.static_stable("one", "two")
    story.done(story.group.rebalance(story.now))
    assert story.keep_alive(2 * REBALANCE_MS, *ids) == Result()
    assert story.group.state.value == "PreparingRebalance"
    assert story.group.generation_id == 1
    (record,) = story.pass_time(SESSION_MS).records
    assert story.group.state is GroupState.EMPTY
    assert isinstance(record.value, GroupMetadataValue)
    assert (record.value.generation, record.value.members) == (2, [])


def test_static_member_that_came_late_waits_for_the_others_once_more() -> None:
    story = Story()
    one, two = story.static_stable("one", "two")
    story.done(story.group.rebalance(story.now))
    assert story.keep_alive(REBALANCE_MS + 1_000, one, two) == Result()
    assert story.join("w", two, instance_id="two") == Result()
    assert story.keep_alive(REBALANCE_MS - 2_000, one) == Result()
    everybody = [seen(one, TOPIC, "one"), seen(two, TOPIC, "two")]
    assert story.keep_alive(1_000, one).replies == (told("w", two, 2, two, everybody),)


def test_member_that_restarts_before_its_sync_is_not_missed_under_its_old_id() -> None:
    story = Story()
    story.join("one", instance_id="one")
    story.join("two", instance_id="two")
    story.pass_time(6_000)
    one = story.group.static_member_ids["one"]
    story.sync("s", one, 1, {}, instance_id="one")
    story.join("w", instance_id="two")
    two = story.group.static_member_ids["two"]
    story.sync("s", two, 1, instance_id="two")
    story.keep_alive(2 * REBALANCE_MS, one, two)
    assert story.group.state is GroupState.STABLE
    assert story.group.generation_id == 1


def test_failed_write_of_a_restart_calls_the_members_together() -> None:
    story = Story()
    one, _ = story.static_stable("one", "two")
    story.join("w", instance_id="two")
    assert story.done(story.group.on_append_failed(story.now)) == Result()
    assert story.heartbeat(one, 1) is ErrorCode.REBALANCE_IN_PROGRESS
