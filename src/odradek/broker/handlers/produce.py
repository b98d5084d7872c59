"""Produce (key 0), versions 3-13: append record batches to partitions. Hot path.

v9   flexible.  v10  current leader and node endpoints (tagged) with NOT_LEADER_OR_FOLLOWER: left
     out, as there is no other leader to name.  v13  topics by id.

Versions 0-2 are advertised, because librdkafka stops compressing otherwise, and refused.

Not implemented: transactional ids (versions are accepted, transactional batches are appended, the
coordinator is not asked), throttling.
"""

from odradek.broker.context import NO_REPLY, PENDING, Answer, RequestContext
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

VERSION_TOPIC_IDS = 13

Unflushed = dict[TopicPartition, PartitionProduceResponse]
"""What may be acknowledged only after a flush (``flush.messages``)."""


def handle(context: RequestContext, request: ProduceRequest) -> Answer:
    if request.acks not in (0, 1, -1):
        return _refuse_all(request, ErrorCode.INVALID_REQUIRED_ACKS)
    unflushed: Unflushed = {}
    now_ms = context.node.clock.now_ms()
    responses = [_topic(context, topic, now_ms, unflushed) for topic in request.topic_data]
    response = ProduceResponse(responses=responses)
    if request.acks == 0:
        return NO_REPLY
    if unflushed:

        def flushed(failed: list[TopicPartition]) -> None:
            for partition in failed:
                _take_back(unflushed[partition])
            context.reply(response)

        context.node.call_when_flushed(list(unflushed), flushed)
        return PENDING
    return response


def _take_back(answer: PartitionProduceResponse) -> None:
    """Acknowledge nothing that may not be on disk: a failed fsync is not tried again."""
    answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    answer.base_offset = answer.log_append_time_ms = answer.log_start_offset = -1


def _topic(
    context: RequestContext,
    topic: TopicProduceData,
    now_ms: int,
    unflushed: Unflushed,
) -> TopicProduceResponse:
    name = topic.name
    problem: ApiError | None = None
    if context.version >= VERSION_TOPIC_IDS:
        try:
            name = context.node.replicas.topic_name(topic.topic_id)
        except ApiError as error:
            problem = error
    done = []
    for partition in topic.partition_data:
        try:
            if problem is not None:
                raise problem
            done.append(_partition(context, name, partition, now_ms, unflushed))
        except ApiError as error:  # one bad partition must not fail its neighbours
            done.append(_refused(partition, error))
    return TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=done)


def _partition(
    context: RequestContext,
    topic: str,
    data: PartitionProduceData,
    now_ms: int,
    unflushed: Unflushed,
) -> PartitionProduceResponse:
    partition = TopicPartition(topic, data.index)
    replicas = context.node.replicas
    replica = replicas.leader(partition)
    if not isinstance(data.records, memoryview):
        raise ApiError(ErrorCode.INVALID_RECORD, "no records")
    result = replicas.append(replica, data.records, now_ms)
    answer = PartitionProduceResponse(
        index=data.index,
        base_offset=result.base_offset,
        log_append_time_ms=result.log_append_time_ms,
        log_start_offset=replica.log.log_start_offset,
    )
    if result.is_flush_due:
        unflushed[partition] = answer
    return answer


def _refused(partition: PartitionProduceData, error: ApiError) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=partition.index,
        error_code=error.code,
        base_offset=-1,
        error_message=error.message or None,
    )


def _refuse_all(request: ProduceRequest, code: ErrorCode) -> ProduceResponse:
    error = ApiError(code, f"acks={request.acks}")
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[_refused(p, error) for p in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )
