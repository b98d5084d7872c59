"""Bytes of famous messages, written by hand from Kafka's protocol guide.

The other tests judge the generator by the definitions it reads or by another generator. These were
worked out field by field with a pencil, so an error that all of them share would show here. Each
line of hex is a field or a group of fields; spaces mean nothing.
"""

from typing import NamedTuple

import pytest

from odradek.core.ids import Uuid
from odradek.protocol.generated import consumer_group_heartbeat as heartbeat
from odradek.protocol.generated import fetch, list_offsets, metadata, offset_fetch, produce
from odradek.protocol.generated.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    SupportedFeatureKey,
)
from odradek.protocol.generated.consumer_protocol import (
    ConsumerProtocolSubscription,
    TopicPartition,
)
from odradek.protocol.generated.control_records import EndTxnMarker
from odradek.protocol.generated.headers import RequestHeader, ResponseHeader
from odradek.protocol.generated.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.generated.metadata_records import (
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)
from odradek.protocol.generated.offset_records import (
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitValue,
)
from odradek.protocol.generated.sasl_handshake import SaslHandshakeResponse
from odradek.protocol.generated.transaction_records import PartitionsSchema, TransactionLogValue
from odradek.protocol.message import Message

TOPIC_ID = Uuid(range(16))


class Golden(NamedTuple):
    name: str
    version: int
    message: Message
    hex: str


