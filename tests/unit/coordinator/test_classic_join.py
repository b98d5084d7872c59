"""JoinGroup to a classic group: ids, limits, protocols, and when the first generation begins."""

import pytest

from odradek.coordinator.group.classic import rebalance
from odradek.coordinator.group.classic.config import NEW_MEMBER_JOIN_TIMEOUT_MS, GroupConfig
from odradek.coordinator.group.classic.records import metadata_record
from odradek.coordinator.group.classic.state import GroupState
from odradek.coordinator.result import Result
from odradek.core.errors import ErrorCode
from odradek.protocol.generated.offset_records import GroupMetadataValue
from tests.unit.coordinator.classic_story import (
    DELAY_MS,
    REBALANCE_MS,
    SESSION_MS,
    TOPIC,
    WALL_MS,
    Story,
    refused,
    seen,
    subscription,
    told,
)

FIRST_ID = "client-6513270e-269e-4d37-b2a7-4de452e6b438"
NEW_GROUP = metadata_record(
    "g",
    GroupMetadataValue(
        protocol_type="", generation=0, protocol=None, leader=None, current_state_timestamp=WALL_MS
    ),
)


def test_first_join_gives_an_id_and_writes_the_group() -> None:
    story = Story()
    required = refused("w", ErrorCode.MEMBER_ID_REQUIRED, FIRST_ID)
    assert story.join("w") == Result((NEW_GROUP,), (required,))
    assert story.group.state is GroupState.EMPTY
    assert story.new_id() != FIRST_ID


def test_the_group_is_written_once() -> None:
    story = Story()
    story.new_id()
    assert story.join("w").records == ()


def test_before_version_4_no_id_is_asked_for() -> None:
    story = Story()
    assert story.join("w", version=3) == Result((NEW_GROUP,))
    assert story.pass_time(DELAY_MS).replies == (
        told("w", FIRST_ID, 1, FIRST_ID, [seen(FIRST_ID)]),
    )


def test_version_0_waits_for_others_as_long_as_its_session() -> None:
    story = Story()
    story.join("w", version=0, rebalance_ms=-1)
    (member,) = story.group.members.values()
    assert (member.rebalance_timeout_ms, member.session_timeout_ms) == (SESSION_MS, SESSION_MS)


@pytest.mark.parametrize(
    ("session_ms", "code"),
    [
        (5_999, ErrorCode.INVALID_SESSION_TIMEOUT),
        (6_000, ErrorCode.MEMBER_ID_REQUIRED),
        (1_800_000, ErrorCode.MEMBER_ID_REQUIRED),
        (1_800_001, ErrorCode.INVALID_SESSION_TIMEOUT),
    ],
)
def test_session_timeouts_have_limits(session_ms: int, code: ErrorCode) -> None:
    (reply,) = Story().join("w", session_ms=session_ms).replies
    assert reply.message.error_code == code  # type: ignore[attr-defined]


def test_a_refused_session_timeout_writes_nothing() -> None:
    result = Story().join("w", session_ms=1)
    assert result == Result(replies=(refused("w", ErrorCode.INVALID_SESSION_TIMEOUT),))


def test_settings_are_read_when_they_are_used() -> None:
    story = Story()
    story.config.group_min_session_timeout_ms = SESSION_MS + 1
    assert story.join("w").replies == (refused("w", ErrorCode.INVALID_SESSION_TIMEOUT),)


def test_unknown_id_is_refused() -> None:
    story = Story()
    gone = refused("w", ErrorCode.UNKNOWN_MEMBER_ID, "who", None)
    assert story.join("w", "who").replies == (gone,)
    story.stable(1)
    assert story.join("w", "who").replies == (gone,)


def test_null_protocol_name_is_not_sent_to_versions_that_cannot_say_it() -> None:
    gone = refused("w", ErrorCode.UNKNOWN_MEMBER_ID, "who", "")
    assert Story().join("w", "who", version=6).replies == (gone,)


def test_pending_id_cannot_become_static() -> None:
    story = Story()
    member_id = story.new_id()
    assert story.join("w", member_id, instance_id="i").replies == (
        refused("w", ErrorCode.INVALID_REQUEST, member_id),
    )


