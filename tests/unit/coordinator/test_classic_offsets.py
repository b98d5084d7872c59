"""What a classic group says of commits, of deletions, and of the age of offsets."""

import pytest

from odradek.coordinator.group.classic.classic_group import ClassicGroup
from odradek.core.errors import ApiError, ErrorCode
from odradek.protocol.generated.offset_records import GroupMetadataValue
from tests.unit.coordinator.classic_story import SESSION_MS, Story, subscription


def commit(
    story: Story,
    member_id: str = "",
    generation_id: int = -1,
    instance_id: str | None = None,
    *,
    is_transactional: bool = False,
) -> ErrorCode:
    try:
        story.group.check_commit(
            member_id, instance_id, generation_id, is_transactional=is_transactional, version=9
        )
    except ApiError as refusal:
        return refusal.code
    return ErrorCode.NONE


def test_empty_group_takes_commits_of_nobody_but_not_of_former_members() -> None:
    story = Story()
    assert commit(story) is ErrorCode.NONE
    assert commit(story, "old", -1) is ErrorCode.NONE
    assert commit(story, "old", 0) is ErrorCode.UNKNOWN_MEMBER_ID


def test_group_with_members_takes_theirs_only() -> None:
    story = Story()
    one, two = story.static_stable("one", "two")
    assert commit(story, one, 1) is ErrorCode.NONE
    assert commit(story, one, 1, "one") is ErrorCode.NONE
    assert commit(story, two, 1, "one") is ErrorCode.FENCED_INSTANCE_ID
    assert commit(story, one, 0) is ErrorCode.ILLEGAL_GENERATION
    assert commit(story, one, -1) is ErrorCode.ILLEGAL_GENERATION
    assert commit(story, "who", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(story) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(story, is_transactional=True) is ErrorCode.NONE
    assert commit(story, "who", 1, is_transactional=True) is ErrorCode.UNKNOWN_MEMBER_ID


def test_commits_by_state() -> None:
    story = Story()
    leader, follower = story.joined(2)
    assert commit(story, leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert commit(story, leader, 1, is_transactional=True) is ErrorCode.NONE
    story.sync("s", leader, 1)
    story.join("w", leader)
    assert commit(story, follower, 1) is ErrorCode.NONE, "before it gives its partitions up"
    story.done(story.group.retire(ErrorCode.NOT_COORDINATOR, story.now))
    assert commit(story, follower, 1) is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_commit_is_as_good_as_a_heartbeat() -> None:
    story = Story()
    (member_id,) = story.stable(1)
    story.pass_time(SESSION_MS - 1)
    story.group.on_commit(member_id, story.now)
    story.group.on_commit("", story.now)
    story.pass_time(SESSION_MS - 1)
    assert story.heartbeat(member_id, 1) is ErrorCode.NONE


def test_dead_group_is_not_found() -> None:
    story = Story()
    story.group.check_fetch()
    story.done(story.group.retire(ErrorCode.NOT_COORDINATOR, story.now))
    for check in (
        story.group.check_fetch,
        story.group.check_delete,
        story.group.check_offset_delete,
    ):
        with pytest.raises(ApiError) as caught:
            check()
        assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_only_empty_groups_are_deleted() -> None:
    story = Story()
    story.group.check_delete()
    story.stable(1)
    with pytest.raises(ApiError) as caught:
        story.group.check_delete()
    assert caught.value.code is ErrorCode.NON_EMPTY_GROUP
    story.group.check_offset_delete()


def test_offsets_of_other_protocols_are_deleted_when_nobody_is_there() -> None:
    story = Story()
    story.group.check_offset_delete()
    story.join("w", version=3, protocol_type="connect")
    with pytest.raises(ApiError) as caught:
        story.group.check_offset_delete()
    assert caught.value.code is ErrorCode.NON_EMPTY_GROUP


def test_subscriptions_are_those_of_the_generation() -> None:
    story = Story()
    assert not story.group.is_subscribed_to("t")
    first, second = story.gathering(2, (("range", subscription("t", "u")),))
    assert story.group.is_subscribed_to("anything"), "not known yet"
    story.pass_time(6_000)
    assert story.group.is_subscribed_to("u")
    assert not story.group.is_subscribed_to("anything")
    story.leave("l", (first, None), (second, None))
    assert not story.group.is_subscribed_to("u")


@pytest.mark.parametrize(
    "garbage",
    [b"", b"\x00", b"\xff\xff" + subscription("u")[2:], b"\x00\x01\x7f\xff\xff\xff"],
)
def test_unreadable_subscription_may_be_to_anything(garbage: bytes) -> None:
    story = Story()
    story.gathering(1, (("range", garbage),))
    story.pass_time(3_000)
    assert story.group.is_subscribed_to("t")
    assert story.group.retention_start_ms(5) is None


def test_subscription_of_a_future_version_is_read_as_far_as_it_is_known() -> None:
    story = Story()
    story.gathering(1, (("range", b"\x00\x63" + subscription("t")[2:] + b"more"),))
    story.pass_time(3_000)
    assert story.group.is_subscribed_to("t")
    assert not story.group.is_subscribed_to("u")


@pytest.mark.seed_row("0.12")
def test_retention_starts_with_the_commit_or_with_the_end_of_the_group() -> None:
    story = Story()
    assert story.group.retention_start_ms(5) == 5, "a group without members"
    (member_id,) = story.joined(1)
    assert story.group.retention_start_ms(5) is None, "rebalancing"
    story.sync("s", member_id, 1)
    assert story.group.retention_start_ms(5) == 5, "stable: of topics nobody reads"
    story.leave("l", (member_id, None))
    left_ms = story.now.wall_ms
    story.pass_time(1_000)
    assert story.group.retention_start_ms(5) == left_ms


def test_offsets_of_other_protocols_are_kept_while_members_are_there() -> None:
    story = Story()
    story.join("w", version=3, protocol_type="connect")
    story.pass_time(3_000)
    (member_id,) = story.group.members
    story.sync("s", member_id, 1, protocol_type="connect")
    assert story.group.state.value == "Stable"
    assert story.group.retention_start_ms(5) is None


def test_old_empty_group_does_not_know_since_when() -> None:
    story = Story()
    value = GroupMetadataValue(protocol_type="consumer", generation=1, protocol=None, leader=None)
    group = ClassicGroup.load("g", value, story.config, story.random, story.now)
    assert group.retention_start_ms(5) == 5
