"""OffsetCommit (key 8), versions 2-10: store how far a group has read.

v2-4  a retention of the client's own.  v6  leader epoch.  v7  static members.  v8  flexible.
v9  groups of the consumer protocol.  v10  topics by id.
"""

from collections.abc import Iterable
from typing import Any, Final

from odradek.broker.committed_topics import split_topics
from odradek.broker.context import PENDING, Answer, RequestContext
from odradek.core.errors import ErrorCode
from odradek.protocol.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from odradek.protocol.message import Message

VERSION_TOPIC_IDS: Final = 10


def handle(context: RequestContext, request: OffsetCommitRequest) -> Answer:
    by_id = context.version >= VERSION_TOPIC_IDS
    request.topics, unknown = split_topics(context.broker.image, request.topics, by_id=by_id)

    def deliver(message: Message) -> None:
        assert isinstance(message, OffsetCommitResponse)
        message.topics.extend(_refused(*each) for each in unknown)
        context.reply(message)

    if not request.topics:
        deliver(OffsetCommitResponse(topics=[]))
        return PENDING
    return context.broker.groups.write(
        context,
        request.group_id,
        lambda shard, caller, now: shard.commit(request, caller, now),
        lambda code: OffsetCommitResponse(
            topics=[_refused(each, each.partitions, code) for each in request.topics]
        ),
        deliver,
        is_blind=True,  # what others commit makes no difference to whether it is accepted
    )


def _refused(
    topic: OffsetCommitRequestTopic, partitions: Iterable[Any], code: ErrorCode
) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in partitions
        ],
    )
