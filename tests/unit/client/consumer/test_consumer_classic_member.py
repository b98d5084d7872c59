"""A member of a classic group on a virtual clock: what it says, and what answers do to it."""

import pytest

from odradek.client.consumer.assignors import ASSIGNORS
from odradek.client.consumer.errors import (
    CommitFailedError,
    FencedError,
    RebalanceInProgressError,
)
from odradek.client.consumer.membership.classic import (
    ClassicMember,
    LostError,
    MemberOptions,
    Revocation,
    State,
    TryAgainError,
    TryLaterError,
)
from odradek.client.consumer.membership.standing import Standing
from odradek.client.consumer.records import ConsumerGroupMetadata
from odradek.client.errors import BrokerError
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    StickyAssignorUserData,
)
from odradek.protocol.generated.consumer_protocol import TopicPartition as TopicNumbers
from odradek.protocol.generated.join_group import JoinGroupResponse, JoinGroupResponseMember
from odradek.protocol.generated.sync_group import SyncGroupResponse
from odradek.protocol.versioned import decode_versioned, encode_versioned

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
U = TopicPartition("u", 0)


def make(*assignors: str, instance_id: str | None = None) -> ClassicMember:
    chosen = tuple(ASSIGNORS[name] for name in assignors or ("range",))
    return ClassicMember(MemberOptions("g", instance_id, "rack", 10_000, 3_000, 60_000, chosen))


def joined(member: ClassicMember, generation_id: int = 1, **fields: object) -> JoinGroupResponse:
    response = JoinGroupResponse(
        generation_id=generation_id,
        protocol_name=member.options.assignors[0].name,
        leader="me",
        member_id="me",
    )
    for name, value in fields.items():
        setattr(response, name, value)
    return response


def assignment(*partitions: TopicPartition) -> SyncGroupResponse:
    topics = [TopicNumbers(topic=each.topic, partitions=[each.partition]) for each in partitions]
    message = ConsumerProtocolAssignment(assigned_partitions=topics)
    return SyncGroupResponse(assignment=encode_versioned(message, 1))


def settle(member: ClassicMember, *partitions: TopicPartition, now_ms: float = 0.0) -> None:
    member.on_poll(now_ms)
    member.begin_join()
    member.on_join(joined(member))
    member.on_sync(assignment(*partitions), now_ms)
    member.check_invariants()


def said(member: ClassicMember, *owned: TopicPartition) -> list[ConsumerProtocolSubscription]:
    request = member.join_request(["u", "t"], owned, "why", 9)
    return [
        decode_versioned(ConsumerProtocolSubscription, each.metadata) for each in request.protocols
    ]


def test_a_member_joins_syncs_and_heartbeats() -> None:
    member = make()
    assert member.needs_join
    settle(member, A, now_ms=1_000)
    assert (member.state, member.generation_id) == (State.STABLE, 1)
    assert member.rejoin_reason is None
    assert not member.is_heartbeat_due(3_999)
    assert member.next_deadline_ms(3_999) == 4_000
    assert member.is_heartbeat_due(4_000)
    member.on_heartbeat_sent(4_000)
    member.on_heartbeat(ErrorCode.NONE, 4_010)
    assert not member.is_heartbeat_due(6_999)
    member.check_soon(5_000)
    assert member.is_heartbeat_due(5_000)


def test_the_request_says_what_is_wanted_and_who_asks() -> None:
    member = make("range", "cooperative-sticky", instance_id="i")
    request = member.join_request(["t"], [], "why", 9)
    assert [each.name for each in request.protocols] == ["range", "cooperative-sticky"]
    assert (request.group_id, request.member_id, request.protocol_type) == ("g", "", "consumer")
    assert (request.session_timeout_ms, request.rebalance_timeout_ms) == (10_000, 60_000)
    assert request.group_instance_id == "i"
    assert member.join_request(["t"], [], "why", 4).group_instance_id is None, "nor has version 4"
    subscription = said(member)[0]
    assert (subscription.topics, subscription.rack_id) == (["t", "u"], "rack")
    assert subscription.generation_id == -1


def test_an_id_is_given_first_and_then_used() -> None:
    member = make()
    member.begin_join()
    response = JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="given")
    with pytest.raises(TryAgainError):
        member.on_join(response)
    assert member.join_request(["t"], [], "", 9).member_id == "given"


def test_sticky_members_say_what_they_had_although_they_gave_it_up() -> None:
    member = make("sticky")
    settle(member, A, U)
    (subscription,) = said(member)
    assert subscription.user_data is not None
    data = StickyAssignorUserData.decode(subscription.user_data, 1)
    had = [(each.topic, each.partitions) for each in data.previous_assignment]
    assert (had, data.generation) == ([("t", [0]), ("u", [0])], 1)
    assert subscription.owned_partitions == []


def test_cooperative_members_say_what_they_keep() -> None:
    member = make("cooperative-sticky")
    settle(member, A, B)
    (subscription,) = said(member, B, A)
    assert subscription.owned_partitions == [TopicNumbers(topic="t", partitions=[0, 1])]
    assert (subscription.generation_id, subscription.user_data) == (1, b"\0\0\0\1")


