"""DeleteRecords (key 21), versions 0-2: move the log start offset of partitions forward.

Offset -1 means everything up to the high watermark.  v2  flexible.

Alone, a leader need not wait for followers to delete too.
"""

from odradek.broker.context import RequestContext
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import TopicPartition
from odradek.core.slices import Steps
from odradek.protocol.generated.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from odradek.protocol.message import Message

HIGH_WATERMARK = -1
INVALID_LOW_WATERMARK = -1


def handle(context: RequestContext, request: DeleteRecordsRequest) -> Steps[Message]:
    response = DeleteRecordsResponse()
    for topic in request.topics:
        result = DeleteRecordsTopicResult(name=topic.name)
        response.topics.append(result)
        for query in topic.partitions:
            yield
            result.partitions.append(_partition(context, topic.name, query))
    return response


def _partition(
    context: RequestContext, topic: str, query: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    partition = TopicPartition(topic, query.partition_index)
    try:
        low_watermark = _delete(context, partition, query.offset)
    except ApiError as error:  # one bad partition must not fail its neighbours
        return DeleteRecordsPartitionResult(
            partition_index=query.partition_index,
            low_watermark=INVALID_LOW_WATERMARK,
            error_code=error.code,
        )
    return DeleteRecordsPartitionResult(
        partition_index=query.partition_index, low_watermark=low_watermark
    )


def _delete(context: RequestContext, partition: TopicPartition, offset: int) -> int:
    replicas = context.broker.replicas
    log = replicas.leader(partition).log
    if not log.config.delete and log.config.cleanup_policy:
        problem = f"{partition} has cleanup.policy without delete"
        raise ApiError(ErrorCode.POLICY_VIOLATION, problem)
    if offset < HIGH_WATERMARK:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{partition}: {offset}")
    with replicas.store.guard(partition):
        log.advance_log_start_offset(log.high_watermark if offset == HIGH_WATERMARK else offset)
    return log.log_start_offset
