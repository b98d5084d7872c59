"""DescribeProducers (key 61), version 0: who writes to partitions (KIP-664).

Idempotent producers that wrote within ``producer.id.expiration.ms``, and where the transaction
began that one has open.
"""

from odradek.broker.context import RequestContext
from odradek.core.errors import ApiError
from odradek.core.ids import TopicPartition
from odradek.core.slices import Steps
from odradek.core.topic_names import check_topic_name
from odradek.protocol.generated.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from odradek.protocol.message import Message

NO_OFFSET = -1


def handle(context: RequestContext, request: DescribeProducersRequest) -> Steps[Message]:
    response = DescribeProducersResponse()
    for topic in request.topics:
        result = TopicResponse(name=topic.name)
        response.topics.append(result)
        for query in topic.partition_indexes:
            yield
            result.partitions.append(_partition(context, topic.name, query))
    return response


def _partition(context: RequestContext, topic: str, number: int) -> PartitionResponse:
    try:
        check_topic_name(topic)
        led = context.broker.replicas.leader(TopicPartition(topic, number))
    except ApiError as error:  # one bad partition must not fail its neighbours
        return PartitionResponse(
            partition_index=number, error_code=error.code, error_message=error.message or None
        )
    producers = []
    for producer_id, state in led.log.producer_states.active_producers.items():
        open_at = state.current_txn_first_offset
        producers.append(
            ProducerState(
                producer_id=producer_id,
                producer_epoch=state.producer_epoch,
                last_sequence=state.last_sequence,
                last_timestamp=state.last_timestamp,
                coordinator_epoch=state.coordinator_epoch,
                current_txn_start_offset=NO_OFFSET if open_at is None else open_at,
            )
        )
    return PartitionResponse(partition_index=number, active_producers=producers)
