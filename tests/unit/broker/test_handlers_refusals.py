"""What a client should not have asked is refused, and the rest of its request is answered."""

import pytest

from odradek.core.errors import MESSAGE_CHARS_MAX, ApiError, ErrorCode
from odradek.protocol.generated import (
    create_topics,
    describe_configs,
    describe_quorum,
    elect_leaders,
    find_coordinator,
    offset_commit,
)
from odradek.protocol.generated import write_txn_markers as markers
from odradek.protocol.primitives import STRING_BYTES_MAX
from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection

LONG_NAMES = ["n" * STRING_BYTES_MAX, "\U0001f600" * (STRING_BYTES_MAX // 4), "é" * 16_000]
TOPIC, BROKER = 2, 4


@pytest.mark.parametrize("name", LONG_NAMES, ids=["ascii", "emoji", "accents"])
def test_a_name_of_the_greatest_length_is_refused_beside_one_that_is_good(
    connection: BrokerConnection, name: str
) -> None:
    request = create_topics.CreateTopicsRequest(
        topics=[
            create_topics.CreatableTopic(name=each, num_partitions=1, replication_factor=1)
            for each in (name, "good")
        ]
    )
    answer = connection.ask(request, create_topics.CreateTopicsResponse)
    codes = {each.name: each.error_code for each in answer.topics}
    assert codes == {name: ErrorCode.INVALID_TOPIC_EXCEPTION, "good": ErrorCode.NONE}


@pytest.mark.parametrize("name", LONG_NAMES, ids=["ascii", "emoji", "accents"])
@pytest.mark.parametrize("resource_type", [TOPIC, BROKER])
def test_configs_of_a_name_of_the_greatest_length_are_refused(
    connection: BrokerConnection, resource_type: int, name: str
) -> None:
    request = describe_configs.DescribeConfigsRequest(
        resources=[
            describe_configs.DescribeConfigsResource(
                resource_type=resource_type, resource_name=name
            )
        ]
    )
    (result,) = connection.ask(request, describe_configs.DescribeConfigsResponse).results
    assert result.error_code != ErrorCode.NONE
    assert result.error_message


@pytest.mark.parametrize("name", LONG_NAMES, ids=["ascii", "emoji", "accents"])
def test_an_election_in_a_topic_of_the_greatest_length_is_refused(
    connection: BrokerConnection, name: str
) -> None:
    wanted = elect_leaders.TopicPartitions(topic=name, partitions=[0])
    request = elect_leaders.ElectLeadersRequest(topic_partitions=[wanted])
    answer = connection.ask(request, elect_leaders.ElectLeadersResponse)
    (partition,) = answer.replica_election_results[0].partition_result
    assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("name", LONG_NAMES, ids=["ascii", "emoji", "accents"])
def test_a_quorum_of_a_topic_of_the_greatest_length_is_refused(
    connection: BrokerConnection, name: str
) -> None:
    partition = describe_quorum.RequestPartitionData(partition_index=0)
    wanted = describe_quorum.RequestTopicData(topic_name=name, partitions=[partition])
    request = describe_quorum.DescribeQuorumRequest(topics=[wanted])
    answer = connection.ask(request, describe_quorum.DescribeQuorumResponse)
    (result,) = answer.topics[0].partitions
    assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("retention_ms", [2**63 - 1, 2**62, -(2**63)])
def test_an_offset_may_be_kept_for_as_long_as_a_number_can_say(retention_ms: int) -> None:
    partition = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=3)
    topic = offset_commit.OffsetCommitRequestTopic(name="orders", partitions=[partition])
    request = offset_commit.OffsetCommitRequest(
        group_id="g", retention_time_ms=retention_ms, topics=[topic]
    )
    with (
        Broker(topics=["orders"], memory=True) as broker,
        BrokerConnection(broker.port) as connection,
    ):
        find = find_coordinator.FindCoordinatorRequest(key="g")
        while connection.ask(find, find_coordinator.FindCoordinatorResponse, 1).error_code:
            pass
        answer = connection.ask(request, offset_commit.OffsetCommitResponse, 4)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE


def test_a_message_says_how_much_of_it_was_left_out() -> None:
    message = ApiError(ErrorCode.INVALID_REQUEST, "x" * (MESSAGE_CHARS_MAX + 7)).message
    assert message == "x" * MESSAGE_CHARS_MAX + " ... (7 more characters)"
    assert ApiError(ErrorCode.INVALID_REQUEST, "short").message == "short"


@pytest.mark.parametrize(
    "wrong", [{"producer_id": -1}, {"producer_epoch": -1}, {"transaction_version": -1}]
)
def test_a_marker_that_names_no_transaction_is_refused_beside_one_that_does(
    broker: Broker, connection: BrokerConnection, wrong: dict[str, int]
) -> None:
    broker.create_topic("orders")
    sound = {"producer_id": 5, "producer_epoch": 0, "transaction_version": 2}
    request = markers.WriteTxnMarkersRequest(
        markers=[
            markers.WritableTxnMarker(
                producer_id=fields["producer_id"],
                producer_epoch=fields["producer_epoch"],
                transaction_version=fields["transaction_version"],
                transaction_result=True,
                topics=[markers.WritableTxnMarkerTopic(name="orders", partition_indexes=[0])],
            )
            for fields in (sound | wrong, sound)
        ]
    )
    answer = connection.ask(request, markers.WriteTxnMarkersResponse)
    codes = [each.topics[0].partitions[0].error_code for each in answer.markers]
    assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
