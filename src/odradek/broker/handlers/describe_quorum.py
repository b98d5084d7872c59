"""DescribeQuorum (key 55), versions 0-2: who votes on the metadata log, and how far each has read.

v1  when a replica last fetched and was caught up.  v2  directory ids, error messages, the voters'
endpoints if the log names its voters (kraft.version 1).
"""

from pathlib import PurePath

from odradek.broker.context import Answer, RequestContext
from odradek.broker.metadata_log import METADATA_PARTITION
from odradek.core.errors import ErrorCode
from odradek.core.ids import ZERO_UUID, TopicPartition, Uuid
from odradek.protocol.generated.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)


def handle(context: RequestContext, request: DescribeQuorumRequest) -> Answer:
    topics = [
        ResponseTopicData(
            topic_name=topic.topic_name,
            partitions=[
                _partition(context, TopicPartition(topic.topic_name, each.partition_index))
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    nodes = _nodes(context)
    return DescribeQuorumResponse(
        error_message=None, topics=topics, nodes=nodes if context.version >= 2 else []
    )


def _nodes(context: RequestContext) -> list[Node]:
    voters = context.node.metadata.voters
    if voters is None:
        return [Node(node_id=context.node.node_id)]
    return [
        Node(
            node_id=voter.voter_id,
            listeners=[
                Listener(name=each.name, host=each.host, port=each.port) for each in voter.endpoints
            ],
        )
        for voter in voters.voters
    ]


def _partition(context: RequestContext, partition: TopicPartition) -> ResponsePartitionData:
    if partition != METADATA_PARTITION:
        return ResponsePartitionData(
            partition_index=partition.partition,
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            error_message=f"{partition} has no quorum",
        )
    node, now_ms = context.node, context.node.clock.now_ms()
    log = node.metadata.log
    leader = ReplicaState(
        replica_id=node.node_id,
        replica_directory_id=_directory_id(context) if context.version >= 2 else ZERO_UUID,
        log_end_offset=log.log_end_offset,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    return ResponsePartitionData(
        partition_index=partition.partition,
        error_message=None,
        leader_id=node.node_id,
        leader_epoch=node.metadata.epoch,
        high_watermark=log.high_watermark,
        current_voters=[leader],
    )


def _directory_id(context: RequestContext) -> Uuid:
    folder = PurePath(context.node.config.metadata_log_dir)
    for directory in context.node.store.directories:
        if directory.path == folder and directory.directory_id is not None:
            return directory.directory_id
    return ZERO_UUID
