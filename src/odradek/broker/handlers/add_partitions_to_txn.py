"""AddPartitionsToTxn (key 24), versions 0-5: make partitions part of a transaction, or verify it.

v0-3  from producers, one transaction.  v2  PRODUCER_FENCED.  v3  flexible.  v4  from brokers,
several transactions, verification.  v5  TRANSACTION_ABORTABLE.
"""

from collections.abc import Callable, Sequence
from typing import Final

from odradek.broker.context import PENDING, Answer, RequestContext
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

VERSION_FENCED: Final = 2
VERSION_BATCHED: Final = 4
VERSION_ABORTABLE: Final = 5

Errors = dict[TopicPartition, ErrorCode]


def handle(context: RequestContext, request: AddPartitionsToTxnRequest) -> Answer:
    is_batched = context.version >= VERSION_BATCHED
    transactions = request.transactions if is_batched else [_single(request)]
    results: list[AddPartitionsToTxnResult] = []

    def decided(transactional_id: str, errors: Errors) -> None:
        result = AddPartitionsToTxnResult(
            transactional_id=transactional_id, topic_results=_by_topic(context, errors)
        )
        results.append(result)
        if len(results) < len(transactions):
            return
        if is_batched:
            context.reply(AddPartitionsToTxnResponse(results_by_transaction=results))
        else:
            (only,) = results
            context.reply(
                AddPartitionsToTxnResponse(results_by_topic_v3_and_below=only.topic_results)
            )

    if not transactions:
        return AddPartitionsToTxnResponse(results_by_transaction=[])
    for transaction in transactions:
        _add(context, transaction, decided)
    return PENDING


def _single(request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )


def _add(
    context: RequestContext,
    transaction: AddPartitionsToTxnTransaction,
    decided: Callable[[str, Errors], None],
) -> None:
    partitions = _partitions(transaction.topics)
    topics = context.broker.image.topics
    unknown = [
        each
        for each in partitions
        if each.topic not in topics or each.partition not in topics[each.topic].partitions
    ]
    if unknown:
        # All or none: what exists is told that it was not tried.
        errors = dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED)
        errors.update(dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        decided(transaction.transactional_id, errors)
        return
    context.broker.transactions.add_or_verify(
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        partitions,
        lambda errors: decided(transaction.transactional_id, errors),
        is_add=not transaction.verify_only,
        version=_transaction_version(context.version),
    )


def _transaction_version(api_version: int) -> int:
    """Return the version of transactions that whoever asks in this version works with."""
    return 0 if api_version < VERSION_BATCHED else 2


def _partitions(topics: Sequence[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, number) for topic in topics for number in topic.partitions]


def _by_topic(context: RequestContext, errors: Errors) -> list[AddPartitionsToTxnTopicResult]:
    results: dict[str, AddPartitionsToTxnTopicResult] = {}
    for partition, code in errors.items():
        topic = results.setdefault(
            partition.topic, AddPartitionsToTxnTopicResult(name=partition.topic)
        )
        topic.results_by_partition.append(
            AddPartitionsToTxnPartitionResult(
                partition_index=partition.partition,
                partition_error_code=_told(context.version, code),
            )
        )
    return list(results.values())


def _told(version: int, code: ErrorCode) -> ErrorCode:
    """Return the code as a client of this version knows it."""
    if code is ErrorCode.PRODUCER_FENCED and version < VERSION_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < VERSION_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    return code
