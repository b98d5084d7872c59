"""Fetch requests in every version, and the parts of their answers under topic names. Pure."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from odradek.client.consumer.fetch_session import SessionRequest, Wanted
from odradek.client.metadata import ClusterMetadata
from odradek.core.ids import ZERO_UUID, TopicPartition, Uuid
from odradek.protocol.generated.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)

NAMES_VERSION_MAX: Final = 12
"""The last version that names topics by their names."""


class FetchOptions(NamedTuple):
    min_bytes: int
    max_bytes: int
    isolation_level: int
    rack_id: str


def version_max(wanted: Mapping[TopicPartition, Wanted]) -> int | None:
    """Return the newest version that can ask for this: ids only if all are known."""
    has_ids = all(each.topic_id != ZERO_UUID for each in wanted.values())
    return None if has_ids else NAMES_VERSION_MAX


def build_request(
    request: SessionRequest, options: FetchOptions, max_wait_ms: int
) -> Callable[[int], FetchRequest]:
    """Return the request as a function of the version."""

    def build(version: int) -> FetchRequest:
        by_id = version > NAMES_VERSION_MAX
        fields = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=options.min_bytes,
            max_bytes=options.max_bytes,
            isolation_level=options.isolation_level,
            session_id=request.session_id,
            session_epoch=request.epoch,
            topics=_topics(request.send, by_id=by_id),
            rack_id=options.rack_id,
        )
        if request.forget:
            fields.forgotten_topics_data = _forgotten(request.forget, by_id=by_id)
        return fields

    return build


def _topics(wanted: Mapping[TopicPartition, Wanted], *, by_id: bool) -> list[FetchTopic]:
    topics: dict[tuple[str, Uuid], FetchTopic] = {}
    for (name, number), each in wanted.items():
        topic = topics.get((name, each.topic_id))
        if topic is None:
            topic = FetchTopic(topic_id=each.topic_id) if by_id else FetchTopic(topic=name)
            topics[name, each.topic_id] = topic
        topic.partitions.append(
            FetchPartition(
                partition=number,
                current_leader_epoch=each.leader_epoch,
                fetch_offset=each.offset,
                partition_max_bytes=each.bytes_max,
            )
        )
    return list(topics.values())


def _forgotten(forget: Mapping[TopicPartition, Uuid], *, by_id: bool) -> list[ForgottenTopic]:
    topics: dict[tuple[str, Uuid], ForgottenTopic] = {}
    for (name, number), topic_id in forget.items():
        topic = topics.get((name, topic_id))
        if topic is None:
            topic = ForgottenTopic(topic_id=topic_id) if by_id else ForgottenTopic(topic=name)
            topics[name, topic_id] = topic
        topic.partitions.append(number)
    return list(topics.values())


def answers(
    response: FetchResponse, metadata: ClusterMetadata
) -> Iterator[tuple[TopicPartition, PartitionData]]:
    """Iterate over an answer's partitions; topics that are gone by now are left out."""
    for topic in response.responses:
        name = topic.topic or metadata.topic_name(topic.topic_id)
        if name is not None:
            for partition in topic.partitions:
                yield TopicPartition(name, partition.partition_index), partition
