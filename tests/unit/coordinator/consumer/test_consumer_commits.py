"""Who may commit and fetch offsets; commits of an older epoch partition by partition."""

import pytest

from odradek.core.errors import ApiError, ErrorCode
from tests.unit.coordinator.consumer.group_driver import FakeTopics, GroupDriver


def group_with_history() -> GroupDriver:
    """Member "a": partitions 0 to 2 since epoch 2, partition 3 since epoch 3."""
    group = GroupDriver(FakeTopics(orders=3))
    group.join("a", ["orders"])
    group.topics.grow("orders", 4)
    assert group.heartbeat("a", 2).member_epoch == 3
    return group


def check(
    group: GroupDriver, member_id: str, epoch: int, *, version: int = 9, transactional: bool = False
) -> list[ErrorCode]:
    judge = group.group.check_commit(
        member_id, None, epoch, is_transactional=transactional, version=version
    )
    topic_id = group.topics.id_of("orders")
    return [judge(topic_id, partition) for partition in range(5)]


def refused(group: GroupDriver, *args: object, **kwargs: object) -> ErrorCode:
    with pytest.raises(ApiError) as refusal:
        check(group, *args, **kwargs)  # type: ignore[arg-type]
    return refusal.value.code


def test_the_members_own_epoch_is_good_for_all() -> None:
    assert check(group_with_history(), "a", 3) == [ErrorCode.NONE] * 5


def test_an_older_epoch_is_good_for_what_was_held_ever_since() -> None:
    stale = ErrorCode.STALE_MEMBER_EPOCH
    none = ErrorCode.NONE
    assert check(group_with_history(), "a", 2) == [none, none, none, stale, stale]
    assert check(group_with_history(), "a", 1) == [stale] * 5


def test_partitions_to_be_given_up_may_still_be_committed() -> None:
    group = GroupDriver(FakeTopics(orders=2))
    group.join("a", ["orders"])
    group.join("b", ["orders"])
    group.heartbeat("a", 2)
    assert group.state.members["a"].pending_revocation
    assert check(group, "a", 2)[:2] == [ErrorCode.NONE, ErrorCode.NONE]


def test_commits_refused() -> None:
    group = group_with_history()
    assert refused(group, "a", 4) == ErrorCode.STALE_MEMBER_EPOCH
    assert refused(group, "b", 3) == ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(group, "", -1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(group, "a", 3, version=8) == ErrorCode.UNSUPPORTED_VERSION
    assert check(group, "a", 3, version=3, transactional=True)[0] == ErrorCode.NONE
    assert check(group, "", -1, transactional=True)[0] == ErrorCode.NONE
    assert refused(group, "", 2, transactional=True) == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_empty_group_takes_commits_of_nobody() -> None:
    group = group_with_history()
    group.heartbeat("a", -1)
    assert check(group, "", -1)[0] == ErrorCode.NONE
    assert refused(group, "a", 3) == ErrorCode.UNKNOWN_MEMBER_ID


def test_classic_members_have_generations() -> None:
    group = group_with_history()
    member_id = group.join_classic("", ["orders"], version=3).member_id
    assert check(group, member_id, 4, version=2)[0] == ErrorCode.NONE
    assert refused(group, member_id, 5) == ErrorCode.ILLEGAL_GENERATION
    assert check(group, member_id, 3)[0] == ErrorCode.ILLEGAL_GENERATION
    with pytest.raises(ApiError) as refusal:
        group.group.check_fetch(member_id, 3)
    assert refusal.value.code is ErrorCode.ILLEGAL_GENERATION


def test_fetching() -> None:
    group = group_with_history()
    group.group.check_fetch(None, -1)
    group.group.check_fetch("a", 3)
    for member_id, epoch, code in (
        ("a", 2, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", -1, ErrorCode.STALE_MEMBER_EPOCH),
        ("b", 3, ErrorCode.UNKNOWN_MEMBER_ID),
        (None, 3, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        with pytest.raises(ApiError) as refusal:
            group.group.check_fetch(member_id, epoch)
        assert refusal.value.code is code
