"""DescribeTopicPartitions (key 75), version 0: topics and partitions, page by page (KIP-966).

Topics come in the order of their names, named ones or, if none is named, all. A page ends at the
client's limit or at ``max.request.partition.size.limit``, and then has a cursor to go on from.
Authorized operations are reported without being asked for: the request has no field for it.
"""

from odradek.broker.context import Answer, RequestContext
from odradek.broker.internal_topics import INTERNAL_TOPICS
from odradek.broker.reachability import is_reachable, offline_replicas
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.topic_names import check_topic_name
from odradek.metadata.authorized_operations import TOPIC_OPERATIONS
from odradek.metadata.partition import NO_LEADER, PartitionImage
from odradek.metadata.topics import TopicImage
from odradek.protocol.generated.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)


def handle(context: RequestContext, request: DescribeTopicPartitionsRequest) -> Answer:
    try:
        return _page(context, request)
    except ApiError as error:  # the response has no place for an error but its topics
        topics = [_refused(topic.name, error) for topic in request.topics]
        return DescribeTopicPartitionsResponse(topics=topics)


def _page(
    context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    limit = context.broker.config.max_request_partition_size_limit
    left = max(min(limit, request.response_partition_limit), 1)
    start_name, start = _start(request)
    response = DescribeTopicPartitionsResponse()
    for name in _names(context, request, start_name):
        if left == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = context.broker.image.topics.get(name)
        if topic is None:
            response.topics.append(_missing(name))
            continue
        first = start if name == start_name else 0
        end = min(first + left, len(topic.partitions))
        response.topics.append(_topic(context, topic, range(first, end)))
        if end < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=end)
            break
        left -= max(end - first, 0)
    return response


def _start(request: DescribeTopicPartitionsRequest) -> tuple[str, int]:
    """Return the first topic and its first partition."""
    cursor = request.cursor
    if cursor is None:
        return "", 0
    if cursor.partition_index < 0:
        problem = f"partition {cursor.partition_index} in the cursor"
        raise ApiError(ErrorCode.INVALID_REQUEST, problem)
    if request.topics and all(topic.name != cursor.topic_name for topic in request.topics):
        problem = f"the cursor's topic {cursor.topic_name} is not among the topics"
        raise ApiError(ErrorCode.INVALID_REQUEST, problem)
    return cursor.topic_name, cursor.partition_index


def _names(
    context: RequestContext, request: DescribeTopicPartitionsRequest, start_name: str
) -> list[str]:
    named = {topic.name for topic in request.topics} or set(context.broker.image.topics)
    return sorted(name for name in named if name >= start_name)


def _missing(name: str) -> DescribeTopicPartitionsResponseTopic:
    try:
        check_topic_name(name)
    except ApiError as error:
        return _refused(name, error)
    return _refused(name, ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name))


def _refused(name: str, error: ApiError) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=error.code,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _topic(
    context: RequestContext, topic: TopicImage, numbers: range
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[_partition(context, each, topic.partitions[each]) for each in numbers],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _partition(
    context: RequestContext, number: int, partition: PartitionImage
) -> DescribeTopicPartitionsResponsePartition:
    image, listener = context.broker.image, context.listener
    has_leader = is_reachable(image, partition.leader, listener)
    return DescribeTopicPartitionsResponsePartition(
        partition_index=number,
        leader_id=partition.leader if has_leader else NO_LEADER,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        # The Java client takes null for a bug, although the protocol allows it.
        eligible_leader_replicas=list(partition.elr),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=offline_replicas(image, partition, listener),
    )
