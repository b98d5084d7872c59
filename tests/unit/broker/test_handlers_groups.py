"""The thirteen APIs of groups over the wire, each in every version it has."""

from typing import TypeVar

import pytest

from odradek.core.errors import ErrorCode
from odradek.core.ids import Uuid
from odradek.protocol.apis import api_for_key
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
from odradek.protocol.generated.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from odradek.protocol.generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.protocol.generated.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from odradek.protocol.generated.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from odradek.protocol.generated.list_groups import ListGroupsRequest, ListGroupsResponse
from odradek.protocol.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
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
    OffsetFetchRequestTopic,
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

AGES = range(10)
"""The nth version of each API, counted from its first; the last one where it has fewer."""
COMMIT_BY_ID = 10
FETCH_GROUPS = 8
FETCH_BY_ID = 10
LEAVE_BATCHES = 3
DESCRIBE_NOT_FOUND = 6
NOBODY = "nobody"
SESSION_TIMEOUT_MS = 300_000

R = TypeVar("R", bound=Message)


class Wire:
    """Speaks one age of all APIs about one group."""

    def __init__(self, broker: Broker, connection: BrokerConnection, age: int) -> None:
        self._connection = connection
        self._age = age
        self.topic_id: Uuid = broker.node.broker.image.topics["t"].topic_id

    def version(self, message: type[Message]) -> int:
        api = api_for_key(message.ID)
        return min(api.version_min + self._age, api.version_max)

    def ask(self, request: Message, response: type[R]) -> R:
        return self._connection.ask(request, response, self.version(response))

    def join(self, group: str) -> JoinGroupResponse:
        """Join as Kafka's clients do: once more, under the id that is given out, if need be."""
        protocol = JoinGroupRequestProtocol(name="range", metadata=b"subscription")
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=SESSION_TIMEOUT_MS,
            protocol_type="consumer",
            protocols=[protocol],
        )
        joined = self.ask(request, JoinGroupResponse)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            request.member_id = joined.member_id
            joined = self.ask(request, JoinGroupResponse)
        return joined

    def commit(
        self, group: str, member_id: str, epoch: int, *offsets: tuple[int, int]
    ) -> list[int]:
        """Commit offsets by partition; return the error codes."""
        is_by_id = self.version(OffsetCommitResponse) >= COMMIT_BY_ID
        topic = OffsetCommitRequestTopic(
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=number, committed_offset=offset, committed_metadata="note"
                )
                for number, offset in offsets
            ]
        )
        if is_by_id:
            topic.topic_id = self.topic_id
        else:
            topic.name = "t"
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=epoch,
            member_id=member_id,
            topics=[topic],
        )
        answer = self.ask(request, OffsetCommitResponse)
        found = {
            each.partition_index: each.error_code
            for topic in answer.topics
            for each in topic.partitions
        }
        return [found[number] for number, _ in offsets]

    def fetch(self, group: str, numbers: list[int]) -> list[tuple[int, str | None]]:
        """Return what is committed for partitions, with its metadata."""
        version = self.version(OffsetFetchResponse)
        if version < FETCH_GROUPS:
            topic = OffsetFetchRequestTopic(name="t", partition_indexes=numbers)
            request = OffsetFetchRequest(group_id=group, topics=[topic])
            (single,) = self.ask(request, OffsetFetchResponse).topics
            return [(each.committed_offset, each.metadata) for each in single.partitions]
        wanted = OffsetFetchRequestTopics(partition_indexes=numbers)
        if version >= FETCH_BY_ID:
            wanted.topic_id = self.topic_id
        else:
            wanted.name = "t"
        asked = OffsetFetchRequestGroup(group_id=group, topics=[wanted])
        (answer,) = self.ask(OffsetFetchRequest(groups=[asked]), OffsetFetchResponse).groups
        assert answer.group_id == group
        assert not answer.error_code
        (found,) = answer.topics
        return [(each.committed_offset, each.metadata) for each in found.partitions]

    def leave(self, group: str, member_id: str) -> int:
        if self.version(LeaveGroupResponse) < LEAVE_BATCHES:
            request = LeaveGroupRequest(group_id=group, member_id=member_id)
            return self.ask(request, LeaveGroupResponse).error_code
        request = LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=member_id)])
        answer = self.ask(request, LeaveGroupResponse)
        assert not answer.error_code
        return answer.members[0].error_code

    def states(self) -> set[str]:
        answer = self.ask(ListGroupsRequest(), ListGroupsResponse)
        assert not answer.error_code
        return {each.group_id for each in answer.groups}


