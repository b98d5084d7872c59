"""Each API answers in each version it advertises: no field is set that the version cannot carry.

Real clients speak a few versions each; here one socket speaks them all.
"""

import socket
import struct
from collections.abc import Iterator

import pytest

from odradek.broker.dispatch import SPOKEN
from odradek.core.ids import ZERO_UUID, Uuid
from odradek.protocol.apis import Api
from odradek.protocol.framing import frame_request, open_response
from odradek.protocol.generated.add_offsets_to_txn import AddOffsetsToTxnRequest
from odradek.protocol.generated.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from odradek.protocol.generated.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from odradek.protocol.generated.api_versions import ApiVersionsRequest
from odradek.protocol.generated.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from odradek.protocol.generated.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.protocol.generated.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.protocol.generated.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.generated.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from odradek.protocol.generated.describe_producers import DescribeProducersRequest, TopicRequest
from odradek.protocol.generated.describe_transactions import DescribeTransactionsRequest
from odradek.protocol.generated.end_txn import EndTxnRequest
from odradek.protocol.generated.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.generated.init_producer_id import InitProducerIdRequest
from odradek.protocol.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.protocol.generated.metadata import MetadataRequest, MetadataRequestTopic
from odradek.protocol.generated.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from odradek.protocol.generated.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.protocol.generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.protocol.generated.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from odradek.protocol.message import Message
from odradek.records import BatchBuilder, Record
from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection
from tests.transaction_requests import GROUP_KEY, TRANSACTION_KEY, find_coordinator
from tests.unit.broker.group_requests import GROUP_REQUESTS

DEADLINE_SECONDS = 60
TOPIC_RESOURCE = 2
TRANSACTIONAL_ID = "tx"
GROUP_ID = "g"
TOPICS = ("t", "ghost")  # one that exists and one that does not
CASES = [
    pytest.param(api, version, id=f"{api.name}-{version}")
    for api in SPOKEN
    for version in range(api.version_min, api.version_max + 1)
]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    config = {"auto.create.topics.enable": "false", "unstable.api.versions.enable": "true"}
    with Broker(topics={"t": 2}, config=config) as started, BrokerConnection(started.port) as asks:
        find_coordinator(asks, TRANSACTIONAL_ID, TRANSACTION_KEY)
        find_coordinator(asks, GROUP_ID, GROUP_KEY)
        yield started


def batch() -> bytearray:
    builder = BatchBuilder()
    builder.append_records([Record(0, 1_700_000_000_000, b"k", b"v")])
    return bytearray(builder.build())


def topic_ids(broker: Broker) -> list[tuple[str, Uuid]]:
    return [("t", broker.node.broker.image.topics["t"].topic_id), ("ghost", ZERO_UUID)]


def produce(broker: Broker, version: int) -> Message:
    return ProduceRequest(
        acks=1,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name=name if version < 13 else "",
                topic_id=topic_id if version >= 13 else ZERO_UUID,
                partition_data=[PartitionProduceData(index=i, records=batch()) for i in (0, 9)],
            )
            for name, topic_id in topic_ids(broker)
        ],
    )


def fetch(broker: Broker, version: int) -> Message:
    return FetchRequest(
        max_bytes=1_000_000,
        topics=[
            FetchTopic(
                topic=name if version < 13 else "",
                topic_id=topic_id if version >= 13 else ZERO_UUID,
                partitions=[
                    FetchPartition(partition=i, fetch_offset=offset, partition_max_bytes=1_000_000)
                    for i, offset in ((0, 0), (1, 99), (9, 0))
                ],
            )
            for name, topic_id in topic_ids(broker)
        ],
    )


def list_offsets(_broker: Broker, _version: int) -> Message:
    return ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(
                name=name,
                partitions=[
                    ListOffsetsPartition(partition_index=index, timestamp=timestamp)
                    for index in (0, 9)
                    for timestamp in (0, -1, -2, -3, -4, -5, -6)
                ],
            )
            for name in TOPICS
        ],
    )


def metadata(_broker: Broker, _version: int) -> Message:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in TOPICS])


def create_topics(_broker: Broker, version: int) -> Message:
    topics = [("t", 1), (f"new-{version}", 3), ("bad name", 1), ("none", 0)]
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(name=name, num_partitions=count, replication_factor=1)
            for name, count in topics
        ]
    )


def delete_topics(_broker: Broker, version: int) -> Message:
    if version < 6:
        return DeleteTopicsRequest(topic_names=["ghost"])
    return DeleteTopicsRequest(topics=[DeleteTopicState(name="ghost")])


def create_partitions(_broker: Broker, _version: int) -> Message:
    topics = [CreatePartitionsTopic(name=name, count=1, assignments=None) for name in TOPICS]
    return CreatePartitionsRequest(topics=topics)


def delete_records(_broker: Broker, _version: int) -> Message:
    partitions = [DeleteRecordsPartition(partition_index=i, offset=0) for i in (0, 9)]
    return DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=name, partitions=partitions) for name in TOPICS]
    )


