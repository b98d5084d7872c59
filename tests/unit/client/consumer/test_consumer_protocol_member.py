"""A member of the consumer protocol on a virtual clock: what is in its heartbeats, and when."""

import pytest

from odradek.client.consumer.errors import (
    CommitFailedError,
    FencedError,
    RebalanceInProgressError,
)
from odradek.client.consumer.membership.consumer_protocol import (
    ConsumerMember,
    IdPartition,
    Interest,
    ProtocolOptions,
    State,
)
from odradek.client.consumer.membership.standing import Standing
from odradek.client.consumer.records import ConsumerGroupMetadata
from odradek.client.errors import BrokerError
from odradek.core.errors import ErrorCode
from odradek.core.ids import Uuid
from odradek.protocol.generated.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

T = Uuid(b"t" * 16)
A, B = (T, 0), (T, 1)
VERSION = 1


def make(instance_id: str | None = None) -> ConsumerMember:
    member = ConsumerMember(ProtocolOptions("g", instance_id, "rack", 60_000, "uniform"), "me")
    member.set_interest(Interest(frozenset({"b", "a"})), 0)
    return member


def answer(
    epoch: int, *partitions: IdPartition, assigns: bool = True
) -> ConsumerGroupHeartbeatResponse:
    topics = [TopicPartitions(topic_id=T, partitions=[number for _, number in partitions])]
    return ConsumerGroupHeartbeatResponse(
        member_epoch=epoch,
        heartbeat_interval_ms=5_000,
        assignment=Assignment(topic_partitions=topics) if assigns else None,
    )


def beat(
    member: ConsumerMember, response: ConsumerGroupHeartbeatResponse, now_ms: float = 0
) -> ConsumerGroupHeartbeatRequest:
    assert member.is_heartbeat_due(now_ms)
    request = member.heartbeat(VERSION)
    assert not member.is_heartbeat_due(now_ms), "one at a time"
    member.on_response(response, now_ms)
    member.check_invariants()
    return request


def state_of(member: ConsumerMember) -> State:
    return member.state


def settled() -> ConsumerMember:
    member = make()
    member.begin(0)
    beat(member, answer(1, A, B))
    member.on_reconciled({A, B}, 0)
    beat(member, answer(1, assigns=False))
    return member


def test_the_first_heartbeat_says_everything() -> None:
    member = make()
    assert not member.is_heartbeat_due(0), "not before the application polls"
    member.begin(0)
    request = beat(member, answer(1, A))
    assert (request.member_id, request.member_epoch, request.rack_id) == ("me", 0, "rack")
    assert (request.subscribed_topic_names, request.topic_partitions) == (["a", "b"], [])
    assert (request.rebalance_timeout_ms, request.server_assignor) == (60_000, "uniform")
    assert (member.state, member.epoch) == (State.RECONCILING, 1)


def test_what_was_assigned_is_acknowledged_at_once() -> None:
    member = make()
    member.begin(0)
    beat(member, answer(1, A, B), now_ms=10)
    assert not member.is_heartbeat_due(20), "not before the application has taken it"
    member.on_reconciled({A, B}, 30)
    assert state_of(member) is State.STABLE
    request = beat(member, answer(1, assigns=False), now_ms=30)
    assert request.topic_partitions == [TopicPartitions(topic_id=T, partitions=[0, 1])]
    assert request.subscribed_topic_names is None, "that has not changed"
    assert member.next_deadline_ms() == 5_030


def test_an_idle_heartbeat_says_nothing_but_that_it_is_alive() -> None:
    member = settled()
    request = beat(member, answer(1, assigns=False), now_ms=5_000)
    assert (request.member_epoch, request.topic_partitions) == (1, None)
    assert (request.subscribed_topic_names, request.rack_id) == (None, None)


def test_an_assignment_that_changes_nothing_is_acknowledged_too() -> None:
    member = settled()
    beat(member, answer(2, A, B), now_ms=5_000)
    assert state_of(member) is State.RECONCILING
    member.on_reconciled({A, B}, 5_001)
    request = beat(member, answer(2, assigns=False), now_ms=5_001)
    assert request.topic_partitions == [TopicPartitions(topic_id=T, partitions=[0, 1])]


def test_what_metadata_does_not_have_yet_is_not_acknowledged() -> None:
    member = make()
    member.begin(0)
    beat(member, answer(1, A, B))
    member.on_reconciled({A}, 1)
    assert state_of(member) is State.RECONCILING
    request = beat(member, answer(1, assigns=False), now_ms=1)
    assert request.topic_partitions == [TopicPartitions(topic_id=T, partitions=[0])]
    member.on_reconciled({A, B}, 2)
    assert state_of(member) is State.STABLE


