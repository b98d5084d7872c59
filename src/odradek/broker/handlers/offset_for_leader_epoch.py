"""OffsetForLeaderEpoch (key 23), versions 2-4: where a leader epoch ends.

v2  current leader epoch.  v3  replica id (a follower, or -1 for a consumer).  v4  flexible.
"""

from odradek.broker.context import RequestContext
from odradek.core.errors import ApiError
from odradek.core.ids import TopicPartition
from odradek.core.slices import Steps
from odradek.protocol.generated.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from odradek.protocol.message import Message


def handle(context: RequestContext, request: OffsetForLeaderEpochRequest) -> Steps[Message]:
    response = OffsetForLeaderEpochResponse()
    for topic in request.topics:
        result = OffsetForLeaderTopicResult(topic=topic.topic)
        response.topics.append(result)
        for query in topic.partitions:
            yield
            result.partitions.append(_partition(context, topic.topic, query))
    return response


def _partition(
    context: RequestContext, topic: str, query: OffsetForLeaderPartition
) -> EpochEndOffset:
    partition = TopicPartition(topic, query.partition)
    try:
        led = context.broker.replicas.leader(partition, query.current_leader_epoch)
    except ApiError as error:  # one bad partition must not fail its neighbours
        return EpochEndOffset(partition=query.partition, error_code=error.code)
    log = led.log
    end = log.leader_epochs.end_offset_for(query.leader_epoch, log.log_end_offset)
    return EpochEndOffset(
        partition=query.partition, leader_epoch=end.epoch, end_offset=end.end_offset
    )
