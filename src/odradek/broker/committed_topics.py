"""The topics of a commit: those that exist, with name and id, and those that do not."""

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from odradek.core.errors import ErrorCode
from odradek.core.ids import Uuid
from odradek.metadata.image import ClusterImage


class _Partition(Protocol):
    partition_index: int


class _Topic(Protocol):
    name: str
    topic_id: Uuid
    partitions: Any


T = TypeVar("T", bound=_Topic)

Refused = list[tuple[T, list[_Partition], ErrorCode]]


def split_topics(
    image: ClusterImage, topics: Sequence[T], *, by_id: bool
) -> tuple[list[T], "Refused[T]"]:
    """Return the topics to commit for, and partitions that do not exist, with what to say."""
    known: list[T] = []
    refused: Refused[T] = []
    for topic in topics:
        if by_id:
            found, code = image.topics_by_id.get(topic.topic_id), ErrorCode.UNKNOWN_TOPIC_ID
        else:
            found, code = image.topics.get(topic.name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if found is None:
            refused.append((topic, topic.partitions, code))
            continue
        topic.name, topic.topic_id = found.name, found.topic_id
        missing = [p for p in topic.partitions if p.partition_index not in found.partitions]
        if missing:
            refused.append((topic, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            topic.partitions = [
                p for p in topic.partitions if p.partition_index in found.partitions
            ]
        if topic.partitions:
            known.append(topic)
    return known, refused
