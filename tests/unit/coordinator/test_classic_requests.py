"""SyncGroup, Heartbeat and LeaveGroup to a classic group, and the timeouts behind them."""

import pytest

from odradek.coordinator.group.classic.records import metadata_record
from odradek.coordinator.group.classic.state import NEXT, GroupState, check_transition
from odradek.coordinator.result import Reply, Result
from odradek.core.errors import ErrorCode
from odradek.protocol.generated.leave_group import LeaveGroupResponse, MemberResponse
from odradek.protocol.generated.offset_records import GroupMetadataValue, MemberMetadata
from tests.unit.coordinator.classic_story import (
    REBALANCE_MS,
    SESSION_MS,
    TOPIC,
    Story,
    assigned,
    refused,
    seen,
    told,
    unsynced,
)


def left(waiter: str, *answers: tuple[str, str | None, ErrorCode]) -> Reply:
    members = [
        MemberResponse(member_id=m, group_instance_id=i, error_code=code) for m, i, code in answers
    ]
    return Reply(waiter, LeaveGroupResponse(members=members))


def recorded(member_id: str, assignment: bytes) -> MemberMetadata:
    return MemberMetadata(
        member_id=member_id,
        client_id="client",
        client_host="/10.0.0.1",
        rebalance_timeout=REBALANCE_MS,
        session_timeout=SESSION_MS,
        subscription=TOPIC,
        assignment=assignment,
    )


def test_the_leaders_assignment_is_written_and_handed_to_all_who_wait() -> None:
    story = Story()
    leader, follower = story.joined(2)
    assert story.sync("s1", follower, 1, {follower: b"not mine to say"}) == Result()
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=1,
        protocol="range",
        leader=leader,
        current_state_timestamp=story.now.wall_ms,
        members=[recorded(leader, b"p0"), recorded(follower, b"p1")],
    )
    assert story.sync("s0", leader, 1, {leader: b"p0", follower: b"p1", "who": b""}) == Result(
        (metadata_record("g", value),), (assigned("s0", b"p0"), assigned("s1", b"p1"))
    )
    assert story.group.state is GroupState.STABLE


def test_follower_that_syncs_after_the_leader_is_answered_at_once() -> None:
    story = Story()
    leader, follower = story.joined(2)
    story.sync("s0", leader, 1, {follower: b"p"})
    assert story.sync("s1", follower, 1) == Result(replies=(assigned("s1", b"p"),))
    assert story.sync("again", follower, 1) == Result(replies=(assigned("again", b"p"),))


def test_member_that_the_leader_forgot_gets_nothing_to_do() -> None:
    story = Story()
    leader, follower = story.joined(2)
    story.sync("s0", leader, 1, {leader: b"all"})
    assert story.sync("s1", follower, 1).replies == (assigned("s1", b""),)


