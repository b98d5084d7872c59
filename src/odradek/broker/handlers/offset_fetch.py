"""OffsetFetch (key 9), versions 1-10: how far groups have read.

v2  all topics, error for the group.  v5  leader epoch.  v6  flexible.  v7  stable offsets only.
v8  several groups.  v9  member and epoch.  v10  topics by id.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from odradek.broker.context import PENDING, Answer, RequestContext
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import ZERO_UUID
from odradek.protocol.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

if TYPE_CHECKING:
    from odradek.coordinator.group.shard import GroupShard

VERSION_GROUP_ERROR = 2
VERSION_SEVERAL_GROUPS = 8
VERSION_TOPIC_IDS = 10
_NO_TOPIC_ID: Final = ZERO_UUID


def handle(context: RequestContext, request: OffsetFetchRequest) -> Answer:
    if context.version >= VERSION_SEVERAL_GROUPS:

        def fetched(groups: list[OffsetFetchResponseGroup]) -> None:
            context.reply(OffsetFetchResponse(groups=groups))

        _fetch(context, request.groups, request.require_stable, fetched)
        return PENDING
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=each.name, partition_indexes=each.partition_indexes)
            for each in request.topics
        ]
    group = OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)
    _fetch(
        context,
        [group],
        request.require_stable,
        lambda groups: context.reply(_as_single(groups[0])),
    )
    return PENDING


def _fetch(
    context: RequestContext,
    groups: list[OffsetFetchRequestGroup],
    require_stable: bool,
    then: Callable[[list[OffsetFetchResponseGroup]], None],
) -> None:
    context.broker.groups.read_each(
        groups,
        lambda group: group.group_id,
        lambda shard, group: _read(context, shard, group, require_stable),
        lambda group, code: _refused_group(context, group, code),
        then,
        # As Kafka: consumers before 3.9 do not retry after the other code, and the client of a
        # coordinator that is one no longer must look for the new one.
        timed_out=ErrorCode.NOT_COORDINATOR,
    )


def _read(
    context: RequestContext,
    shard: "GroupShard",
    group: OffsetFetchRequestGroup,
    require_stable: bool,
) -> OffsetFetchResponseGroup:
    has_ids = context.version >= VERSION_TOPIC_IDS
    refused = _take_unknown_ids(context, group) if has_ids else []
    try:
        answer = shard.fetch_offsets(group, require_stable=require_stable)
    except ApiError as error:
        return _refused_group(context, group, error.code)
    if has_ids:
        answer.topics = [each for each in answer.topics if _has_id(context, each)]
    answer.topics.extend(refused)
    return answer


def _take_unknown_ids(
    context: RequestContext, group: OffsetFetchRequestGroup
) -> list[OffsetFetchResponseTopics]:
    """Name the topics that exist, and take out those that do not."""
    if group.topics is None:
        return []
    refused, known = [], []
    for topic in group.topics:
        found = context.broker.image.topics_by_id.get(topic.topic_id)
        if found is None:
            refused.append(_refused(topic, ErrorCode.UNKNOWN_TOPIC_ID))
        else:
            topic.name = found.name
            known.append(topic)
    group.topics = known
    return refused


def _has_id(context: RequestContext, topic: OffsetFetchResponseTopics) -> bool:
    """Give a topic its id; one that has none any more cannot be answered for."""
    if topic.topic_id == _NO_TOPIC_ID:
        found = context.broker.image.topics.get(topic.name)
        if found is None:
            return False
        topic.topic_id = found.topic_id
    return True


def _refused_group(
    context: RequestContext, group: OffsetFetchRequestGroup, code: ErrorCode
) -> OffsetFetchResponseGroup:
    if context.version >= VERSION_GROUP_ERROR:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=code)
    topics = [_refused(each, code) for each in group.topics or ()]
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)


def _refused(topic: OffsetFetchRequestTopics, code: ErrorCode) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=number, committed_offset=-1, metadata="", error_code=code
            )
            for number in topic.partition_indexes
        ],
    )


def _as_single(group: OffsetFetchResponseGroup) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=each.partition_index,
                        committed_offset=each.committed_offset,
                        committed_leader_epoch=each.committed_leader_epoch,
                        metadata=each.metadata,
                        error_code=each.error_code,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )
