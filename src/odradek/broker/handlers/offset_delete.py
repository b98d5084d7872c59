"""OffsetDelete (key 47), version 0: forget offsets of topics that a group reads no more."""

from odradek.broker.context import PENDING, Answer, RequestContext
from odradek.core.errors import ErrorCode
from odradek.protocol.generated.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from odradek.protocol.message import Message


def handle(context: RequestContext, request: OffsetDeleteRequest) -> Answer:
    if not request.group_id:
        return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    topics = context.broker.image.topics
    refused = [_refused(each) for each in request.topics if each.name not in topics]
    request.topics = [each for each in request.topics if each.name in topics]

    def deliver(message: Message) -> None:
        assert isinstance(message, OffsetDeleteResponse)
        if not message.error_code:
            message.topics.extend(refused)
        context.reply(message)

    if not request.topics:
        deliver(OffsetDeleteResponse(topics=[]))
        return PENDING
    return context.broker.groups.write(
        context,
        request.group_id,
        lambda shard, caller, _now: shard.delete_offsets(request, caller),
        lambda code: OffsetDeleteResponse(error_code=code),
        deliver,
    )


def _refused(topic: OffsetDeleteRequestTopic) -> OffsetDeleteResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return OffsetDeleteResponseTopic(
        name=topic.name,
        partitions=[
            OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in topic.partitions
        ],
    )
