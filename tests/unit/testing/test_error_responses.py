"""The error of a refusal is where a client of that API and version looks for it."""

from typing import Any, get_args, get_origin, get_type_hints

import pytest

from odradek.core.errors import ErrorCode
from odradek.protocol.apis import ALL_APIS, Api, api_named
from odradek.protocol.generated.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.protocol.generated.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from odradek.protocol.generated.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from odradek.protocol.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from odradek.protocol.generated.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.protocol.message import Message, Struct
from odradek.testing.error_responses import ERROR_FIELDS, find_place

CODE = ErrorCode.NOT_LEADER_OR_FOLLOWER

# Its response is changed after it was made.
WITHOUT_PLACE = {"Metadata"}

EVERY = [
    (api, version) for api in ALL_APIS for version in range(api.version_min, api.version_max + 1)
]


def filled(kind: type[Struct]) -> Any:
    """Return a struct with one element in each of its arrays."""
    values: dict[str, Any] = {}
    for name, hint in get_type_hints(kind.__init__).items():
        for choice in (hint, *get_args(hint)):
            if get_origin(choice) is list:
                (element,) = get_args(choice)
                is_struct = isinstance(element, type) and issubclass(element, Struct)
                values[name] = [filled(element) if is_struct else element()]
    return kind(**values)


def carried(api: Api, version: int) -> Message:
    """Return a filled request as it is after it was sent in this version."""
    kind = api.request()
    request = filled(kind)
    names: tuple[str, ...] = kind.__slots__
    for name in names:
        if not survives(kind(**{name: getattr(request, name)}), version):
            setattr(request, name, getattr(kind(), name))
    return kind.decode(request.to_bytes(version), version)


def survives(message: Message, version: int) -> bool:
    try:
        return type(message).decode(message.to_bytes(version), version) == message
    except Exception:
        return False


def errors_in(message: Struct) -> list[int]:
    found = []
    for name in message.__slots__:
        value = getattr(message, name)
        if name in ERROR_FIELDS:
            found.append(value)
        elif isinstance(value, list):
            found += [
                code for each in value if isinstance(each, Struct) for code in errors_in(each)
            ]
    return found


@pytest.mark.parametrize(("api", "version"), EVERY, ids=lambda value: getattr(value, "name", value))
def test_every_api_can_be_refused_in_every_version(api: Api, version: int) -> None:
    refused = find_place(api, carried(api, version), version, CODE)
    if api.name in WITHOUT_PLACE:
        assert refused is None
        return
    assert refused is not None
    received = type(refused).decode(refused.to_bytes(version), version)
    assert CODE in errors_in(received)


def received(request: Message, version: int, code: ErrorCode = CODE) -> Any:
    api = next(api for api in ALL_APIS if api.key == request.ID)
    refused = find_place(api, request, version, code)
    assert refused is not None
    return type(refused).decode(refused.to_bytes(version), version)


def test_every_partition_of_a_produce_is_refused() -> None:
    partitions = [PartitionProduceData(index=index) for index in (3, 5)]
    topic = TopicProduceData(name="t", partition_data=partitions)
    answer = received(ProduceRequest(topic_data=[topic]), 8)
    assert isinstance(answer, ProduceResponse)
    assert answer.responses[0].name == "t"
    assert [
        (p.index, p.error_code, p.base_offset) for p in answer.responses[0].partition_responses
    ] == [(3, CODE, -1), (5, CODE, -1)]


def test_a_fetch_is_refused_by_partition_and_a_session_as_a_whole() -> None:
    request = FetchRequest(
        topics=[FetchTopic(topic="t", partitions=[FetchPartition(partition=2, fetch_offset=9)])],
        forgotten_topics_data=[ForgottenTopic(topic="gone", partitions=[0])],
    )
    answer = received(request, 12, ErrorCode.OFFSET_OUT_OF_RANGE)
    assert isinstance(answer, FetchResponse)
    assert answer.error_code == 0
    (topic,) = answer.responses
    (partition,) = topic.partitions
    assert (topic.topic, partition.partition_index) == ("t", 2)
    assert (partition.error_code, partition.high_watermark) == (1, -1)

    answer = received(request, 12, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert (answer.error_code, answer.responses) == (70, [])


def test_the_place_depends_on_the_version() -> None:
    old = received(FindCoordinatorRequest(key="g"), 3)
    assert isinstance(old, FindCoordinatorResponse)
    assert (old.error_code, old.node_id, old.coordinators) == (CODE, -1, [])
    new = received(FindCoordinatorRequest(coordinator_keys=["g", "h"]), 4)
    assert new.error_code == 0
    assert [(c.key, c.error_code, c.node_id) for c in new.coordinators] == [
        ("g", CODE, -1),
        ("h", CODE, -1),
    ]


def test_an_error_is_put_as_high_up_as_it_can_be() -> None:
    group = OffsetFetchRequestGroup(group_id="g", topics=None)
    answer = received(OffsetFetchRequest(groups=[group]), 8)
    assert isinstance(answer, OffsetFetchResponse)
    assert [(g.group_id, g.error_code, g.topics) for g in answer.groups] == [("g", CODE, [])]
    created = received(CreateTopicsRequest(topics=[CreatableTopic(name="t")]), 7)
    assert isinstance(created, CreateTopicsResponse)
    assert [(t.name, t.error_code) for t in created.topics] == [("t", CODE)]
    assert "odradek" in (created.topics[0].error_message or "")


def test_a_request_for_nothing_has_no_place_for_an_error() -> None:
    assert find_place(api_named("Fetch"), FetchRequest(), 12, CODE) is None