GOLDEN = [
    Golden(
        "request header without tags",
        1,
        RequestHeader(request_api_key=18, request_api_version=0, correlation_id=7, client_id="abc"),
        "0012 0000 00000007  0003 616263",
    ),
    Golden(
        "flexible request header: the client id keeps its two-byte length",
        2,
        RequestHeader(request_api_key=18, request_api_version=3, correlation_id=-2, client_id=None),
        "0012 0003 fffffffe  ffff  00",
    ),
    Golden("response header", 0, ResponseHeader(correlation_id=7), "00000007"),
    Golden("flexible response header", 1, ResponseHeader(correlation_id=7), "00000007 00"),
    Golden("the first request of an old client has no body", 0, ApiVersionsRequest(), ""),
    Golden(
        "the first request of librdkafka",
        3,
        ApiVersionsRequest(client_software_name="librdkafka", client_software_version="2.3.0"),
        "0b 6c696272646b61666b61  06 322e332e30  00",
    ),
    Golden(
        "api versions, the answer every client can read",
        0,
        ApiVersionsResponse(
            error_code=35, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)]
        ),
        "0023  00000001  0012 0000 0004",
    ),
    Golden(
        "api versions with a supported feature in a tagged field",
        3,
        ApiVersionsResponse(
            api_keys=[ApiVersion(api_key=1, min_version=4, max_version=18)],
            throttle_time_ms=1,
            supported_features=[SupportedFeatureKey(name="kf", min_version=0, max_version=1)],
        ),
        # One tagged field: tag 0, nine bytes, one feature with its own empty tags.
        "0000  02  0001 0004 0012 00  00000001  01  00 09  02 03 6b66 0000 0001 00",
    ),
    Golden(
        "metadata of one topic",
        1,
        metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name="t")]),
        "00000001 0001 74",
    ),
    Golden("metadata of all topics", 1, metadata.MetadataRequest(topics=None), "ffffffff"),
    Golden("metadata of all topics, oldest form", 0, metadata.MetadataRequest(), "00000000"),
    Golden(
        "metadata by topic id",
        12,
        metadata.MetadataRequest(
            topics=[metadata.MetadataRequestTopic(topic_id=TOPIC_ID, name=None)],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
        ),
        "02  000102030405060708090a0b0c0d0e0f 00 00  00 01 00",
    ),
    Golden(
        "metadata response with one broker and one partition",
        1,
        metadata.MetadataResponse(
            brokers=[metadata.MetadataResponseBroker(node_id=1, host="h", port=9092)],
            controller_id=1,
            topics=[
                metadata.MetadataResponseTopic(
                    name="t",
                    partitions=[
                        metadata.MetadataResponsePartition(
                            leader_id=1, replica_nodes=[1, 2], isr_nodes=[1]
                        )
                    ],
                )
            ],
        ),
        """00000001  00000001 0001 68 00002384 ffff
           00000001
           00000001  0000 0001 74 00
           00000001  0000 00000000 00000001 00000002 00000001 00000002 00000001 00000001
        """,
    ),
    Golden(
        "produce before flexible versions",
        3,
        produce.ProduceRequest(
            acks=-1,
            timeout_ms=30000,
            topic_data=[
                produce.TopicProduceData(
                    name="t",
                    partition_data=[produce.PartitionProduceData(index=2, records=b"\xca\xfe")],
                )
            ],
        ),
        "ffff ffff 00007530  00000001 0001 74  00000001 00000002 00000002 cafe",
    ),
    Golden(
        "produce, flexible",
        9,
        produce.ProduceRequest(
            transactional_id="x",
            acks=1,
            timeout_ms=30000,
            topic_data=[
                produce.TopicProduceData(
                    name="t",
                    partition_data=[produce.PartitionProduceData(index=2, records=b"\xca\xfe")],
                )
            ],
        ),
        "02 78 0001 00007530  02 02 74  02 00000002 03 cafe 00  00 00",
    ),
    Golden(
        "fetch by topic id with every tagged field unset",
        17,
        fetch.FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=0x03200000,
            topics=[
                fetch.FetchTopic(
                    topic_id=TOPIC_ID,
                    partitions=[fetch.FetchPartition(fetch_offset=5, partition_max_bytes=0x100000)],
                )
            ],
        ),
        """000001f4 00000001 03200000 00  00000000 ffffffff
           02 000102030405060708090a0b0c0d0e0f
           02 00000000 ffffffff 0000000000000005 ffffffff ffffffffffffffff 00100000 00
           00  01 01 00
        """,
    ),
    Golden(
        "fetch by a follower: the replica state is tag 1",
        15,
        fetch.FetchRequest(
            replica_state=fetch.ReplicaState(replica_id=3, replica_epoch=9), max_bytes=1
        ),
        """00000000 00000000 00000001 00  00000000 ffffffff  01 01 01
           01  01 0d  00000003 0000000000000009 00
        """,
    ),
    Golden(
        "list offsets: the latest offset",
        1,
        list_offsets.ListOffsetsRequest(
            replica_id=-1,
            topics=[
                list_offsets.ListOffsetsTopic(
                    name="t", partitions=[list_offsets.ListOffsetsPartition(timestamp=-1)]
                )
            ],
        ),
        "ffffffff  00000001 0001 74  00000001 00000000 ffffffffffffffff",
    ),
    Golden(
        "offset fetch: all topics of a group",
        8,
        offset_fetch.OffsetFetchRequest(
            groups=[offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=None)],
            require_stable=True,
        ),
        "02 02 67 00 00  01 00",
    ),
    Golden(
        "join group with the consumer protocol",
        5,
        JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10000,
            rebalance_timeout_ms=300000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\x00\x01")],
        ),
        """0001 67  00002710 000493e0  0000  ffff  0008 636f6e73756d6572
           00000001 0005 72616e6765 00000002 0001
        """,
    ),
    Golden(
        "subscription inside join group",
        1,
        ConsumerProtocolSubscription(
            topics=["t"], owned_partitions=[TopicPartition(topic="t", partitions=[0])]
        ),
        "00000001 0001 74  ffffffff  00000001 0001 74 00000001 00000000",
    ),
    Golden(
        "first heartbeat of the new consumer protocol",
        0,
        heartbeat.ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="",
            rebalance_timeout_ms=300000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        ),
        "02 67 01 00000000 00 00 000493e0  02 02 74  00  01 00",
    ),
    Golden(
        "answer with an assignment: a nullable struct starts with 1",
        0,
        heartbeat.ConsumerGroupHeartbeatResponse(
            member_epoch=1,
            heartbeat_interval_ms=5000,
            assignment=heartbeat.Assignment(
                topic_partitions=[heartbeat.TopicPartitions(topic_id=TOPIC_ID, partitions=[0, 1])]
            ),
        ),
        """00000000 0000 00 00 00000001 00001388
           01  02 000102030405060708090a0b0c0d0e0f 03 00000000 00000001 00  00
           00
        """,
    ),
    Golden(
        "answer without an assignment: null is -1",
        0,
        heartbeat.ConsumerGroupHeartbeatResponse(error_code=25, error_message="no"),
        "00000000 0019 03 6e6f 00 00000000 00000000  ff  00",
    ),
    Golden(
        "SASL mechanisms, one of the few that never became flexible",
        1,
        SaslHandshakeResponse(mechanisms=["PLAIN", "S"]),
        "0000 00000002 0005 504c41494e 0001 53",
    ),
    Golden("transaction marker", 0, EndTxnMarker(coordinator_epoch=3), "00000003"),
    Golden(
        "topic record of the metadata log",
        0,
        TopicRecord(name="foo", topic_id=TOPIC_ID),
        "04 666f6f 000102030405060708090a0b0c0d0e0f 00",
    ),
    Golden(
        "partition record: three tagged fields, the first of them among untagged ones",
        2,
        PartitionRecord(
            partition_id=1,
            topic_id=TOPIC_ID,
            replicas=[1, 2],
            isr=[1],
            leader=1,
            leader_recovery_state=1,
            leader_epoch=5,
            partition_epoch=6,
            directories=[TOPIC_ID],
            eligible_leader_replicas=[2],
            last_known_elr=[],
        ),
        """00000001 000102030405060708090a0b0c0d0e0f
           03 00000001 00000002  02 00000001  01  01  00000001  00000005 00000006
           02 000102030405060708090a0b0c0d0e0f
           03  00 01 01  01 05 02 00000002  02 01 01
        """,
    ),
    Golden(
        "partition change: only what changed is sent",
        0,
        PartitionChangeRecord(partition_id=1, topic_id=TOPIC_ID, isr=[3], leader=-1),
        """00000001 000102030405060708090a0b0c0d0e0f
           02  00 05 02 00000003  01 04 ffffffff
        """,
    ),
    Golden(
        "committed offset",
        3,
        OffsetCommitValue(offset=42, leader_epoch=7, metadata="m", commit_timestamp=1000),
        "000000000000002a 00000007 0001 6d 00000000000003e8",
    ),
    Golden(
        "classic group with one member",
        3,
        GroupMetadataValue(
            protocol_type="consumer",
            generation=2,
            protocol="range",
            leader="m",
            current_state_timestamp=1000,
            members=[
                MemberMetadata(
                    member_id="m",
                    client_id="c",
                    client_host="/h",
                    rebalance_timeout=300000,
                    session_timeout=10000,
                    subscription=b"\x01",
                    assignment=b"",
                )
            ],
        ),
        """0008 636f6e73756d6572  00000002  0005 72616e6765  0001 6d  00000000000003e8
           00000001  0001 6d  ffff  0001 63  0002 2f68  000493e0 00002710
           00000001 01  00000000
        """,
    ),
    Golden(
        "transaction state: tags in ascending order, whatever the order of the fields",
        1,
        TransactionLogValue(
            producer_id=9,
            previous_producer_id=8,
            producer_epoch=1,
            next_producer_epoch=2,
            transaction_timeout_ms=60000,
            transaction_status=1,
            transaction_partitions=[PartitionsSchema(topic="t", partition_ids=[0])],
            transaction_last_update_timestamp_ms=1,
            transaction_start_timestamp_ms=2,
            client_transaction_version=2,
        ),
        """0000000000000009 0001 0000ea60 01  02 02 74 02 00000000 00
           0000000000000001 0000000000000002
           03  00 08 0000000000000008  02 02 0002  03 02 0002
        """,
    ),
]


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda g: g.name)
def test_message_encodes_to_the_bytes_worked_out_by_hand(golden: Golden) -> None:
    assert golden.message.to_bytes(golden.version).hex() == bytes.fromhex(golden.hex).hex()


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda g: g.name)
def test_bytes_worked_out_by_hand_decode_to_the_message(golden: Golden) -> None:
    decoded, end = type(golden.message).decode_from(bytes.fromhex(golden.hex), 0, golden.version)
    assert decoded == golden.message
    assert end == len(bytes.fromhex(golden.hex))


def test_lengths_take_a_second_varint_byte_from_127_on() -> None:
    """The compact length is one more than the length: 126 gives 7f, 127 gives 80 01."""
    for length, encoded in ((126, b"\x7f"), (127, b"\x80\x01"), (300, b"\xad\x02")):
        data = ApiVersionsRequest(client_software_name="n" * length).to_bytes(3)
        assert data == encoded + b"n" * length + b"\x01\x00"