@pytest.fixture
def broker_topics(broker: Broker, connection: BrokerConnection) -> Broker:
    """A broker with a topic, whose coordinator is there."""
    broker.create_topic("t", 2)
    request = FindCoordinatorRequest(coordinator_keys=["g"])
    (found,) = connection.ask(request, FindCoordinatorResponse).coordinators
    assert (found.error_code, found.port) == (0, broker.port)
    return broker


@pytest.fixture(params=AGES)
def wire(
    broker_topics: Broker, connection: BrokerConnection, request: pytest.FixtureRequest
) -> Wire:
    return Wire(broker_topics, connection, request.param)


@pytest.mark.seed_row("4.9")
def test_a_classic_member_joins_works_and_leaves(wire: Wire) -> None:
    joined = wire.join("g")
    member, generation = joined.member_id, joined.generation_id
    assert (joined.error_code, generation, joined.leader) == (0, 1, member)
    assert [each.metadata for each in joined.members] == [b"subscription"]

    given = SyncGroupRequestAssignment(member_id=member, assignment=b"all")
    request = SyncGroupRequest(
        group_id="g", generation_id=generation, member_id=member, assignments=[given]
    )
    assert wire.ask(request, SyncGroupResponse).assignment == b"all"

    beat = HeartbeatRequest(group_id="g", generation_id=generation, member_id=member)
    assert wire.ask(beat, HeartbeatResponse).error_code == 0
    late = HeartbeatRequest(group_id="g", generation_id=generation - 1, member_id=member)
    assert wire.ask(late, HeartbeatResponse).error_code == ErrorCode.ILLEGAL_GENERATION

    codes = wire.commit("g", member, generation, (0, 5), (9, 5))
    assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert wire.fetch("g", [0, 1]) == [(5, "note"), (-1, "")]

    (described,) = wire.ask(DescribeGroupsRequest(groups=["g"]), DescribeGroupsResponse).groups
    assert (described.group_state, described.protocol_data) == ("Stable", "range")
    assert [each.member_id for each in described.members] == [member]
    refused = wire.ask(DeleteGroupsRequest(groups_names=["g"]), DeleteGroupsResponse)
    assert refused.results[0].error_code == ErrorCode.NON_EMPTY_GROUP

    assert wire.leave("g", "stranger") == ErrorCode.UNKNOWN_MEMBER_ID
    assert wire.leave("g", member) == 0
    assert wire.ask(beat, HeartbeatResponse).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert wire.states() == {"g"}