@pytest.mark.parametrize(
    ("member", "generation_id", "protocol", "code"),
    [
        ("who", 1, {}, ErrorCode.UNKNOWN_MEMBER_ID),
        (None, 0, {}, ErrorCode.ILLEGAL_GENERATION),
        (None, 2, {}, ErrorCode.ILLEGAL_GENERATION),
        (None, 1, {"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (None, 1, {"protocol_name": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_sync_is_refused(
    member: str | None, generation_id: int, protocol: dict[str, str], code: ErrorCode
) -> None:
    story = Story()
    (member_id,) = story.joined(1)
    result = story.sync("s", member or member_id, generation_id, **protocol)  # type: ignore[arg-type]
    assert result == Result(replies=(unsynced("s", code),))


def test_sync_without_protocol_is_from_an_older_client() -> None:
    story = Story()
    (member_id,) = story.joined(1)
    result = story.sync("s", member_id, 1, protocol_type=None, protocol_name=None)
    assert result.replies == (assigned("s", b""),)


def test_sync_to_an_empty_group_is_of_nobody() -> None:
    assert Story().sync("s", "", 0).replies == (unsynced("s", ErrorCode.UNKNOWN_MEMBER_ID),)


def test_member_that_syncs_again_is_answered_on_the_new_request() -> None:
    story = Story()
    leader, follower = story.joined(2)
    story.sync("s1", follower, 1)
    earlier = unsynced("s1", ErrorCode.REBALANCE_IN_PROGRESS)
    assert story.sync("again", follower, 1) == Result(replies=(earlier,))
    replies = story.sync("s0", leader, 1, {follower: b"p"}).replies
    assert replies == (assigned("s0", b""), assigned("again", b"p"))


def test_rebalance_sends_back_who_waits_for_an_assignment() -> None:
    story = Story()
    leader, follower = story.joined(2)
    story.sync("s1", follower, 1)
    newcomer = story.new_id()
    assert story.join("w", newcomer).replies == (unsynced("s1", ErrorCode.REBALANCE_IN_PROGRESS),)
    assert story.sync("s0", leader, 1).replies == (unsynced("s0", ErrorCode.REBALANCE_IN_PROGRESS),)


def test_members_that_do_not_sync_are_dropped() -> None:
    story = Story()
    leader, follower = story.joined(2)
    story.sync("s1", follower, 1)
    assert story.keep_alive(REBALANCE_MS - 1_000, leader) == Result()
    assert story.pass_time(1_000).replies == (unsynced("s1", ErrorCode.REBALANCE_IN_PROGRESS),)
    assert list(story.group.members) == [follower]
    assert story.join("w", follower).replies == (
        told("w", follower, 2, follower, [seen(follower)]),
    )


def test_follower_that_never_syncs_is_dropped_from_a_stable_group() -> None:
    story = Story()
    leader, follower = story.joined(2)
    story.sync("s0", leader, 1)
    story.keep_alive(REBALANCE_MS, leader, follower)
    assert list(story.group.members) == [leader]
    assert story.group.state is GroupState.PREPARING_REBALANCE


def test_nobody_is_dropped_when_all_have_synced() -> None:
    story = Story()
    ids = story.stable(2)
    assert story.keep_alive(2 * REBALANCE_MS, *ids) == Result()
    assert story.group.state is GroupState.STABLE


def test_failed_write_of_an_assignment_calls_the_members_together() -> None:
    story = Story()
    (member_id,) = story.stable(1)
    assert story.done(story.group.on_append_failed(story.now)) == Result()
    assert story.heartbeat(member_id, 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_failed_write_of_a_new_group_is_tried_again() -> None:
    story = Story()
    first = story.join("w")
    story.done(story.group.on_append_failed(story.now))
    assert story.join("w").records == first.records


def test_heartbeats_by_state() -> None:
    story = Story()
    assert story.heartbeat("who", 0) is ErrorCode.UNKNOWN_MEMBER_ID
    leader, follower = story.joined(2)
    assert story.heartbeat(leader, 1) is ErrorCode.NONE
    assert story.heartbeat(leader, 0) is ErrorCode.ILLEGAL_GENERATION
    assert story.heartbeat("who", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    story.sync("s", leader, 1)
    assert story.heartbeat(follower, 1) is ErrorCode.NONE
    story.join("w", leader)
    assert story.heartbeat(follower, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    story.done(story.group.retire(ErrorCode.NOT_COORDINATOR, story.now))
    assert story.heartbeat(follower, 1) is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_session_ends_without_heartbeats_and_the_others_rebalance() -> None:
    story = Story()
    leader, follower = story.stable(2)
    story.pass_time(SESSION_MS - 1)
    assert story.heartbeat(follower, 1) is ErrorCode.NONE
    story.pass_time(1)
    assert story.heartbeat(leader, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert story.heartbeat(follower, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert story.group.leader == follower


def test_heartbeats_keep_a_session() -> None:
    story = Story()
    (member_id,) = story.stable(1)
    story.keep_alive(10 * SESSION_MS, member_id)
    assert story.group.state is GroupState.STABLE


def test_session_that_ends_while_others_wait_lets_them_go_on() -> None:
    story = Story()
    leader, _ = story.stable(2)
    story.join("w", leader)
    assert story.pass_time(SESSION_MS).replies == (told("w", leader, 2, leader, [seen(leader)]),)


def test_the_last_to_leave_leaves_an_empty_generation_in_the_log() -> None:
    story = Story()
    (member_id,) = story.stable(1)
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=2,
        protocol=None,
        leader=None,
        current_state_timestamp=story.now.wall_ms,
    )
    assert story.leave("l", (member_id, None)) == Result(
        (metadata_record("g", value),), (left("l", (member_id, None, ErrorCode.NONE)),)
    )
    assert story.group.state is GroupState.EMPTY
    assert story.group.next_deadline_ms() is None


def test_member_that_leaves_calls_a_rebalance() -> None:
    story = Story()
    leader, follower = story.stable(2)
    story.leave("l", (leader, None))
    assert story.heartbeat(follower, 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_each_of_a_batch_is_answered_for_itself() -> None:
    story = Story()
    one, two, three = story.static_stable("one", "two", "three")
    pending = story.new_id()
    batch = [
        (one, "one"),
        ("", "two"),
        (one, "three"),
        ("", "none"),
        ("who", None),
        (pending, None),
    ]
    codes = [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
    ]
    answers = [(m, i, code) for (m, i), code in zip(batch, codes, strict=True)]
    assert story.leave("l", *batch) == Result(replies=(left("l", *answers),))
    assert list(story.group.members) == [three]
    assert two not in story.group.static_member_ids.values()


def test_before_version_3_the_error_is_the_answers() -> None:
    story = Story()
    (member_id,) = story.stable(1)
    unknown = LeaveGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
    assert story.leave_v2("l", "who").replies == (Reply("l", unknown),)
    assert story.leave_v2("l", member_id).replies == (Reply("l", LeaveGroupResponse()),)


def test_who_leaves_while_it_waits_is_answered() -> None:
    story = Story()
    leader, follower = story.joined(2)
    story.sync("s1", follower, 1)
    assert story.leave("l", (follower, None)).replies[0] == unsynced(
        "s1", ErrorCode.UNKNOWN_MEMBER_ID
    )
    story.join("w", leader, protocols=(("range", b"new"),))
    newcomer = story.new_id()
    story.join("w1", newcomer)
    assert story.leave("l", (newcomer, None)).replies[0] == refused(
        "w1", ErrorCode.UNKNOWN_MEMBER_ID
    )


def test_id_that_was_never_used_leaves_in_peace() -> None:
    story = Story()
    story.stable(1)
    pending = story.new_id()
    assert story.leave("l", (pending, None)) == Result(
        replies=(left("l", (pending, None, ErrorCode.NONE)),)
    )
    assert story.group.state is GroupState.STABLE


def test_id_that_leaves_lets_those_go_on_who_wait_for_it() -> None:
    story = Story()
    (member_id,) = story.stable(1)
    pending = story.new_id()
    story.join("w", member_id)
    replies = story.leave("l", (pending, None)).replies
    assert told("w", member_id, 2, member_id, [seen(member_id)]) in replies


def test_unloading_refuses_all_who_wait() -> None:
    story = Story()
    (member_id,) = story.gathering(1)
    code = ErrorCode.NOT_COORDINATOR
    assert story.done(story.group.retire(code, story.now)).replies == (
        refused(member_id, code, member_id),
    )
    story = Story()
    leader, follower = story.joined(2)
    story.sync("s", follower, 1)
    assert story.done(story.group.retire(code, story.now)).replies == (unsynced("s", code),)
    assert story.group.next_deadline_ms() is None
    assert story.leave("l", (leader, None)).replies == (
        Reply("l", LeaveGroupResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)),
    )


def test_group_that_all_left_before_its_first_generation_is_empty() -> None:
    story = Story()
    (member_id,) = story.gathering(1)
    story.leave("l", (member_id, None))
    assert story.group.state.value == "PreparingRebalance"
    (record,) = story.pass_time(3_000).records
    assert isinstance(record.value, GroupMetadataValue)
    assert (record.value.generation, record.value.members) == (1, [])
    assert story.group.state is GroupState.EMPTY


def test_illegal_transitions_are_our_bug() -> None:
    for state, following in NEXT.items():
        for target in GroupState:
            if target in following:
                check_transition(state, target)
            else:
                with pytest.raises(AssertionError):
                    check_transition(state, target)
