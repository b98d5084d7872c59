"""DeleteRecords (key 21), versions 0-2: move the log start offset of partitions forward.

Offset -1 means everything up to the high watermark.  v2  flexible.

Answered when all living replicas have deleted as much, with the offset at which the last of them
begins, or with REQUEST_TIMED_OUT: followers learn it with their next fetch. What the leader has
deleted stays deleted.
"""

from odradek.broker.commit_wait import DelayedDeleteRecords
from odradek.broker.context import PENDING, Answer, RequestContext
from odradek.broker.partition import Partition
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

HIGH_WATERMARK = -1
INVALID_LOW_WATERMARK = -1


_Deleted = tuple[DeleteRecordsPartitionResult, Partition, int]
"""An answer, the partition it is about, and from where on that is to have records."""


def handle(context: RequestContext, request: DeleteRecordsRequest) -> Steps[Answer]:
    response = DeleteRecordsResponse()
    deleted: list[_Deleted] = []
    for topic in request.topics:
        result = DeleteRecordsTopicResult(name=topic.name)
        response.topics.append(result)
        for query in topic.partitions:
            yield
            result.partitions.append(_partition(context, topic.name, query, deleted))
    if all(partition.low_watermark >= offset for _, partition, offset in deleted):
        return response
    broker = context.broker
    deadline_ms = broker.clock.monotonic_ms() + request.timeout_ms

    def done(codes: list[ErrorCode]) -> None:
        for (answer, partition, _), code in zip(deleted, codes, strict=True):
            answer.error_code = code
            answer.low_watermark = INVALID_LOW_WATERMARK
            if partition.is_leader:
                answer.low_watermark = partition.low_watermark
        context.reply(response)

    DelayedDeleteRecords(broker.delayed, deadline_ms, [each[1:] for each in deleted], done)
    return PENDING


def _partition(
    context: RequestContext, topic: str, query: DeleteRecordsPartition, deleted: list[_Deleted]
) -> DeleteRecordsPartitionResult:
    at = TopicPartition(topic, query.partition_index)
    try:
        partition = context.broker.replicas.leader(at)
        offset = _delete(context, partition, query.offset)
    except ApiError as error:  # one bad partition must not fail its neighbours
        return DeleteRecordsPartitionResult(
            partition_index=query.partition_index,
            low_watermark=INVALID_LOW_WATERMARK,
            error_code=error.code,
        )
    result = DeleteRecordsPartitionResult(
        partition_index=query.partition_index, low_watermark=partition.low_watermark
    )
    deleted.append((result, partition, offset))
    return result


def _delete(context: RequestContext, partition: Partition, offset: int) -> int:
    """Delete what is before an offset, here; return the offset."""
    log = partition.log
    if not log.config.delete and log.config.cleanup_policy:
        problem = f"{partition.key} has cleanup.policy without delete"
        raise ApiError(ErrorCode.POLICY_VIOLATION, problem)
    if offset < HIGH_WATERMARK:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{partition.key}: {offset}")
    if offset == HIGH_WATERMARK:
        offset = log.high_watermark
    with context.broker.replicas.store.guard(partition.key):
        log.advance_log_start_offset(offset)
    return offset
