"""What a classic group writes, what it is after loading that, and what it tells of itself."""

import pytest

from odradek.coordinator.group.classic.classic_group import ClassicGroup
from odradek.coordinator.group.classic.config import GroupConfig
from odradek.coordinator.group.classic.member import Member
from odradek.coordinator.group.classic.state import GroupState
from odradek.coordinator.result import Result
from odradek.core.errors import CorruptionError, ErrorCode
from odradek.protocol.generated.describe_groups import DescribedGroup, DescribedGroupMember
from odradek.protocol.generated.list_groups import ListedGroup
from odradek.protocol.generated.offset_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)
from odradek.protocol.versioned import decode_key, decode_versioned
from tests.unit.coordinator.classic_story import (
    RANGE,
    REBALANCE_MS,
    SESSION_MS,
    TOPIC,
    Story,
    assigned,
    seen,
    told,
)


def reloaded(story: Story) -> Story:
    """Go on with a group made of the record of the present one, through its bytes."""
    record = story.group.metadata_record()
    assert decode_key(GroupMetadataKey, record.key_bytes()).group == "g"
    data = record.value_bytes()
    assert data is not None
    value = decode_versioned(GroupMetadataValue, data)
    story.group = ClassicGroup.load("g", value, story.config, story.random, story.now)
    story.done(story.group.on_loaded(story.now))
    return story


def test_stable_group_is_the_same_after_loading() -> None:
    story = Story()
    one, two = story.static_stable("one", "two")
    before = story.group.metadata_record()
    described = story.group.describe()
    reloaded(story)
    assert story.group.metadata_record() == before
    assert story.group.describe() == described
    assert story.heartbeat(one, 1, "one") is ErrorCode.NONE
    assert story.sync("s", two, 1, instance_id="two").replies == (assigned("s", b"a1"),)


def test_loaded_group_has_the_leader_it_had() -> None:
    story = Story()
    story.static_stable("one", "two")
    story.join("w", instance_id="one")
    leader = story.group.static_member_ids["one"]
    assert leader != next(iter(story.group.members))
    assert reloaded(story).group.leader == leader


def test_record_is_of_version_3() -> None:
    story = Story()
    story.stable(1)
    data = story.group.metadata_record().value_bytes()
    assert data is not None
    assert data[:2] == b"\x00\x03"


def test_empty_group_is_the_same_after_loading() -> None:
    story = Story()
    (member_id,) = story.stable(1)
    story.leave("l", (member_id, None))
    before = story.group.metadata_record()
    reloaded(story)
    assert story.group.metadata_record() == before
    assert story.group.state is GroupState.EMPTY
    assert story.join("w").records == (), "its log knows it already"


def test_loaded_members_have_a_fresh_session() -> None:
    story = Story()
    (member_id,) = story.stable(1)
    story.pass_time(SESSION_MS - 1)
    reloaded(story)
    story.pass_time(SESSION_MS - 1)
    assert story.heartbeat(member_id, 1) is ErrorCode.NONE
    assert story.pass_time(SESSION_MS).records != ()


def test_loaded_group_over_the_limit_rebalances() -> None:
    story = Story()
    ids = story.stable(2)
    story.config.group_max_size = 1
    reloaded(story)
    assert story.heartbeat(ids[0], 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_old_record_without_rebalance_timeout_or_time() -> None:
    story = Story()
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=3,
        protocol="range",
        leader="gone",
        members=[MemberMetadata(member_id="m", session_timeout=7_000, subscription=b"")],
    )
    story.group = ClassicGroup.load("g", value, story.config, story.random, story.now)
    story.done(story.group.on_loaded(story.now))
    assert story.group.members["m"].rebalance_timeout_ms == 7_000
    assert story.group.leader == "m"
    assert story.group.state_timestamp_ms == -1


@pytest.mark.parametrize("names", [("a", "b"), (None, None)])
def test_record_with_a_member_twice_is_corrupt(names: tuple[str | None, str | None]) -> None:
    ids = ("m", "m") if names[0] else ("m", "n")
    members = [
        MemberMetadata(member_id=i, group_instance_id=n or "same")
        for i, n in zip(ids, names, strict=True)
    ]
    value = GroupMetadataValue(protocol_type="consumer", protocol="p", leader="m", members=members)
    story = Story()
    with pytest.raises(CorruptionError):
        ClassicGroup.load("g", value, story.config, story.random, story.now)


def test_tombstone() -> None:
    record = Story().group.tombstone()
    assert (record.key, record.value_bytes()) == (GroupMetadataKey(group="g"), None)


def test_group_tells_of_itself() -> None:
    story = Story()
    empty = DescribedGroup(group_id="g", group_state="Empty")
    assert story.group.describe() == empty
    assert story.group.listed() == ListedGroup(
        group_id="g", group_state="Empty", group_type="classic"
    )
    (member_id,) = story.joined(1)
    member = DescribedGroupMember(member_id=member_id, client_id="client", client_host="/10.0.0.1")
    assert story.group.describe() == DescribedGroup(
        group_id="g",
        group_state="CompletingRebalance",
        protocol_type="consumer",
        members=[member],
    )
    story.sync("s", member_id, 1, {member_id: b"p"})
    member.member_metadata, member.member_assignment = TOPIC, b"p"
    assert story.group.describe() == DescribedGroup(
        group_id="g",
        group_state="Stable",
        protocol_type="consumer",
        protocol_data="range",
        members=[member],
    )
    assert story.group.listed() == ListedGroup(
        group_id="g", protocol_type="consumer", group_state="Stable", group_type="classic"
    )


def test_group_of_a_consumer_groups_members() -> None:
    story = Story(GroupConfig())
    members = [
        Member(m, None, "client", "/h", REBALANCE_MS, SESSION_MS, "consumer", RANGE)
        for m in ("one", "two")
    ]
    story.group = ClassicGroup.from_members("g", members, 17, story.config, story.random, story.now)
    assert story.group.protocol_name == "range"
    for member in members:
        member.assignment = member.member_id.encode()
    record = story.group.metadata_record()
    assert isinstance(record.value, GroupMetadataValue)
    assert record.value.generation == 17
    assert [m.assignment for m in record.value.members] == [b"one", b"two"]
    assert story.done(story.group.on_loaded(story.now)) == Result()
    assert story.done(story.group.rebalance(story.now)) == Result()
    story.join("w0", "one")
    assert story.join("w1", "two").replies == (
        told("w0", "one", 18, "one", [seen("one"), seen("two")]),
        told("w1", "two", 18, "one"),
    )
