"""TxnOffsetCommit (key 28), versions 0-6: commit a group's offsets inside a transaction.

v2  leader epoch.  v3  flexible, member and generation.  v4  TRANSACTION_ABORTABLE.  v5  the broker
makes the group's partition part of the transaction (KIP-890).  v6  topics by id.
"""

from collections.abc import Iterable
from typing import Any, Final

from odradek.broker.committed_topics import split_topics
from odradek.broker.context import PENDING, Answer, RequestContext
from odradek.broker.transaction_verification import verify
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from odradek.protocol.message import Message

VERSION_LOADING: Final = 2
VERSION_ABORTABLE: Final = 4
VERSION_ADDS_PARTITION: Final = 5
VERSION_TOPIC_IDS: Final = 6

# Clients know these from coordinators of groups, and try again: the first without looking for the
# group's coordinator, which is not to blame if that of the transaction is not reached.
_UNVERIFIED: Final = {
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}


def handle(context: RequestContext, request: TxnOffsetCommitRequest) -> Answer:
    by_id = context.version >= VERSION_TOPIC_IDS
    request.topics, unknown = split_topics(context.broker.image, request.topics, by_id=by_id)

    def deliver(message: Message) -> None:
        assert isinstance(message, TxnOffsetCommitResponse)
        message.topics.extend(_refused(*each) for each in unknown)
        context.reply(message)

    def refuse(code: ErrorCode) -> TxnOffsetCommitResponse:
        told = _told(context.version, code)
        topics = [_refused(each, each.partitions, told) for each in request.topics]
        return TxnOffsetCommitResponse(topics=topics)

    def verified(errors: dict[TopicPartition, ErrorCode]) -> None:
        (code,) = errors.values()
        if code:
            deliver(refuse(_UNVERIFIED.get(code, code)))
            return
        context.broker.groups.write(
            context,
            request.group_id,
            lambda shard, caller, now: shard.commit_in_transaction(request, caller, now),
            refuse,
            deliver,
        )

    if not request.topics:
        deliver(TxnOffsetCommitResponse(topics=[]))
        return PENDING
    if not request.group_id:
        deliver(refuse(ErrorCode.INVALID_GROUP_ID))
        return PENDING
    try:
        partition = context.broker.groups.partition_for(request.group_id)
    except ApiError as error:
        deliver(refuse(error.code))
        return PENDING
    is_add = context.version >= VERSION_ADDS_PARTITION
    verify(
        context.broker,
        request.transactional_id,
        (request.producer_id, request.producer_epoch),
        {partition: None},
        verified,
        is_add=is_add,
        version=2 if is_add else 0,
    )
    return PENDING


def _told(version: int, code: ErrorCode) -> ErrorCode:
    """Return the code as a client of this version knows it."""
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < VERSION_LOADING:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return ErrorCode.NOT_COORDINATOR
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < VERSION_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    return code


def _refused(
    topic: TxnOffsetCommitRequestTopic, partitions: Iterable[Any], code: ErrorCode
) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in partitions
        ],
    )