@pytest.mark.parametrize(
    ("assignors", "given_up"),
    [
        (["range"], {A, U}),
        (["range", "cooperative-sticky"], {A, U}),
        (["cooperative-sticky"], {U}),
    ],
)
def test_what_is_given_up_before_joining(
    assignors: list[str], given_up: set[TopicPartition]
) -> None:
    member = make(*assignors)
    settle(member, A, U)
    owned = frozenset({A, U})
    expected = Revocation(frozenset(given_up), is_lost=False)
    assert member.plan_revocation(owned, {"t"}) == expected
    member.on_lost("gone")
    assert member.plan_revocation(owned, {"t"}) == Revocation(owned, is_lost=True)


def test_the_leader_assigns_for_everybody() -> None:
    member = make()
    member.begin_join()
    metadata = member.join_request(["t"], [], "", 9).protocols[0].metadata
    members = [JoinGroupResponseMember(member_id=m, metadata=metadata) for m in ("me", "other")]
    response = joined(member, members=members)
    member.on_join(response)
    shares = {
        each.member_id: decode_versioned(ConsumerProtocolAssignment, each.assignment)
        for each in member.assign(response, {"t": 3})
    }
    assert {name: each.assigned_partitions[0].partitions for name, each in shares.items()} == {
        "me": [0, 1],
        "other": [2],
    }


def test_a_rebalance_is_joined_with_the_same_id() -> None:
    member = make()
    settle(member, A)
    member.on_heartbeat(ErrorCode.REBALANCE_IN_PROGRESS, 10)
    assert member.needs_join
    assert member.state is State.STABLE, "it heartbeats on until the application has given up"
    member.begin_join()
    assert member.join_request(["t"], [], "", 9).member_id == "me"
    with pytest.raises(TryLaterError):
        member.on_join(JoinGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))


@pytest.mark.parametrize(
    ("code", "member_id"),
    [(ErrorCode.UNKNOWN_MEMBER_ID, ""), (ErrorCode.ILLEGAL_GENERATION, "me")],
)
def test_a_member_that_is_not_known_has_lost_everything(code: ErrorCode, member_id: str) -> None:
    for step in ("join", "sync", "heartbeat"):
        member = make("cooperative-sticky")
        settle(member, A)
        if step == "heartbeat":
            member.on_heartbeat(code, 10)
        else:
            member.require_rejoin("test")
            member.begin_join()
        if step == "join":
            with pytest.raises(LostError):
                member.on_join(JoinGroupResponse(error_code=code))
        if step == "sync":
            member.on_join(joined(member, 2))
            with pytest.raises(LostError):
                member.on_sync(SyncGroupResponse(error_code=code), 10)
        assert member.is_lost
        assert member.needs_join
        assert (member.member_id, member.generation_id) == (member_id, -1)
        assert said(member, A)[0].generation_id == -1, "what it had it must not claim"
        member.check_invariants()


def test_another_with_the_same_instance_id_ends_it() -> None:
    member = make(instance_id="i")
    settle(member, A)
    with pytest.raises(FencedError, match="'i'"):
        member.on_heartbeat(ErrorCode.FENCED_INSTANCE_ID, 10)


def test_other_refusals_are_told() -> None:
    member = make()
    member.begin_join()
    with pytest.raises(BrokerError, match="GROUP_AUTHORIZATION_FAILED"):
        member.on_join(JoinGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
    member.on_join_failed("refused")
    assert member.needs_join, "the application may try again"


def test_an_application_that_does_not_poll_is_taken_for_dead() -> None:
    member = make()
    settle(member, A, now_ms=0)
    member.on_poll(1_000)
    assert not member.is_poll_overdue(61_000)
    assert member.is_poll_overdue(61_001)
    member.on_left("did not poll")
    assert member.is_lost
    assert member.member_id == ""
    assert not member.is_poll_overdue(99_000), "once"


def test_who_was_expelled_may_not_commit_before_it_is_back() -> None:
    member = make(instance_id="i")
    assert isinstance(member.standing().problem, CommitFailedError), "not joined yet"
    member.begin_join()
    assert isinstance(member.standing().problem, RebalanceInProgressError)
    member.on_join(joined(member))
    member.on_sync(assignment(A), 0)
    good = member.standing()
    assert good == Standing(ConsumerGroupMetadata("g", 1, "me", "i"), 0)
    good.check_commit(good)
    member.on_left("did not poll")
    expelled = member.standing()
    assert expelled.metadata == good.metadata, "for a transaction, which is refused then"
    with pytest.raises(CommitFailedError, match="did not poll"):
        expelled.check_commit(good)
    member.begin_join()
    assert isinstance(member.standing().problem, RebalanceInProgressError)
    member.on_join(joined(member, 3, member_id="another me"))
    back = member.standing()
    assert back == Standing(ConsumerGroupMetadata("g", 3, "another me", "i"), 1)
    back.check_commit(back)
    for before in (good, expelled):
        with pytest.raises(CommitFailedError):
            back.check_commit(before)


def test_a_silent_coordinator_may_be_elsewhere() -> None:
    member = make()
    settle(member, A, now_ms=0)
    member.on_heartbeat(ErrorCode.NONE, 5_000)
    assert not member.is_session_over(15_000)
    assert member.is_session_over(15_001)
