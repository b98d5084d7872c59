"""What a client asks reaches the controller as the client sent it, and so does the answer."""

import asyncio
from collections.abc import Callable

import pytest

from odradek.broker.controller_port import ControllerPort
from odradek.broker.forwarding import ForwardedRequest, ForwardingController
from odradek.core.errors import ApiError, ErrorCode
from odradek.protocol.apis import api_for_key, api_named
from odradek.protocol.framing import (
    FrameReader,
    Request,
    frame_request,
    frame_response,
    open_request,
    request_bytes,
)
from odradek.protocol.generated.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from odradek.protocol.generated.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.protocol.generated.envelope import EnvelopeRequest, EnvelopeResponse
from odradek.protocol.generated.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from odradek.protocol.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from odradek.protocol.generated.principal import DefaultPrincipalData
from odradek.protocol.generated.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from odradek.protocol.message import Message
from odradek.protocol.versioned import decode_versioned
from odradek.testing.broker import Broker
from odradek.wire.connection import Versions
from tests.broker_connection import BrokerConnection

Answer = Callable[[EnvelopeRequest], EnvelopeResponse | ApiError]


class Channel:
    """The way to a controller of another node: it sees nothing but the bytes of an envelope."""

    def __init__(self, controller: ControllerPort) -> None:
        self._controller = controller
        self.asked: list[Message] = []
        self.answer: Answer | None = None
        self.versions: Versions | None = None

    def ask(
        self,
        request: Message,
        then: Callable[[Message], None],
        failed: Callable[[ApiError], None],
    ) -> None:
        self.asked.append(request)
        if not isinstance(request, ForwardedRequest):
            self._controller.ask(request, then, failed)
            return
        envelope = EnvelopeRequest.decode(memoryview(request.to_bytes(0)), 0)
        if self.answer is None:
            self._carry_out(envelope, then, failed)
            return
        outcome = self.answer(envelope)
        loop = asyncio.get_running_loop()
        if isinstance(outcome, ApiError):
            loop.call_soon(failed, outcome)
        else:
            loop.call_soon(then, outcome)

    def _carry_out(
        self,
        envelope: EnvelopeRequest,
        then: Callable[[Message], None],
        failed: Callable[[ApiError], None],
    ) -> None:
        inner = open_request(memoryview(envelope.request_data))

        def wrap(response: Message) -> None:
            then(EnvelopeResponse(response_data=wrapped(response, inner)))

        self._controller.ask(inner.decode(), wrap, failed)

    def close(self) -> None:
        pass


def wrapped(response: Message, request: Request, correlation_id: int | None = None) -> bytes:
    number = request.correlation_id if correlation_id is None else correlation_id
    return b"".join(frame_response(response, request.api, request.version, number))[4:]


@pytest.fixture
def channel(broker: Broker) -> Channel:
    """All that the broker asks its controller goes through this."""
    server = broker.node.broker
    channel = Channel(server.controller)
    server.controller = ForwardingController(channel)
    return channel


def creating(*names: str) -> CreateTopicsRequest:
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    return CreateTopicsRequest(topics=topics)


def codes(response: CreateTopicsResponse) -> list[tuple[str, int]]:
    return [(topic.name, topic.error_code) for topic in response.topics]


@pytest.mark.parametrize("version", [2, 4, 7])
def test_a_request_goes_to_the_controller_as_it_came_and_its_answer_to_the_client(
    broker: Broker, channel: Channel, connection: BrokerConnection, version: int
) -> None:
    connection.ask(MetadataRequest(topics=[]), MetadataResponse)  # so that it is not the first
    request = creating("t", "bad name")
    request.unknown_tags = ((77, b"of the future"),) if version >= 5 else ()
    response = connection.ask(request, CreateTopicsResponse, version)
    assert codes(response) == [("t", 0), ("bad name", ErrorCode.INVALID_TOPIC_EXCEPTION)]
    assert "t" in broker.node.broker.image.topics
    (envelope,) = channel.asked
    assert isinstance(envelope, EnvelopeRequest)
    sent = frame_request(request, api_named("CreateTopics"), version, 2, "test")
    assert envelope.request_data == b"".join(sent)[4:]
    principal = decode_versioned(DefaultPrincipalData, envelope.request_principal or b"")
    assert (principal.type, principal.name) == ("User", "ANONYMOUS")
    assert envelope.client_host_address == bytes((127, 0, 0, 1))


