"""DeleteTopics, by name or by id."""

from collections import Counter
from collections.abc import Iterator

from odradek.controller.result import Result, Steps
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


def delete_topics(view: ClusterView, request: DeleteTopicsRequest) -> Steps[DeleteTopicsResponse]:
    """Plan deletions; each topic has its own answer, one that is named twice has one of refusal."""
    named = Counter(_named(request))
    records = []
    response = DeleteTopicsResponse()
    for (name, topic_id), count in named.items():
        yield
        result = DeletableTopicResult(name=name, topic_id=topic_id)
        try:
            _check_name(name, topic_id, count)
            topic = _find(view, name, topic_id)
            result.name, result.topic_id = topic.name, topic.topic_id
            if named[None, topic.topic_id] and named[topic.name, ZERO_UUID]:
                if name is None:
                    continue  # one answer for both, and that is the name's
                problem = "The provided topic name maps to an ID that was already supplied."
                raise ApiError(ErrorCode.INVALID_REQUEST, problem)
            records.append(view.versioned(RemoveTopicRecord(topic_id=topic.topic_id)))
        except ApiError as error:  # one bad topic must not fail its neighbours
            result.error_code = error.code
            result.error_message = error.message or None
        response.responses.append(result)
    return Result(tuple(records), response)


def _named(request: DeleteTopicsRequest) -> Iterator[tuple[str | None, Uuid]]:
    for name in request.topic_names:
        yield name, ZERO_UUID
    for topic in request.topics:
        yield topic.name, topic.topic_id


def _check_name(name: str | None, topic_id: Uuid, count: int) -> None:
    if name is None and topic_id == ZERO_UUID:
        problem = "Neither topic name nor id were specified."
    elif name is not None and topic_id != ZERO_UUID:
        problem = "You may not specify both topic name and topic id."
    elif count > 1:
        problem = f"Duplicate topic {'id' if name is None else 'name'}."
    else:
        return
    raise ApiError(ErrorCode.INVALID_REQUEST, problem)


def _find(view: ClusterView, name: str | None, topic_id: Uuid) -> TopicImage:
    if name is not None:
        topic = view.image.topics.get(name)
        if topic is None:
            problem = "This server does not host this topic-partition."
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, problem)
        return topic
    topic = view.image.topics_by_id.get(topic_id)
    if topic is None:
        problem = "This server does not host this topic ID."
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, problem)
    return topic
