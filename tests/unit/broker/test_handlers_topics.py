"""Partitions are described page by page, with where they lie and who writes to them."""

from pathlib import Path

import pytest

from odradek.core.errors import ErrorCode
from odradek.protocol.generated import describe_log_dirs, describe_producers, elect_leaders
from odradek.protocol.generated import describe_topic_partitions as paged
from odradek.protocol.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from odradek.protocol.generated.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection
from tests.storage_batches import BASE_TIME_MS, make_batch

Page = list[tuple[str, int, list[int]]]
PREFERRED, UNCLEAN, NO_SUCH_ELECTION = 0, 1, 7


def page(
    connection: BrokerConnection,
    *names: str,
    limit: int = 2000,
    cursor: tuple[str, int] | None = None,
) -> tuple[Page, tuple[str, int] | None]:
    """Return (topic, error, partitions) of one page, and the cursor to the next."""
    request = paged.DescribeTopicPartitionsRequest(
        topics=[paged.TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=cursor and paged.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    response = connection.ask(request, paged.DescribeTopicPartitionsResponse)
    found = [
        (topic.name or "", topic.error_code, [each.partition_index for each in topic.partitions])
        for topic in response.topics
    ]
    following = response.next_cursor
    if following is None:
        return found, None
    return found, (following.topic_name, following.partition_index)


def test_a_partition_has_no_nulls(broker: Broker, connection: BrokerConnection) -> None:
    broker.create_topic("orders")
    request = paged.DescribeTopicPartitionsRequest(topics=[paged.TopicRequest(name="orders")])
    (topic,) = connection.ask(request, paged.DescribeTopicPartitionsResponse).topics
    assert topic.topic_id == broker.node.broker.image.topics["orders"].topic_id
    assert not topic.is_internal
    (partition,) = topic.partitions
    assert (partition.leader_id, partition.leader_epoch) == (1, 0)
    assert (partition.replica_nodes, partition.isr_nodes) == ([1], [1])
    # Java's admin client throws a NullPointerException at null.
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ([], [])
    assert partition.offline_replicas == []


def test_pages_follow_each_other(broker: Broker, connection: BrokerConnection) -> None:
    for name, partitions in [("c", 1), ("a", 2), ("b", 3)]:
        broker.create_topic(name, partitions)
    everything = [("a", 0, [0, 1]), ("b", 0, [0, 1, 2]), ("c", 0, [0])]
    assert page(connection) == (everything, None)
    assert page(connection, limit=4) == ([("a", 0, [0, 1]), ("b", 0, [0, 1])], ("b", 2))
    assert page(connection, limit=4, cursor=("b", 2)) == ([("b", 0, [2]), ("c", 0, [0])], None)
    assert page(connection, limit=2) == ([("a", 0, [0, 1])], ("b", 0))
    assert page(connection, limit=0) == ([("a", 0, [0])], ("a", 1))
    assert page(connection, "c", "b", cursor=("b", 1)) == (
        [("b", 0, [1, 2]), ("c", 0, [0])],
        None,
    )


def test_the_brokers_limit_is_the_last_word() -> None:
    config = {"max.request.partition.size.limit": "2"}
    topics = {"orders": 3}
    with (
        Broker(config=config, topics=topics) as broker,
        BrokerConnection(broker.port) as connection,
    ):
        assert page(connection) == ([("orders", 0, [0, 1])], ("orders", 2))


def test_topics_that_are_not_there_are_refused_by_themselves(
    broker: Broker, connection: BrokerConnection
) -> None:
    broker.create_topic("orders")
    unknown, invalid = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION
    found, _ = page(connection, "no", "orders", "b@d")
    assert found == [("b@d", invalid, []), ("no", unknown, []), ("orders", 0, [0])]


@pytest.mark.parametrize("cursor", [("orders", -1), ("other", 0)])
def test_a_cursor_that_points_nowhere_is_refused(
    broker: Broker, connection: BrokerConnection, cursor: tuple[str, int]
) -> None:
    broker.create_topic("orders")
    refused: Page = [("orders", ErrorCode.INVALID_REQUEST, [])]
    assert page(connection, "orders", cursor=cursor) == (refused, None)


def produce(connection: BrokerConnection, topic: str, batch: bytearray) -> None:
    data = PartitionProduceData(index=0, records=batch)
    request = ProduceRequest(
        acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )
    response = connection.ask(request, ProduceResponse, version=12)
    assert response.responses[0].partition_responses[0].error_code == 0


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5])
def test_a_log_directory_has_sizes(tmp_path: Path, version: int) -> None:
    batch = make_batch([b"value"])
    with (
        Broker(data_dir=str(tmp_path), topics={"a": 2, "b": 1}) as broker,
        BrokerConnection(broker.port) as connection,
    ):
        produce(connection, "b", batch)
        request = describe_log_dirs.DescribeLogDirsRequest(topics=None)
        response = connection.ask(request, describe_log_dirs.DescribeLogDirsResponse, version)
    (result,) = response.results
    assert (response.error_code, result.error_code) == (0, 0)
    assert result.log_dir == str(tmp_path)
    assert (result.total_bytes > result.usable_bytes > 0) == (version >= 4)
    sizes = {
        topic.name: [(each.partition_index, each.partition_size) for each in topic.partitions]
        for topic in result.topics
    }
    assert sizes == {"a": [(0, 0), (1, 0)], "b": [(0, len(batch))]}


