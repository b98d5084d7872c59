"""The response that refuses an admin request as a whole: the error at each place its API has.

Requests that brokers forward to the active controller may fail before a controller has planned
anything: no controller is reachable, it lost its leadership, the request took too long. Some APIs
have an error code for the response as a whole, others only one for each topic, resource or user
that the request names; there each of them gets the same error.
"""

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, Final, NamedTuple

from odradek.core.errors import ApiError, ErrorCode, short_message
from odradek.protocol.apis import Api
from odradek.protocol.message import Message, Struct


class _Parts(NamedTuple):
    """Where a response has one result for each thing that the request names."""

    array: str
    element: str
    named: Callable[[Any], Iterable[dict[str, Any]]]
    """What identifies each result, from the request."""


def _topics(request: Any) -> Iterable[dict[str, Any]]:
    return ({"name": each.name} for each in request.topics)


def _topics_or_ids(request: Any) -> Iterable[dict[str, Any]]:
    yield from ({"name": name} for name in request.topic_names)
    yield from ({"name": each.name, "topic_id": each.topic_id} for each in request.topics)


def _resources(request: Any) -> Iterable[dict[str, Any]]:
    for each in request.resources:
        yield {"resource_type": each.resource_type, "resource_name": each.resource_name}


def _users(request: Any) -> Iterable[dict[str, Any]]:
    names = dict.fromkeys(each.name for each in (*request.deletions, *request.upsertions))
    return ({"user": name} for name in names)


def _quota_entities(request: Any) -> Iterable[dict[str, Any]]:
    from odradek.protocol.generated.alter_client_quotas import EntityData

    for entry in request.entries:
        entity = [
            EntityData(entity_type=each.entity_type, entity_name=each.entity_name)
            for each in entry.entity
        ]
        yield {"entity": entity}


def _elections(request: Any) -> Iterable[dict[str, Any]]:
    from odradek.protocol.generated.elect_leaders import PartitionResult

    for topic in request.topic_partitions or ():
        results = [PartitionResult(partition_id=each) for each in topic.partitions]
        yield {"topic": topic.topic, "partition_result": results}


_PARTS: Final = {
    "AlterClientQuotas": _Parts("entries", "ResponseEntryData", _quota_entities),
    "AlterConfigs": _Parts("responses", "AlterConfigsResourceResponse", _resources),
    "AlterUserScramCredentials": _Parts("results", "AlterUserScramCredentialsResult", _users),
    "CreateAcls": _Parts("results", "AclCreationResult", lambda r: ({} for _ in r.creations)),
    "CreatePartitions": _Parts("results", "CreatePartitionsTopicResult", _topics),
    "CreateTopics": _Parts("topics", "CreatableTopicResult", _topics),
    "DeleteAcls": _Parts(
        "filter_results", "DeleteAclsFilterResult", lambda r: ({} for _ in r.filters)
    ),
    "DeleteTopics": _Parts("responses", "DeletableTopicResult", _topics_or_ids),
    "ElectLeaders": _Parts("replica_election_results", "ReplicaElectionResult", _elections),
    "IncrementalAlterConfigs": _Parts("responses", "AlterConfigsResourceResponse", _resources),
}


def refusal(api: Api, request: Message, error: ApiError) -> Message:
    """Return the response to a forwarded request that was refused with ``error``.

    The API must be one that brokers forward, or one that they send to the controller for
    themselves.
    """
    message = short_message(error.message)
    response = api.response()()
    _put(response, error.code, message)
    parts = _PARTS.get(api.name)
    if parts is not None:
        module = import_module(f"odradek.protocol.generated.{api.module}")
        make = getattr(module, parts.element)
        results = [make(**identity) for identity in parts.named(request)]
        for result in results:
            _put(result, error.code, message)
            for inner in getattr(result, "partition_result", ()):
                _put(inner, error.code, message)
        setattr(response, parts.array, results)
    return response


def error_codes(response: Message) -> Iterable[int]:
    """Return every error code of a response that :func:`refusal` could have made."""
    yield getattr(response, "error_code", ErrorCode.NONE)
    names: tuple[str, ...] = type(response).__slots__
    for name in names:
        value = getattr(response, name)
        if isinstance(value, list):
            yield from (getattr(each, "error_code", ErrorCode.NONE) for each in value)


def _put(part: Struct, code: ErrorCode, message: str) -> None:
    if hasattr(part, "error_code"):
        part.error_code = code
    if hasattr(part, "error_message"):
        part.error_message = message