def offset_for_leader_epoch(_broker: Broker, _version: int) -> Message:
    partitions = [OffsetForLeaderPartition(partition=i, leader_epoch=0) for i in (0, 9)]
    return OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(topic=name, partitions=partitions) for name in TOPICS]
    )


def describe_configs(_broker: Broker, _version: int) -> Message:
    return DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=None
            )
            for name in TOPICS
        ],
        include_synonyms=True,
    )


def alter_configs(_broker: Broker, _version: int) -> Message:
    config = AlterableConfig(name="retention.ms", value="1000")
    return AlterConfigsRequest(
        resources=[
            AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configs=[config])
            for name in TOPICS
        ]
    )


def describe_producers(_broker: Broker, _version: int) -> Message:
    topics = [TopicRequest(name=name, partition_indexes=[0, 9]) for name in TOPICS]
    return DescribeProducersRequest(topics=topics)


def init_producer_id(_broker: Broker, _version: int) -> Message:
    return InitProducerIdRequest(transactional_id=TRANSACTIONAL_ID, transaction_timeout_ms=1000)


def add_partitions_to_txn(_broker: Broker, version: int) -> Message:
    topics = [AddPartitionsToTxnTopic(name=name, partitions=[0, 9]) for name in TOPICS]
    if version < 4:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TRANSACTIONAL_ID, v3_and_below_topics=topics
        )
    transactions = [
        AddPartitionsToTxnTransaction(transactional_id=each, verify_only=verify, topics=topics[:1])
        for each in (TRANSACTIONAL_ID, "ghost")
        for verify in (True, False)
    ]
    return AddPartitionsToTxnRequest(transactions=transactions)


def add_offsets_to_txn(_broker: Broker, _version: int) -> Message:
    return AddOffsetsToTxnRequest(transactional_id=TRANSACTIONAL_ID, group_id=GROUP_ID)


def txn_offset_commit(broker: Broker, version: int) -> Message:
    topics = [
        TxnOffsetCommitRequestTopic(
            name=name if version < 6 else "",
            topic_id=topic_id if version >= 6 else ZERO_UUID,
            partitions=[TxnOffsetCommitRequestPartition(partition_index=i) for i in (0, 9)],
        )
        for name, topic_id in topic_ids(broker)
    ]
    return TxnOffsetCommitRequest(
        transactional_id=TRANSACTIONAL_ID, group_id=GROUP_ID, topics=topics
    )


def end_txn(_broker: Broker, _version: int) -> Message:
    return EndTxnRequest(transactional_id=TRANSACTIONAL_ID, committed=True)


def write_txn_markers(_broker: Broker, _version: int) -> Message:
    topics = [WritableTxnMarkerTopic(name=name, partition_indexes=[0, 9]) for name in TOPICS]
    marker = WritableTxnMarker(producer_id=1, producer_epoch=0, topics=topics)
    return WriteTxnMarkersRequest(markers=[marker])


def describe_transactions(_broker: Broker, _version: int) -> Message:
    return DescribeTransactionsRequest(transactional_ids=[TRANSACTIONAL_ID, "ghost"])


def api_versions(_broker: Broker, _version: int) -> Message:
    return ApiVersionsRequest(client_software_name="test", client_software_version="1.0")


REQUESTS = {
    **GROUP_REQUESTS,
    "AddOffsetsToTxn": add_offsets_to_txn,
    "AddPartitionsToTxn": add_partitions_to_txn,
    "AlterConfigs": alter_configs,
    "ApiVersions": api_versions,
    "CreatePartitions": create_partitions,
    "CreateTopics": create_topics,
    "DeleteRecords": delete_records,
    "DeleteTopics": delete_topics,
    "DescribeConfigs": describe_configs,
    "DescribeProducers": describe_producers,
    "DescribeTransactions": describe_transactions,
    "EndTxn": end_txn,
    "Fetch": fetch,
    "InitProducerId": init_producer_id,
    "ListOffsets": list_offsets,
    "Metadata": metadata,
    "OffsetForLeaderEpoch": offset_for_leader_epoch,
    "Produce": produce,
    "TxnOffsetCommit": txn_offset_commit,
    "WriteTxnMarkers": write_txn_markers,
}
"""Those whose default, an empty request, would have an empty answer."""


def ask(broker: Broker, api: Api, version: int, request: Message) -> Message:
    with socket.create_connection(("127.0.0.1", broker.port), DEADLINE_SECONDS) as peer:
        for part in frame_request(request, api, version, 42, "test"):
            peer.sendall(part)
        with peer.makefile("rb") as stream:
            size = stream.read(4)
            assert len(size) == 4, "the broker hung up"
            answer = stream.read(*struct.unpack(">i", size))
    correlation_id, body = open_response(memoryview(answer), api, version)
    assert correlation_id == 42
    return api.response().decode(body, version)


@pytest.mark.parametrize(("api", "version"), CASES)
def test_it_answers(broker: Broker, api: Api, version: int) -> None:
    make = REQUESTS.get(api.name)
    request = api.request()() if make is None else make(broker, version)
    answer = ask(broker, api, version, request)
    assert isinstance(answer, api.response())
