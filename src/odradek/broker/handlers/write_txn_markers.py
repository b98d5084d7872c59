"""WriteTxnMarkers (key 27), versions 1-2: write how transactions ended; from their coordinator.

Administrators send it too, to abort a transaction that hangs. v2 has the version of transactions.
"""

from odradek.broker.context import Answer, RequestContext
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


def handle(context: RequestContext, request: WriteTxnMarkersRequest) -> Answer:
    return WriteTxnMarkersResponse(markers=[_write(context, each) for each in request.markers])


def _write(context: RequestContext, marker: WritableTxnMarker) -> WritableTxnMarkerResult:
    topics = []
    for topic in marker.topics:
        partitions = [
            WritableTxnMarkerPartitionResult(
                partition_index=number,
                error_code=_append(context, marker, TopicPartition(topic.name, number)),
            )
            for number in topic.partition_indexes
        ]
        topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=partitions))
    return WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics)


def _append(
    context: RequestContext, marker: WritableTxnMarker, partition: TopicPartition
) -> ErrorCode:
    try:
        append_marker(
            context.node,
            partition,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            is_commit=marker.transaction_result,
            coordinator_epoch=marker.coordinator_epoch,
            transaction_version=marker.transaction_version,
        )
    except ApiError as error:
        return error.code
    return ErrorCode.NONE