def test_only_the_partitions_asked_for_are_in_a_log_directory(
    broker: Broker, connection: BrokerConnection
) -> None:
    broker.create_topic("a", 3)
    broker.create_topic("b")
    wanted = describe_log_dirs.DescribableLogDirTopic(topic="a", partitions=[2, 0, 9])
    request = describe_log_dirs.DescribeLogDirsRequest(topics=[wanted])
    (result,) = connection.ask(request, describe_log_dirs.DescribeLogDirsResponse).results
    (topic,) = result.topics
    assert (topic.name, [each.partition_index for each in topic.partitions]) == ("a", [0, 2])


def test_producers_are_described_as_the_log_knows_them(
    broker: Broker, connection: BrokerConnection
) -> None:
    broker.create_topic("orders")
    batch = make_batch([b"1", b"2"], producer_id=5, producer_epoch=3, base_sequence=0)
    produce(connection, "orders", batch)
    wanted = [("orders", [0, 1]), ("no", [0])]
    request = describe_producers.DescribeProducersRequest(
        topics=[
            describe_producers.TopicRequest(name=name, partition_indexes=numbers)
            for name, numbers in wanted
        ]
    )
    response = connection.ask(request, describe_producers.DescribeProducersResponse)
    (found, missing), (unknown,) = [topic.partitions for topic in response.topics]
    (producer,) = found.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (5, 3, 1)
    assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (-1, -1)
    assert producer.last_timestamp == BASE_TIME_MS + 1  # of the second record
    refused = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (missing.error_code, unknown.error_code) == (refused, refused)
    assert missing.active_producers == []


def elect(
    connection: BrokerConnection, election: int, topics: dict[str, list[int]] | None
) -> tuple[int, dict[str, list[int]]]:
    """Return the error of all and of each partition."""
    wanted = None
    if topics is not None:
        wanted = [
            elect_leaders.TopicPartitions(topic=name, partitions=numbers)
            for name, numbers in topics.items()
        ]
    request = elect_leaders.ElectLeadersRequest(election_type=election, topic_partitions=wanted)
    response = connection.ask(request, elect_leaders.ElectLeadersResponse)
    return response.error_code, {
        topic.topic: [each.error_code for each in topic.partition_result]
        for topic in response.replica_election_results
    }


def test_elections_are_not_needed_where_there_is_one_replica(
    broker: Broker, connection: BrokerConnection
) -> None:
    broker.create_topic("orders", 2)
    no, unknown = ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for election in (PREFERRED, UNCLEAN):
        answer = elect(connection, election, {"orders": [0, 5]})
        assert answer == (0, {"orders": [no, unknown]})
    assert elect(connection, PREFERRED, None) == (0, {"orders": []})
    code, results = elect(connection, NO_SUCH_ELECTION, {"orders": [0]})
    assert (code, results) == (ErrorCode.INVALID_REQUEST, {"orders": [ErrorCode.INVALID_REQUEST]})


@pytest.mark.parametrize("version", [0, 3, 4, 13])
def test_a_topic_is_unknown_in_the_answer_that_creates_it(
    broker: Broker, connection: BrokerConnection, version: int
) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="new")])
    (topic,) = connection.ask(request, MetadataResponse, version).topics
    assert (topic.error_code, topic.name) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "new")
    while topic.error_code:
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        (topic,) = connection.ask(request, MetadataResponse, version).topics
    assert len(topic.partitions) == 1
    assert "new" in broker.node.broker.image.topics


def test_the_next_answer_says_why_a_topic_could_not_be_created() -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="new")])
    with (
        Broker(config={"default.replication.factor": "3"}) as broker,
        BrokerConnection(broker.port) as connection,
    ):
        codes = []
        while ErrorCode.INVALID_REPLICATION_FACTOR not in codes:
            (topic,) = connection.ask(request, MetadataResponse).topics
            codes.append(topic.error_code)
        assert codes[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert "new" not in broker.node.broker.image.topics