@pytest.mark.parametrize("offer", [{"protocol_type": ""}, {"protocols": ()}])
def test_a_group_needs_a_protocol(offer: dict[str, str]) -> None:
    assert Story().join("w", **offer).replies == (  # type: ignore[arg-type]
        refused("w", ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    )


@pytest.mark.parametrize("offer", [{"protocol_type": "connect"}, {"protocols": (("sticky", b""),)}])
def test_who_shares_no_protocol_with_all_is_refused(offer: dict[str, str]) -> None:
    story = Story()
    (member_id,) = story.stable(1)
    code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert story.join("w", **offer).replies == (refused("w", code),)  # type: ignore[arg-type]
    assert story.join("w", member_id, **offer).replies == (  # type: ignore[arg-type]
        refused("w", code, member_id),
    )


def test_protocol_is_elected_among_those_that_all_support() -> None:
    story = Story()
    story.join("w0", version=3, protocols=(("sticky", b"0s"), ("range", b"0r"), ("own", b"")))
    story.join("w1", version=3, protocols=(("range", b"1r"), ("sticky", b"1s")))
    story.join("w2", version=3, protocols=(("range", b"2r"), ("sticky", b"2s")))
    one, two, three = story.group.members
    assert story.pass_time(2 * DELAY_MS).replies == (
        told("w0", one, 1, one, [seen(one, b"0r"), seen(two, b"1r"), seen(three, b"2r")]),
        told("w1", two, 1, one),
        told("w2", three, 1, one),
    )


def test_a_protocol_offered_twice_counts_once() -> None:
    story = Story()
    story.join("w0", version=3, protocols=(("x", b""), ("x", b"other"), ("y", b"")))
    story.join("w1", version=3, protocols=(("y", b""),))
    story.pass_time(2 * DELAY_MS)
    assert story.group.protocol_name == "y"


def test_full_group_refuses_newcomers_but_not_members() -> None:
    story = Story(GroupConfig(group_max_size=2))
    ids = story.stable(2)
    full = refused("w", ErrorCode.GROUP_MAX_SIZE_REACHED)
    assert story.join("w").replies == (full,)
    assert story.join("w", instance_id="i").replies == (full,)
    assert story.join("w", ids[1]).replies == (told("w", ids[1], 1, ids[0]),)


def test_who_has_an_id_and_finds_the_group_full_is_told_no_id() -> None:
    story = Story(GroupConfig(group_max_size=1))
    late = story.new_id()
    story.gathering(1)
    full = refused("late", ErrorCode.GROUP_MAX_SIZE_REACHED)
    assert story.join("late", late).replies == (full,)
    assert story.pass_time(DELAY_MS).replies != ()


def test_after_the_limit_was_lowered_the_last_to_come_again_must_go() -> None:
    story = Story()
    one, two, three = story.stable(3)
    story.config.group_max_size = 2
    story.join("w0", one)
    story.join("w1", two)
    changed = story.join("w2", three)
    assert changed.replies == (
        told("w0", one, 2, one, [seen(one), seen(two)]),
        told("w1", two, 2, one),
        refused("w2", ErrorCode.GROUP_MAX_SIZE_REACHED),
    )


def test_ids_given_out_are_limited_and_the_oldest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebalance, "PENDING_MEMBERS_MAX", 2)
    story = Story()
    oldest, second, third = (story.new_id() for _ in range(3))
    gone = refused("w", ErrorCode.UNKNOWN_MEMBER_ID, oldest, None)
    assert story.join("w", oldest).replies == (gone,)
    assert story.join("w", second).replies == ()
    assert story.join("w", third).replies == ()


def test_id_that_is_not_used_within_a_session_is_forgotten() -> None:
    story = Story()
    member_id = story.new_id()
    assert story.pass_time(SESSION_MS - 1) == Result()
    assert story.group.next_deadline_ms() == story.now.monotonic_ms + 1
    assert story.pass_time(1) == Result()
    assert story.group.next_deadline_ms() is None
    gone = refused("w", ErrorCode.UNKNOWN_MEMBER_ID, member_id, None)
    assert story.join("w", member_id).replies == (gone,)


def test_first_generation_waits_for_the_initial_delay() -> None:
    story = Story()
    (member_id,) = story.gathering(1)
    assert story.pass_time(DELAY_MS - 1) == Result()
    assert story.pass_time(1) == Result(
        replies=(told(member_id, member_id, 1, member_id, [seen(member_id)]),)
    )


def test_initial_delay_grows_while_members_come_up_to_the_rebalance_timeout() -> None:
    story = Story()
    story.join("w0", version=3, rebalance_ms=3 * DELAY_MS)
    for number in range(1, 4):
        assert story.pass_time(DELAY_MS - 1).replies == ()
        story.join(f"w{number}", version=3, rebalance_ms=3 * DELAY_MS)
        expected = 0 if number < 3 else 4
        assert len(story.pass_time(1).replies) == expected