def test_offsets_and_groups_are_deleted(wire: Wire) -> None:
    assert wire.commit("g", "", -1, (0, 5), (1, 6)) == [0, 0]
    partition = OffsetDeleteRequestPartition(partition_index=0)
    topics = [OffsetDeleteRequestTopic(name=name, partitions=[partition]) for name in ("t", "x")]
    answer = wire.ask(OffsetDeleteRequest(group_id="g", topics=topics), OffsetDeleteResponse)
    codes = {each.name: each.partitions[0].error_code for each in answer.topics}
    assert codes == {"t": 0, "x": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert wire.fetch("g", [0, 1]) == [(-1, ""), (6, "note")]

    request = DeleteGroupsRequest(groups_names=["g", NOBODY])
    results = wire.ask(request, DeleteGroupsResponse).results
    assert {each.group_id: each.error_code for each in results} == {
        "g": 0,
        NOBODY: ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert wire.fetch("g", [1]) == [(-1, "")]
    assert wire.states() == set()


def test_a_group_that_does_not_exist_knows_nobody(wire: Wire) -> None:
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    beat = HeartbeatRequest(group_id=NOBODY, generation_id=1, member_id="m")
    assert wire.ask(beat, HeartbeatResponse).error_code == unknown
    sync = SyncGroupRequest(group_id=NOBODY, generation_id=1, member_id="m")
    assert wire.ask(sync, SyncGroupResponse).error_code == unknown
    assert wire.leave(NOBODY, "m") == unknown
    is_told = wire.version(OffsetCommitResponse) >= 9
    code = ErrorCode.GROUP_ID_NOT_FOUND if is_told else ErrorCode.ILLEGAL_GENERATION
    assert wire.commit(NOBODY, "m", 1, (0, 5)) == [code]
    assert wire.fetch(NOBODY, [0]) == [(-1, "")]
    asked = DescribeGroupsRequest(groups=[NOBODY])
    (described,) = wire.ask(asked, DescribeGroupsResponse).groups
    is_told = wire.version(DescribeGroupsResponse) >= DESCRIBE_NOT_FOUND
    assert described.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if is_told else 0)
    assert described.group_state == "Dead"


def test_a_consumer_member_joins_works_and_leaves(wire: Wire) -> None:
    joining = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="me" if wire.version(ConsumerGroupHeartbeatResponse) >= 1 else "",
        rebalance_timeout_ms=SESSION_TIMEOUT_MS,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    joined = wire.ask(joining, ConsumerGroupHeartbeatResponse)
    assert joined.error_code == 0
    assert joined.member_id
    assert joined.assignment is not None
    (assigned,) = joined.assignment.topic_partitions
    assert (assigned.topic_id, sorted(assigned.partitions)) == (wire.topic_id, [0, 1])

    who = (joined.member_id, joined.member_epoch)
    if wire.version(OffsetCommitResponse) >= 9:
        assert wire.commit("g", *who, (1, 7)) == [0]
        assert wire.commit("g", who[0], who[1] - 1, (1, 8)) == [ErrorCode.STALE_MEMBER_EPOCH]
        assert wire.fetch("g", [1]) == [(7, "note")]
    asked = ConsumerGroupDescribeRequest(group_ids=["g", NOBODY])
    found, nobody = wire.ask(asked, ConsumerGroupDescribeResponse).groups
    assert (found.group_state, found.members[0].member_id) == ("Stable", who[0])
    assert nobody.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert nobody.error_message == f"Group {NOBODY} not found."

    leaving = ConsumerGroupHeartbeatRequest(group_id="g", member_id=who[0], member_epoch=-1)
    left = wire.ask(leaving, ConsumerGroupHeartbeatResponse)
    assert (left.error_code, left.member_epoch) == (0, -1)
    (found, _) = wire.ask(asked, ConsumerGroupDescribeResponse).groups
    assert (found.group_state, found.members) == ("Empty", [])


def test_coordinators_are_found_in_every_version(wire: Wire) -> None:
    version = wire.version(FindCoordinatorResponse)
    request = FindCoordinatorRequest()
    if version >= 4:
        request.coordinator_keys = ["a", "b"]
    else:
        request.key = "a"
    answer = wire.ask(request, FindCoordinatorResponse)
    found = answer.coordinators if version >= 4 else [answer]
    assert [(each.error_code, each.node_id, each.host) for each in found] == [
        (0, 1, "127.0.0.1") for _ in found
    ]
    assert [each.key for each in answer.coordinators] == request.coordinator_keys


def test_an_empty_group_id_is_refused(broker_topics: Broker, connection: BrokerConnection) -> None:
    refused = ErrorCode.INVALID_GROUP_ID
    assert connection.ask(JoinGroupRequest(), JoinGroupResponse).error_code == refused
    assert connection.ask(SyncGroupRequest(), SyncGroupResponse).error_code == refused
    assert connection.ask(HeartbeatRequest(), HeartbeatResponse).error_code == refused
    assert connection.ask(LeaveGroupRequest(), LeaveGroupResponse).error_code == refused
    assert connection.ask(OffsetDeleteRequest(), OffsetDeleteResponse).error_code == refused
    # As in Kafka, which describes a group that nobody can have.
    asked = DescribeGroupsRequest(groups=[""])
    described = connection.ask(asked, DescribeGroupsResponse).groups[0]
    assert described.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    deleted = connection.ask(DeleteGroupsRequest(groups_names=[""]), DeleteGroupsResponse)
    assert deleted.results[0].error_code == refused
    heartbeat = ConsumerGroupHeartbeatRequest(member_id="me")
    answer = connection.ask(heartbeat, ConsumerGroupHeartbeatResponse)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_a_topic_is_found_by_id_beside_an_empty_name(
    broker_topics: Broker, connection: BrokerConnection
) -> None:
    """Java's client asks so for the topics of its assignment."""
    topic_id = broker_topics.node.broker.image.topics["t"].topic_id
    request = MetadataRequest(topics=[MetadataRequestTopic(topic_id=topic_id, name="")])
    (found,) = connection.ask(request, MetadataResponse).topics
    assert (found.error_code, found.name, len(found.partitions)) == (0, "t", 2)
