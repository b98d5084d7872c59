"""Fetch (key 1), versions 4-18: read record batches, waiting for them if asked to. Hot path.

v4   isolation level, aborted transactions.  v5  log start offset.  v7  fetch sessions (KIP-227).
v9   current leader epoch.  v11  rack id, preferred read replica.  v12  flexible, last fetched
epoch, diverging epoch.  v13  topics by id.  v15  replica state.  v17  replica directory id.
v18  high watermark of the follower.

Not implemented: fetch sessions (answered with session id 0: clients then send whole requests),
followers, preferred replicas, diverging epochs, throttling.
"""

from collections.abc import Iterator

from odradek.broker.context import PENDING, Answer, RequestContext
from odradek.broker.delayed import DelayedOperation
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from odradek.storage.log import Isolation

VERSION_TOPIC_IDS = 13
_ISOLATIONS = {0: Isolation.HIGH_WATERMARK, 1: Isolation.LAST_STABLE_OFFSET}


def handle(context: RequestContext, request: FetchRequest) -> Answer:
    if request.isolation_level not in _ISOLATIONS:
        return FetchResponse(error_code=ErrorCode.INVALID_REQUEST)
    if request.session_id:
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    response, is_enough = _read(context, request)
    if is_enough or request.max_wait_ms <= 0:
        return response
    context.node.delayed.wait(_DelayedFetch(context, request))
    return PENDING


class _DelayedFetch(DelayedOperation):
    """A fetch that waits for ``min_bytes``, at most ``max_wait_ms``."""

    __slots__ = ("_context", "_request")

    def __init__(self, context: RequestContext, request: FetchRequest) -> None:
        deadline_ms = context.node.clock.monotonic_ms() + request.max_wait_ms
        keys = [
            TopicPartition(name, partition.partition)
            for name, topic in _named_topics(context, request)
            for partition in topic.partitions
        ]
        super().__init__(deadline_ms, keys)
        self._context = context
        self._request = request

    def can_complete(self) -> bool:
        """Whether enough has come; from offsets and sizes, without reading."""
        context, request = self._context, self._request
        isolation = _ISOLATIONS[request.isolation_level]
        available = 0
        for name, topic in _named_topics(context, request):
            for wanted in topic.partitions:
                try:
                    replica = context.node.replicas.leader(
                        TopicPartition(name, wanted.partition), wanted.current_leader_epoch
                    )
                except ApiError:
                    return True  # the client must hear of it
                log = replica.log
                if not log.log_start_offset <= wanted.fetch_offset <= log.log_end_offset:
                    return True
                if log.end_offset(isolation) > wanted.fetch_offset:
                    available += min(
                        log.bytes_from(wanted.fetch_offset), wanted.partition_max_bytes
                    )
        return available >= request.min_bytes

    def complete(self) -> None:
        response, _ = _read(self._context, self._request)
        self._context.reply(response)


def _named_topics(
    context: RequestContext, request: FetchRequest
) -> Iterator[tuple[str, FetchTopic]]:
    """Iterate over the topics that have a name; the others are refused when they are read."""
    for topic in request.topics:
        if context.version < VERSION_TOPIC_IDS:
            yield topic.topic, topic
            continue
        try:
            yield context.node.replicas.topic_name(topic.topic_id), topic
        except ApiError:
            continue


def _read(context: RequestContext, request: FetchRequest) -> tuple[FetchResponse, bool]:
    """Read what there is; also say whether it is enough to answer at once."""
    left = min(request.max_bytes, context.node.config.fetch_max_bytes)
    total, has_error = 0, False
    topics: list[FetchableTopicResponse] = []
    for topic in request.topics:
        partitions = []
        for wanted in topic.partitions:
            data = _partition(context, request, topic, wanted, left, first=total == 0)
            size = len(data.records) if data.records is not None else 0
            total += size
            left = max(left - size, 0)
            has_error = has_error or data.error_code != 0
            partitions.append(data)
        topics.append(
            FetchableTopicResponse(
                topic=topic.topic, topic_id=topic.topic_id, partitions=partitions
            )
        )
    is_enough = has_error or total >= request.min_bytes or not topics
    return FetchResponse(responses=topics), is_enough


def _partition(
    context: RequestContext,
    request: FetchRequest,
    topic: FetchTopic,
    wanted: FetchPartition,
    left: int,
    *,
    first: bool,
) -> PartitionData:
    try:
        return _read_partition(context, request, topic, wanted, left, first=first)
    except ApiError as error:  # one bad partition must not fail its neighbours
        return PartitionData(
            partition_index=wanted.partition,
            error_code=error.code,
            high_watermark=-1,
            aborted_transactions=None,
            records=b"",
        )


def _read_partition(
    context: RequestContext,
    request: FetchRequest,
    topic: FetchTopic,
    wanted: FetchPartition,
    left: int,
    *,
    first: bool,
) -> PartitionData:
    replicas = context.node.replicas
    name = topic.topic
    if context.version >= VERSION_TOPIC_IDS:
        name = replicas.topic_name(topic.topic_id)
    partition = TopicPartition(name, wanted.partition)
    replica = replicas.leader(partition, wanted.current_leader_epoch)
    bytes_max = min(left, wanted.partition_max_bytes)
    isolation = _ISOLATIONS[request.isolation_level]
    result = replicas.read(replica, wanted.fetch_offset, bytes_max, isolation, first=first)
    aborted = None
    if result.aborted_transactions is not None:
        aborted = [
            AbortedTransaction(producer_id=a.producer_id, first_offset=a.first_offset)
            for a in result.aborted_transactions
        ]
    return PartitionData(
        partition_index=wanted.partition,
        high_watermark=replica.log.high_watermark,
        last_stable_offset=replica.log.last_stable_offset,
        log_start_offset=replica.log.log_start_offset,
        aborted_transactions=aborted,
        records=result.records,
    )
