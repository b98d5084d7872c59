"""DeleteTopics, by name or by id."""

from collections import Counter
from collections.abc import Iterator

from odradek.controller.result import Result
from odradek.controller.view import ClusterView
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import ZERO_UUID, Uuid
from odradek.metadata import TopicImage
from odradek.protocol.generated.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from odradek.protocol.generated.metadata_records import RemoveTopicRecord


def delete_topics(view: ClusterView, request: DeleteTopicsRequest) -> Result[DeleteTopicsResponse]:
    """Plan deletions; each topic has its own answer, one that is named twice has one of refusal."""
    named = Counter(_named(request))
    records = []
    response = DeleteTopicsResponse()
    for (name, topic_id), count in named.items():
        result = DeletableTopicResult(name=name, topic_id=topic_id)
        response.responses.append(result)
        try:
            topic = _find(view, name, topic_id)
            # Also if it is meant once by name and once by id.
            if count > 1 or (named[topic.name, ZERO_UUID] and named[None, topic.topic_id]):
                raise ApiError(ErrorCode.INVALID_REQUEST, "the topic is there more than once")
            result.name, result.topic_id = topic.name, topic.topic_id
            records.append(view.versioned(RemoveTopicRecord(topic_id=topic.topic_id)))
        except ApiError as error:  # one bad topic must not fail its neighbours
            result.error_code = error.code
            result.error_message = error.message or None
    return Result(tuple(records), response)


def _named(request: DeleteTopicsRequest) -> Iterator[tuple[str | None, Uuid]]:
    for name in request.topic_names:
        yield name, ZERO_UUID
    for topic in request.topics:
        yield topic.name, topic.topic_id


def _find(view: ClusterView, name: str | None, topic_id: Uuid) -> TopicImage:
    if name is not None and topic_id != ZERO_UUID:
        raise ApiError(ErrorCode.INVALID_REQUEST, "give the topic's name or its id, not both")
    if name is not None:
        topic = view.image.topics.get(name)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return topic
    if topic_id == ZERO_UUID:
        raise ApiError(ErrorCode.INVALID_REQUEST, "give the topic's name or its id")
    topic = view.image.topics_by_id.get(topic_id)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with id {topic_id}")
    return topic
