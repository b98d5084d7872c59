"""WriteTxnMarkers (key 27), versions 1-2: write how transactions ended; from their coordinator.

Administrators send it too, to abort a transaction that hangs. v2 has the version of transactions.

Answered when all markers are committed, or after ``request.timeout.ms`` with REQUEST_TIMED_OUT.

A partition that has no replica here is UNKNOWN_TOPIC_OR_PARTITION, also if it exists elsewhere.
A marker without a producer, or of a negative transaction version, is refused with INVALID_REQUEST
for its own partitions. Kafka fails over it and answers UNKNOWN_SERVER_ERROR for the whole request.
"""

from odradek.broker.commit_wait import Appended, CommitWait
from odradek.broker.context import PENDING, Answer, RequestContext
from odradek.broker.transaction_markers import append_marker
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

_Written = tuple[WritableTxnMarkerPartitionResult, Appended]


def handle(context: RequestContext, request: WriteTxnMarkersRequest) -> Answer:
    results = [_write(context, each) for each in request.markers]
    response = WriteTxnMarkersResponse(markers=[result for result, _ in results])
    appended = [each for _, appended in results for each in appended]

    def committed(codes: list[ErrorCode]) -> None:
        for (answer, _), code in zip(appended, codes, strict=True):
            answer.error_code = code
        context.reply(response)

    broker = context.broker
    timeout_ms = broker.config.integer("request.timeout.ms")
    deadline_ms = broker.clock.monotonic_ms() + timeout_ms
    CommitWait(broker.delayed, deadline_ms, [each for _, each in appended], committed)
    return PENDING


def _write(
    context: RequestContext, marker: WritableTxnMarker
) -> tuple[WritableTxnMarkerResult, list[_Written]]:
    topics, written = [], []
    for topic in marker.topics:
        partitions = []
        for number in topic.partition_indexes:
            answer = WritableTxnMarkerPartitionResult(partition_index=number)
            partitions.append(answer)
            try:
                appended = _append(context, marker, TopicPartition(topic.name, number))
            except ApiError as error:
                answer.error_code = error.code
            else:
                written.append((answer, appended))
        topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=partitions))
    return WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics), written


def _append(
    context: RequestContext, marker: WritableTxnMarker, partition: TopicPartition
) -> Appended:
    if context.broker.replicas.find(partition) is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{partition} has no replica here")
    if marker.producer_id < 0 or marker.producer_epoch < 0 or marker.transaction_version < 0:
        raise ApiError(ErrorCode.INVALID_REQUEST, "a marker without a producer")
    return append_marker(
        context.broker,
        partition,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        is_commit=marker.transaction_result,
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.transaction_version,
    )
