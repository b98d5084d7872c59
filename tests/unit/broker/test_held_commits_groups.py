"""Groups and their offsets while ``__consumer_offsets`` commits nothing: one table of requests.

For each request: no answer before the commit, the usual one after it, an error if it does not come
in time, and another if leadership is lost.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from odradek.core.errors import ErrorCode
from odradek.protocol.generated.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from odradek.protocol.generated.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from odradek.protocol.generated.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from odradek.protocol.generated.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from odradek.protocol.generated.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from odradek.protocol.generated.list_groups import ListGroupsRequest, ListGroupsResponse
from odradek.protocol.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek.protocol.generated.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from odradek.protocol.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from odradek.protocol.generated.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from odradek.protocol.message import Message
from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection
from tests.transaction_requests import GROUP_KEY, find_coordinator
from tests.unit.broker.held_commits import (
    GROUP_TOPIC,
    Leadership,
    assert_held,
    held_answers,
    is_answered,
)

COMMIT_TIMEOUT_MS = 40_000
NOT_AVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE
NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR
COMMIT_VERSION = 9
JOIN_VERSION = 3  # before a member must come again with the id that it was given


class Asked(NamedTuple):
    """A request, its version, where its error is, and what it says after a commit and without."""

    request: Callable[["Site"], Message]
    response: type[Any]
    version: int
    code_of: Callable[[Any], int]
    timed_out: ErrorCode = NOT_AVAILABLE


class Site:
    """A broker with a simple group, a classic one that is about to sync, and a consumer group."""

    def __init__(self, broker: Broker, connection: BrokerConnection) -> None:
        self.broker = broker
        self.connection = connection
        find_coordinator(connection, "simple", GROUP_KEY)
        assert not commit_code(connection.ask(commit(1), OffsetCommitResponse, COMMIT_VERSION))
        joined = connection.ask(JOIN, JoinGroupResponse, JOIN_VERSION)
        assert not joined.error_code
        self.member_id, self.generation = joined.member_id, joined.generation_id
        assert not connection.ask(HEARTBEAT, ConsumerGroupHeartbeatResponse, 0).error_code

    def sync(self) -> SyncGroupRequest:
        assignment = SyncGroupRequestAssignment(member_id=self.member_id, assignment=b"a")
        return SyncGroupRequest(
            group_id="classic",
            generation_id=self.generation,
            member_id=self.member_id,
            assignments=[assignment],
        )


JOIN = JoinGroupRequest(
    group_id="classic",
    session_timeout_ms=60_000,
    rebalance_timeout_ms=60_000,
    protocol_type="consumer",
    protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
)
HEARTBEAT = ConsumerGroupHeartbeatRequest(
    group_id="consumer",
    rebalance_timeout_ms=60_000,
    subscribed_topic_names=["t"],
    topic_partitions=[],
)


def commit(offset: int, group_id: str = "simple") -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    return OffsetCommitRequest(group_id=group_id, generation_id_or_member_epoch=-1, topics=[topic])


def commit_code(response: OffsetCommitResponse) -> int:
    return response.topics[0].partitions[0].error_code


def fetch_offset() -> OffsetFetchRequest:
    topic = OffsetFetchRequestTopics(name="t", partition_indexes=[0])
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="simple", topics=[topic])])


def delete_offset() -> OffsetDeleteRequest:
    partition = OffsetDeleteRequestPartition(partition_index=0)
    topic = OffsetDeleteRequestTopic(name="t", partitions=[partition])
    return OffsetDeleteRequest(group_id="simple", topics=[topic])


WRITES = {
    "OffsetCommit": Asked(lambda _: commit(2), OffsetCommitResponse, COMMIT_VERSION, commit_code),
    "OffsetDelete": Asked(
        lambda _: delete_offset(),
        OffsetDeleteResponse,
        0,
        lambda r: r.error_code or r.topics[0].partitions[0].error_code,
    ),
    "DeleteGroups": Asked(
        lambda _: DeleteGroupsRequest(groups_names=["simple"]),
        DeleteGroupsResponse,
        2,
        lambda r: r.results[0].error_code,
    ),
    "SyncGroup": Asked(lambda site: site.sync(), SyncGroupResponse, 3, lambda r: r.error_code),
    "ConsumerGroupHeartbeat": Asked(
        lambda _: HEARTBEAT, ConsumerGroupHeartbeatResponse, 0, lambda r: r.error_code
    ),
}

READS = {
    "OffsetFetch": Asked(
        lambda _: fetch_offset(),
        OffsetFetchResponse,
        9,
        lambda r: r.groups[0].error_code,
        NOT_COORDINATOR,  # as Kafka: older consumers know no other way to try again
    ),
    "OffsetFetch of one group": Asked(
        lambda _: OffsetFetchRequest(group_id="simple", topics=None),
        OffsetFetchResponse,
        7,
        lambda r: r.error_code,
        NOT_COORDINATOR,
    ),
    "DescribeGroups": Asked(
        lambda _: DescribeGroupsRequest(groups=["simple"]),
        DescribeGroupsResponse,
        5,
        lambda r: r.groups[0].error_code,
    ),
    "ListGroups": Asked(
        lambda _: ListGroupsRequest(), ListGroupsResponse, 5, lambda r: r.error_code
    ),
    "ConsumerGroupDescribe": Asked(
        lambda _: ConsumerGroupDescribeRequest(group_ids=["consumer"]),
        ConsumerGroupDescribeResponse,
        0,
        lambda r: r.groups[0].error_code,
    ),
    # Refused because of what it finds there, which may not be committed either.
    "OffsetCommit of a stranger": Asked(
        lambda _: stranger_commit(),
        OffsetCommitResponse,
        COMMIT_VERSION,
        commit_code,
    ),
}
STRANGER = "OffsetCommit of a stranger"


def stranger_commit() -> OffsetCommitRequest:
    request = commit(3, "consumer")
    request.member_id, request.generation_id_or_member_epoch = "stranger", 1
    return request


@pytest.fixture
def site() -> Iterator[Site]:
    config = {
        "offsets.commit.timeout.ms": str(COMMIT_TIMEOUT_MS),
        "group.initial.rebalance.delay.ms": "0",
    }
    with (
        Broker(topics=["t"], memory=True, config=config) as broker,
        BrokerConnection(broker.port) as connection,
    ):
        yield Site(broker, connection)


@pytest.fixture
def other(site: Site) -> Iterator[BrokerConnection]:
    with BrokerConnection(site.broker.port) as opened:
        yield opened


def send_all(site: Site, other: BrokerConnection, asked: Asked) -> None:
    """Send a commit, and behind it, on a connection of its own, what is tested; both are held."""
    site.connection.send(commit(2), COMMIT_VERSION)
    assert_held(site.broker, site.connection, count=1)
    other.send(asked.request(site), asked.version)
    assert_held(site.broker, site.connection, other, count=2)


@pytest.mark.parametrize("name", WRITES)
def test_a_write_is_answered_when_it_is_committed(site: Site, name: str) -> None:
    asked, connection = WRITES[name], site.connection
    with site.broker.hold_commits(GROUP_TOPIC):
        connection.send(asked.request(site), asked.version)
        assert_held(site.broker, connection, count=1)
    assert asked.code_of(connection.receive(asked.response, asked.version)) == ErrorCode.NONE


@pytest.mark.parametrize("name", WRITES)
def test_a_write_that_is_not_committed_in_time_is_answered(site: Site, name: str) -> None:
    asked, connection = WRITES[name], site.connection
    with site.broker.hold_commits(GROUP_TOPIC):
        connection.send(asked.request(site), asked.version)
        assert_held(site.broker, connection, count=1)
        site.broker.clock.advance(COMMIT_TIMEOUT_MS / 2000)
        assert not is_answered(connection)
        site.broker.clock.advance(COMMIT_TIMEOUT_MS / 2000)
        code = asked.code_of(connection.receive(asked.response, asked.version))
    assert code == asked.timed_out
    assert held_answers(site.broker) == 0


@pytest.mark.parametrize("name", WRITES)
def test_a_write_is_answered_when_leadership_is_lost(site: Site, name: str) -> None:
    asked, connection = WRITES[name], site.connection
    with site.broker.hold_commits(GROUP_TOPIC):
        connection.send(asked.request(site), asked.version)
        assert_held(site.broker, connection, count=1)
        Leadership(site.broker).take(GROUP_TOPIC)
        code = asked.code_of(connection.receive(asked.response, asked.version))
        assert code == NOT_COORDINATOR
        again = connection.ask(asked.request(site), asked.response, asked.version)
        assert asked.code_of(again) == NOT_COORDINATOR


@pytest.mark.parametrize("name", READS)
def test_a_read_waits_for_what_others_wrote(site: Site, other: BrokerConnection, name: str) -> None:
    asked = READS[name]
    with site.broker.hold_commits(GROUP_TOPIC):
        send_all(site, other, asked)
    after = ErrorCode.UNKNOWN_MEMBER_ID if name == STRANGER else ErrorCode.NONE
    assert asked.code_of(other.receive(asked.response, asked.version)) == after
    assert not commit_code(site.connection.receive(OffsetCommitResponse, COMMIT_VERSION))


@pytest.mark.parametrize("name", READS)
def test_a_read_that_waits_too_long_is_answered(
    site: Site, other: BrokerConnection, name: str
) -> None:
    asked = READS[name]
    with site.broker.hold_commits(GROUP_TOPIC):
        send_all(site, other, asked)
        site.broker.clock.advance(COMMIT_TIMEOUT_MS / 1000)
        assert asked.code_of(other.receive(asked.response, asked.version)) == asked.timed_out


@pytest.mark.parametrize("name", READS)
def test_a_read_is_answered_when_leadership_is_lost(
    site: Site, other: BrokerConnection, name: str
) -> None:
    asked = READS[name]
    with site.broker.hold_commits(GROUP_TOPIC):
        send_all(site, other, asked)
        Leadership(site.broker).take(GROUP_TOPIC)
        assert asked.code_of(other.receive(asked.response, asked.version)) == NOT_COORDINATOR


def test_an_offset_that_is_not_committed_is_not_shown(site: Site, other: BrokerConnection) -> None:
    """A new leader that never had it answers with the old one: that is what clients may know."""
    with site.broker.hold_commits(GROUP_TOPIC):
        send_all(site, other, READS["OffsetFetch"])
    (group,) = other.receive(OffsetFetchResponse, 9).groups
    assert group.topics[0].partitions[0].committed_offset == 2


def test_what_was_written_too_late_counts_when_it_is_committed(site: Site) -> None:
    connection = site.connection
    with site.broker.hold_commits(GROUP_TOPIC):
        connection.send(commit(2), COMMIT_VERSION)
        assert_held(site.broker, connection, count=1)
        site.broker.clock.advance(COMMIT_TIMEOUT_MS / 1000)
        assert (
            commit_code(connection.receive(OffsetCommitResponse, COMMIT_VERSION)) == NOT_AVAILABLE
        )
    (group,) = connection.ask(fetch_offset(), OffsetFetchResponse, 9).groups
    assert group.topics[0].partitions[0].committed_offset == 2


def test_a_new_coordinator_starts_from_what_is_in_its_log(site: Site) -> None:
    leadership, connection = Leadership(site.broker), site.connection
    leadership.take(GROUP_TOPIC)
    leadership.give_back(GROUP_TOPIC)
    (group,) = connection.ask(fetch_offset(), OffsetFetchResponse, 9).groups
    assert group.topics[0].partitions[0].committed_offset == 1
    assert not commit_code(connection.ask(commit(5), OffsetCommitResponse, COMMIT_VERSION))


def test_a_coordinator_shows_what_it_loaded_only_when_that_is_committed(
    site: Site, other: BrokerConnection
) -> None:
    leadership, connection = Leadership(site.broker), site.connection
    with site.broker.hold_commits(GROUP_TOPIC):
        connection.send(commit(2), COMMIT_VERSION)
        assert_held(site.broker, connection, count=1)
        leadership.take(GROUP_TOPIC)
        assert commit_code(connection.receive(OffsetCommitResponse, COMMIT_VERSION))
        leadership.give_back(GROUP_TOPIC)
        other.send(fetch_offset(), 9)
        assert_held(site.broker, other, count=1)
    (group,) = other.receive(OffsetFetchResponse, 9).groups
    assert group.topics[0].partitions[0].committed_offset == 2


def test_a_node_that_stops_answers_whom_its_coordinator_owes(
    site: Site, other: BrokerConnection
) -> None:
    hold = site.broker.hold_commits(GROUP_TOPIC)
    send_all(site, other, READS["ListGroups"])
    site.broker._holds.pop(hold)  # else it would be cleared first
    site.broker.stop()
    answer = site.connection.receive(OffsetCommitResponse, COMMIT_VERSION)
    assert commit_code(answer) == NOT_AVAILABLE
    assert other.receive(ListGroupsResponse, 5).error_code == NOT_AVAILABLE