def test_a_controller_of_this_process_gets_the_message_itself(
    broker: Broker, connection: BrokerConnection
) -> None:
    seen: list[ForwardedRequest] = []

    class Here(Channel):
        def ask(
            self,
            request: Message,
            then: Callable[[Message], None],
            failed: Callable[[ApiError], None],
        ) -> None:
            assert isinstance(request, ForwardedRequest)
            seen.append(request)
            self._controller.ask(request.message, then, failed)

    server = broker.node.broker
    server.controller = ForwardingController(Here(server.controller))
    assert codes(connection.ask(creating("t"), CreateTopicsResponse)) == [("t", 0)]
    (forwarded,) = seen
    caller = forwarded.caller
    assert (caller.api.name, caller.version, caller.client_id) == ("CreateTopics", 7, "test")
    assert (caller.principal, caller.listener) == ("User:ANONYMOUS", "PLAINTEXT")
    assert caller.peer_host == "127.0.0.1"


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (ApiError(ErrorCode.REQUEST_TIMED_OUT, "none"), ErrorCode.REQUEST_TIMED_OUT),
        (
            EnvelopeResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
            ErrorCode.UNKNOWN_SERVER_ERROR,
        ),
        (EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST), ErrorCode.UNKNOWN_SERVER_ERROR),
        (EnvelopeResponse(response_data=b"\0"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (EnvelopeResponse(response_data=None), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_errors_between_the_nodes_are_not_shown_to_clients(
    channel: Channel,
    connection: BrokerConnection,
    outcome: EnvelopeResponse | ApiError,
    code: ErrorCode,
) -> None:
    channel.answer = lambda _envelope: outcome
    response = connection.ask(creating("a", "b"), CreateTopicsResponse)
    assert codes(response) == [("a", code), ("b", code)]


def test_a_response_to_another_request_is_not_passed_on(
    channel: Channel, connection: BrokerConnection
) -> None:
    def answer(envelope: EnvelopeRequest) -> EnvelopeResponse:
        inner = open_request(memoryview(envelope.request_data))
        return EnvelopeResponse(response_data=wrapped(CreateTopicsResponse(), inner, 99))

    channel.answer = answer
    (found,) = codes(connection.ask(creating("a"), CreateTopicsResponse))
    assert found == ("a", ErrorCode.UNKNOWN_SERVER_ERROR)


@pytest.mark.parametrize(
    "outcome",
    [
        EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION),
        ApiError(ErrorCode.UNSUPPORTED_VERSION, "the peer knows no Envelope"),
    ],
)
def test_a_version_that_the_controller_does_not_know_closes_the_connection(
    channel: Channel, connection: BrokerConnection, outcome: EnvelopeResponse | ApiError
) -> None:
    channel.answer = lambda _envelope: outcome
    with pytest.raises(ConnectionError):
        connection.ask(creating("a"), CreateTopicsResponse)


def test_a_topic_is_created_automatically_in_the_name_of_the_client(
    broker: Broker, channel: Channel, connection: BrokerConnection
) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="new")])
    while connection.ask(request, MetadataResponse).topics[0].error_code:
        pass
    envelope = channel.asked[0]
    assert isinstance(envelope, ForwardedRequest)
    assert envelope.caller.api.name == "CreateTopics"
    assert (envelope.caller.client_id, envelope.caller.principal) == ("test", "User:ANONYMOUS")
    inner = open_request(memoryview(envelope.request_data))
    assert inner.decode() == envelope.message
    assert "new" in broker.node.broker.image.topics


def test_what_is_forwarded_is_advertised_as_the_controller_speaks_it(
    channel: Channel, connection: BrokerConnection
) -> None:
    def advertised() -> dict[str, tuple[int, int]]:
        answer = connection.ask(
            ApiVersionsRequest(client_software_name="t", client_software_version="1"),
            ApiVersionsResponse,
            3,
        )
        return {
            api_for_key(each.api_key).name: (each.min_version, each.max_version)
            for each in answer.api_keys
        }

    alone = advertised()
    keys = [
        ApiVersion(api_key=api_named(name).key, min_version=first, max_version=last)
        for name, first, last in (
            ("CreateTopics", 4, 6),  # less than we speak
            ("DeleteTopics", 0, 99),  # more
            ("UpdateFeatures", 90, 99),  # something else
            ("Fetch", 0, 1),  # the controller's own, for its log
        )
    ]
    channel.versions = Versions(ApiVersionsResponse(api_keys=keys))
    found = advertised()
    assert found["CreateTopics"] == (4, 6)
    assert found["DeleteTopics"] == alone["DeleteTopics"]
    assert found["Fetch"] == alone["Fetch"]
    assert not found.keys() & {"UpdateFeatures", "AlterConfigs", "DescribeQuorum"}


def test_a_broker_can_be_unregistered_through_another(
    channel: Channel, connection: BrokerConnection
) -> None:
    response = connection.ask(UnregisterBrokerRequest(broker_id=99), UnregisterBrokerResponse)
    assert response.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert response.error_message is not None
    assert "99" in response.error_message
    assert len(channel.asked) == 1


def test_what_a_broker_wants_itself_is_in_no_envelope(
    channel: Channel, connection: BrokerConnection
) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
    assert connection.ask(request, InitProducerIdResponse, 5).producer_id >= 0
    (asked,) = channel.asked
    assert not isinstance(asked, EnvelopeRequest)


@pytest.mark.parametrize("client_id", [None, "", "ünïcode"])
@pytest.mark.parametrize("version", [2, 7])
def test_a_request_is_put_together_again_as_it_came(client_id: str | None, version: int) -> None:
    frame = frame_request(creating("t"), api_named("CreateTopics"), version, 5, client_id)
    reader = FrameReader(10_000)
    reader.receive(b"".join(frame))
    came = reader.next_frame()
    assert came is not None
    assert request_bytes(open_request(came)) == came