def test_another_interest_goes_out_at_once() -> None:
    member = settled()
    member.set_interest(Interest(frozenset({"c"})), 100)
    assert beat(member, answer(1, assigns=False), 100).subscribed_topic_names == ["c"]
    member.set_interest(Interest(regex="d.*"), 200)
    request = beat(member, answer(1, assigns=False), 200)
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == ([], "d.*")
    member.set_interest(Interest(frozenset({"e"})), 300)
    request = beat(member, answer(1, assigns=False), 300)
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (["e"], "")


def test_interest_that_changes_while_a_heartbeat_is_under_way_is_not_lost() -> None:
    member = settled()
    member.heartbeat(VERSION)
    member.set_interest(Interest(frozenset({"c"})), 5_001)
    member.on_response(answer(1, assigns=False), 5_002)
    assert beat(member, answer(1, assigns=False), 5_002).subscribed_topic_names == ["c"]


def test_after_a_failure_everything_is_said_again() -> None:
    member = settled()
    member.heartbeat(VERSION)
    member.on_failure(5_100)
    member.retry_at(5_200)
    assert not member.is_heartbeat_due(5_199)
    request = beat(member, answer(1, assigns=False), 5_200)
    assert (request.member_epoch, request.subscribed_topic_names) == (1, ["a", "b"])
    assert request.topic_partitions == [TopicPartitions(topic_id=T, partitions=[0, 1])]


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH])
def test_a_fenced_member_begins_again_under_its_id(code: ErrorCode) -> None:
    member = settled()
    beat(member, ConsumerGroupHeartbeatResponse(error_code=code), 5_000)
    assert (member.state, member.is_lost) == (State.UNJOINED, True)
    assert not member.is_heartbeat_due(99_000), "not before what it had was let go"
    member.on_reconciled({A}, 5_001)
    assert state_of(member) is State.UNJOINED
    member.begin(6_000)
    request = beat(member, answer(1, A), 6_000)
    assert (request.member_id, request.member_epoch) == ("me", 0)
    assert request.topic_partitions == []


def test_refusals_for_good_end_it_and_others_do_not() -> None:
    member = settled()
    busy = ConsumerGroupHeartbeatResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    with pytest.raises(BrokerError):
        beat(member, busy, 5_000)
    assert state_of(member) is State.STABLE
    member.retry_at(5_100)
    refused = ConsumerGroupHeartbeatResponse(
        error_code=ErrorCode.UNSUPPORTED_ASSIGNOR, error_message="only range here"
    )
    with pytest.raises(BrokerError, match="only range here"):
        beat(member, refused, 5_100)
    assert state_of(member) is State.FAILED
    assert member.next_deadline_ms() is None


def test_an_instance_id_is_one_members_alone() -> None:
    member = make("i")
    member.begin(0)
    refused = ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNRELEASED_INSTANCE_ID)
    with pytest.raises(FencedError, match="'i'"):
        beat(member, refused)


def test_static_members_leave_for_a_while() -> None:
    assert make().leave_request().member_epoch == -1
    request = make("i").leave_request()
    assert (request.member_epoch, request.instance_id) == (-2, "i")


def test_an_application_that_does_not_poll_is_taken_for_dead() -> None:
    member = settled()
    member.on_poll(1_000)
    assert not member.is_poll_overdue(61_000)
    assert member.is_poll_overdue(61_001)
    member.on_lost("expelled")
    assert not member.is_poll_overdue(99_000)


def test_an_answer_after_the_end_changes_nothing() -> None:
    member = settled()
    member.heartbeat(VERSION)
    member.on_lost("expelled")
    member.on_response(answer(9, A), 5_000)
    assert (member.state, member.epoch) == (State.UNJOINED, 0)


def test_who_was_fenced_may_not_commit_before_it_is_back() -> None:
    member = make()
    assert isinstance(member.standing().problem, CommitFailedError), "not joined yet"
    member.begin(0)
    assert isinstance(member.standing().problem, RebalanceInProgressError)
    beat(member, answer(1, A))
    good = member.standing()
    assert good == Standing(ConsumerGroupMetadata("g", 1, "me", None), 0)
    member.on_lost("fenced")
    expelled = member.standing()
    assert expelled.metadata == good.metadata, "for a transaction, which is refused then"
    with pytest.raises(CommitFailedError, match="fenced"):
        expelled.check_commit(good)
    member.begin(0)
    beat(member, answer(5, A))
    back = member.standing()
    assert back == Standing(ConsumerGroupMetadata("g", 5, "me", None), 1)
    for before in (good, expelled):
        with pytest.raises(CommitFailedError):
            back.check_commit(before)
    member.on_fatal("refused for good")
    assert isinstance(member.standing().problem, CommitFailedError)
