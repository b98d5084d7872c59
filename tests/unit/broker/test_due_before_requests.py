"""What is due at a coordinator happens before the request that comes next.

The clock is moved without telling the node, so no timer fires: a request overtakes it, as happens
where timers and sockets are ready in the same turn of the loop.
"""

from odradek.core.errors import ErrorCode
from odradek.protocol.generated.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from odradek.protocol.generated.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from odradek.protocol.generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.protocol.generated.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from odradek.protocol.generated.list_groups import ListGroupsRequest, ListGroupsResponse
from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection
from tests.transaction_requests import T0, TransactionalProducer
from tests.unit.broker.test_group_protocols import heartbeat
from tests.unit.broker.transaction_broker import running

JOIN_VERSION = 3  # joins without being asked for its member id first


def pass_time(broker: Broker, seconds: float) -> None:
    """Let time pass and nobody notice."""
    broker.clock._move(seconds)


def join_classic(broker: Broker, connection: BrokerConnection) -> JoinGroupResponse:
    request = JoinGroupRequest(
        group_id="c",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    heartbeat(connection, "other")  # the coordinator is there
    connection.send(request, JOIN_VERSION)
    broker.clock.advance(5)  # group.initial.rebalance.delay.ms
    return connection.receive(JoinGroupResponse, JOIN_VERSION)


def test_a_consumer_whose_session_is_over_is_not_described(
    broker: Broker, connection: BrokerConnection
) -> None:
    broker.create_topic("t")
    assert heartbeat(connection).error_code == ErrorCode.NONE
    pass_time(broker, 50)
    request = ConsumerGroupDescribeRequest(group_ids=["g"])
    (group,) = connection.ask(request, ConsumerGroupDescribeResponse).groups
    assert (group.group_state, group.members) == ("Empty", [])


def test_a_classic_member_whose_session_is_over_is_unknown() -> None:
    config = {"group.initial.rebalance.delay.ms": "0"}
    with Broker(config=config) as broker, BrokerConnection(broker.port) as connection:
        joined = join_classic(broker, connection)
        assert joined.error_code == ErrorCode.NONE
        pass_time(broker, 20)
        request = HeartbeatRequest(
            group_id="c", generation_id=joined.generation_id, member_id=joined.member_id
        )
        answer = connection.ask(request, HeartbeatResponse)
        assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_whose_last_session_is_over_can_be_deleted(
    broker: Broker, connection: BrokerConnection
) -> None:
    broker.create_topic("t")
    assert heartbeat(connection).error_code == ErrorCode.NONE
    pass_time(broker, 50)
    listed = connection.ask(ListGroupsRequest(), ListGroupsResponse).groups
    assert [(each.group_id, each.group_state) for each in listed] == [("g", "Empty")]
    request = DeleteGroupsRequest(groups_names=["g"])
    (result,) = connection.ask(request, DeleteGroupsResponse).results
    assert result.error_code == ErrorCode.NONE


def test_a_transaction_whose_time_is_over_cannot_be_committed() -> None:
    with running() as (broker, connection):
        producer = TransactionalProducer(connection, timeout_ms=60_000).begin()
        producer.add(T0)
        pass_time(broker, 80)
        assert producer.end(commit=True, version=4) == ErrorCode.PRODUCER_FENCED
