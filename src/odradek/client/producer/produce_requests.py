"""Produce requests of batches, and which answer is for which batch."""

from collections.abc import Sequence
from typing import Final

from odradek.client.metadata import ClusterMetadata
from odradek.client.producer.batch import ProducerBatch
from odradek.client.producer.settings import ProducerOptions
from odradek.client.producer.transaction import Transaction
from odradek.core.ids import ZERO_UUID, TopicPartition
from odradek.protocol.apis import api_named
from odradek.protocol.generated.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.wire.connection import Versions

PRODUCE: Final = api_named("Produce")
VERSION_TOPIC_IDS: Final = 13
_VERSION_BY_NAME_MAX: Final = 12
_VERSION_V1_TRANSACTIONS_MAX: Final = 11
"""From the next one on a broker adds partitions to transactions itself (KIP-890)."""


def newest_version(
    versions: Versions,
    batches: Sequence[ProducerBatch],
    metadata: ClusterMetadata,
    transaction: Transaction | None,
) -> int:
    """Return the version to send batches in.

    Raises:
        UnsupportedError: There is none.
    """
    version_max = None
    if transaction is not None and not transaction.is_v2:
        version_max = _VERSION_V1_TRANSACTIONS_MAX
    elif any(metadata.topic_id(batch.partition.topic) == ZERO_UUID for batch in batches):
        version_max = _VERSION_BY_NAME_MAX
    return versions.newest(PRODUCE, version_max)


def make_request(
    batches: Sequence[ProducerBatch],
    version: int,
    metadata: ClusterMetadata,
    options: ProducerOptions,
) -> ProduceRequest:
    topics: dict[str, TopicProduceData] = {}
    for batch in batches:
        name, partition = batch.partition
        topic = topics.get(name)
        if topic is None:
            if version >= VERSION_TOPIC_IDS:
                topic = TopicProduceData(topic_id=metadata.topic_id(name))
            else:
                topic = TopicProduceData(name=name)
            topics[name] = topic
        topic.partition_data.append(PartitionProduceData(index=partition, records=batch.build()))
    return ProduceRequest(
        transactional_id=options.transactional_id,
        acks=options.acks,
        timeout_ms=options.request_timeout_ms,
        topic_data=list(topics.values()),
    )


def topic_ids_of(request: ProduceRequest, batches: Sequence[ProducerBatch]) -> dict[bytes, str]:
    """Return the names of the ids in a request: the metadata may know others by the answer's time.

    Topics are in the request in the order of their first batches.
    """
    names = list(dict.fromkeys(batch.partition.topic for batch in batches))
    return {topic.topic_id: name for topic, name in zip(request.topic_data, names, strict=True)}


def answers_in(
    response: ProduceResponse, names: dict[bytes, str]
) -> dict[TopicPartition, PartitionProduceResponse]:
    """Return the answers by partition."""
    return {
        TopicPartition(topic.name or names.get(topic.topic_id, ""), answer.index): answer
        for topic in response.responses
        for answer in topic.partition_responses
    }