def test_initial_delay_does_not_grow_without_newcomers() -> None:
    story = Story()
    ids = story.gathering(2)
    assert story.pass_time(DELAY_MS).replies == ()
    assert len(story.pass_time(DELAY_MS).replies) == len(ids)


def test_newcomer_that_waits_too_long_is_told_to_begin_again() -> None:
    story = Story()
    ids = story.stable(1)
    story.group.members[ids[0]].rebalance_timeout_ms = 10 * NEW_MEMBER_JOIN_TIMEOUT_MS
    newcomer = story.new_id()
    story.join("w", newcomer)
    assert story.keep_alive(NEW_MEMBER_JOIN_TIMEOUT_MS - 1_000, *ids) == Result()
    assert story.keep_alive(1_000, *ids).replies == (refused("w", ErrorCode.UNKNOWN_MEMBER_ID),)


def test_member_that_joins_again_while_its_join_waits_gets_the_answer_on_the_new_request() -> None:
    story = Story()
    (member_id,) = story.gathering(1)
    earlier = refused(member_id, ErrorCode.REBALANCE_IN_PROGRESS, member_id)
    assert story.join("again", member_id) == Result(replies=(earlier,))
    assert story.pass_time(DELAY_MS).replies == (
        told("again", member_id, 1, member_id, [seen(member_id)]),
    )


def test_follower_that_missed_its_answer_is_told_again() -> None:
    story = Story()
    leader, follower = story.joined(2)
    everybody = [seen(leader), seen(follower)]
    assert story.join("w", follower) == Result(replies=(told("w", follower, 1, leader),))
    assert story.join("w", leader) == Result(replies=(told("w", leader, 1, leader, everybody),))


def test_unchanged_follower_of_a_stable_group_is_told_what_is_current() -> None:
    story = Story()
    leader, follower = story.stable(2)
    assert story.join("w", follower) == Result(replies=(told("w", follower, 1, leader),))
    assert story.group.state is GroupState.STABLE


def test_leader_of_a_stable_group_calls_a_rebalance() -> None:
    story = Story()
    leader, follower = story.stable(2)
    assert story.join("w0", leader) == Result()
    assert story.heartbeat(follower, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert story.join("w1", follower).replies == (
        told("w0", leader, 2, leader, [seen(leader), seen(follower)]),
        told("w1", follower, 2, leader),
    )


@pytest.mark.parametrize("stage", ["joined", "stable"])
def test_changed_subscription_calls_a_rebalance(stage: str) -> None:
    story = Story()
    leader, follower = getattr(story, stage)(2)
    changed = (("range", subscription("t", "u")),)
    assert story.join("w1", follower, protocols=changed) == Result()
    assert story.join("w0", leader).replies == (
        told("w0", leader, 2, leader, [seen(leader), seen(follower, changed[0][1])]),
        told("w1", follower, 2, leader),
    )


def test_rebalance_waits_for_ids_given_out() -> None:
    story = Story()
    (member_id,) = story.stable(1)
    pending = story.new_id()
    assert story.join("w0", member_id) == Result()
    assert story.join("w1", pending).replies == (
        told("w0", member_id, 2, member_id, [seen(member_id), seen(pending, TOPIC)]),
        told("w1", pending, 2, member_id),
    )


def test_members_that_do_not_come_again_are_dropped_and_one_that_came_leads() -> None:
    story = Story()
    leader, follower = story.stable(2)
    story.join("w1", follower, protocols=(("range", b"new"),))
    assert story.keep_alive(REBALANCE_MS - 1_000, leader) == Result()
    assert story.keep_alive(1_000).replies == (
        told("w1", follower, 2, follower, [seen(follower, b"new")]),
    )
    assert story.heartbeat(leader, 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_waiting_members_have_no_session() -> None:
    story = Story()
    leader, follower = story.stable(2)
    story.join("w1", follower, protocols=(("range", b"new"),))
    assert story.keep_alive(2 * SESSION_MS, leader) == Result()
    assert len(story.join("w0", leader).replies) == 2


def test_dead_group_sends_its_members_elsewhere() -> None:
    story = Story()
    (member_id,) = story.stable(1)
    story.done(story.group.retire(ErrorCode.NOT_COORDINATOR, story.now))
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert story.join("w", member_id) == Result(replies=(refused("w", code, member_id),))
    assert story.join("w") == Result(replies=(refused("w", code),))
