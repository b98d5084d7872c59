"""Requests that fail, wait or get lost on order, as clients see them."""

import asyncio
import socket
import struct
import time
from collections.abc import Iterator

import confluent_kafka
import pytest

from odradek.client import BlockingProducer
from odradek.core.errors import ErrorCode
from odradek.protocol.apis import API_VERSIONS_KEY, api_named
from odradek.protocol.framing import frame_request, open_response
from odradek.protocol.generated.api_versions import ApiVersionsResponse
from odradek.protocol.generated.fetch import FetchResponse
from odradek.protocol.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from odradek.protocol.generated.produce import ProduceRequest, ProduceResponse
from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection
from tests.record_requests import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    fetch_request,
    fetched,
    produce_request,
)

DEADLINE_SECONDS = 120
REFUSED = ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(topics=["t", "u"], memory=True) as started:
        yield started


@pytest.fixture
def connection(broker: Broker) -> Iterator[BrokerConnection]:
    with BrokerConnection(broker.port) as opened:
        yield opened


def produce(connection: BrokerConnection, topic: str, value: bytes) -> int:
    request = produce_request(topic, value)
    answer = connection.ask(request, ProduceResponse, PRODUCE_VERSION)
    return answer.responses[0].partition_responses[0].error_code


def metadata(connection: BrokerConnection, *topics: str) -> MetadataResponse:
    wanted = [MetadataRequestTopic(name=topic) for topic in topics]
    return connection.ask(MetadataRequest(topics=wanted), MetadataResponse)


# Failures.


@pytest.mark.parametrize("error", ["NOT_LEADER_OR_FOLLOWER", 6, REFUSED])
def test_so_many_requests_are_refused_and_not_handled(
    broker: Broker, connection: BrokerConnection, error: str | int
) -> None:
    fault = broker.fail(ProduceRequest, error, times=2)
    assert [produce(connection, "t", value) for value in (b"1", b"2", b"3")] == [REFUSED] * 2 + [0]
    assert fetched(connection, "t") == [b"3"]
    assert (fault.fired, fault.is_armed) == (2, False)
    assert broker.faults == (fault,)


def test_without_faults_nothing_stands_before_the_handlers(
    broker: Broker, connection: BrokerConnection
) -> None:
    plain = broker.node.broker.dispatch
    with broker.fail("Produce", REFUSED):
        assert broker.node.broker.dispatch != plain
    produce(connection, "t", b"x")
    assert broker.node.broker.dispatch == plain
    broker.fail("Produce", REFUSED)
    assert [produce(connection, "t", b"x") for _ in range(3)] == [REFUSED, 0, 0]
    assert broker.node.broker.dispatch == plain


def test_a_fault_is_over_with_its_block(broker: Broker, connection: BrokerConnection) -> None:
    with broker.fail("Produce", REFUSED, times=None) as fault:
        assert [produce(connection, "t", b"x") for _ in range(5)] == [REFUSED] * 5
    assert produce(connection, "t", b"x") == 0
    assert fault.fired == 5
    assert broker.faults == ()


def test_all_can_be_cleared(broker: Broker, connection: BrokerConnection) -> None:
    broker.fail("Produce", REFUSED)
    broker.drop("Fetch")
    broker.clear_faults()
    assert produce(connection, "t", b"x") == 0
    assert fetched(connection, "t") == [b"x"]


def test_only_one_topic_of_a_request_is_refused(
    broker: Broker, connection: BrokerConnection
) -> None:
    for topic in ("t", "u"):
        produce(connection, topic, b"x")
    fault = broker.fail("Fetch", "OFFSET_OUT_OF_RANGE", topic="u", times=None)
    answer = connection.ask(fetch_request(["t", "u"]), FetchResponse, FETCH_VERSION)
    codes = {each.topic: each.partitions[0].error_code for each in answer.responses}
    assert codes == {"t": 0, "u": ErrorCode.OFFSET_OUT_OF_RANGE}
    assert fetched(connection, "t") == [b"x"]
    assert fault.fired == 1


def test_a_topic_is_known_by_its_id_too(broker: Broker, connection: BrokerConnection) -> None:
    topic_id = metadata(connection, "u").topics[0].topic_id
    broker.fail("Fetch", "OFFSET_OUT_OF_RANGE", topic="u")
    request = fetch_request([""])
    request.topics[0].topic_id = topic_id
    answer = connection.ask(request, FetchResponse)
    assert answer.responses[0].topic_id == topic_id
    assert answer.responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_fetch_in_a_session_is_asked_to_begin_anew(
    broker: Broker, connection: BrokerConnection
) -> None:
    request = fetch_request(["t"])
    request.session_epoch = 0
    session_id = connection.ask(request, FetchResponse, FETCH_VERSION).session_id
    assert session_id
    fault = broker.fail("Fetch", "OFFSET_OUT_OF_RANGE", topic="t")
    request = fetch_request([])
    request.session_id, request.session_epoch = session_id, 1
    answer = connection.ask(request, FetchResponse, FETCH_VERSION)
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert fault.fired == 0
    answer = connection.ask(fetch_request(["t"]), FetchResponse, FETCH_VERSION)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fault.fired == 1


def test_metadata_keeps_its_brokers_and_loses_its_topics(
    broker: Broker, connection: BrokerConnection
) -> None:
    fault = broker.fail("Metadata", "LEADER_NOT_AVAILABLE", topic="u")
    assert metadata(connection).topics == []
    assert fault.fired == 0
    answer = metadata(connection, "t", "u")
    assert len(answer.brokers) == 1
    assert [(t.name, t.error_code, len(t.partitions)) for t in answer.topics] == [
        ("t", 0, 1),
        ("u", ErrorCode.LEADER_NOT_AVAILABLE, 0),
    ]
    assert fault.fired == 1
    assert [topic.error_code for topic in metadata(connection, "t", "u").topics] == [0, 0]


def test_one_client_can_be_meant(broker: Broker, connection: BrokerConnection) -> None:
    broker.fail("Produce", REFUSED, client_id="other")
    assert produce(connection, "t", b"x") == 0
    with BrokerConnection(broker.port, "other") as other:
        assert produce(other, "t", b"x") == REFUSED


def test_an_api_versions_request_from_the_future_can_be_refused(broker: Broker) -> None:
    broker.fail("ApiVersions", "CLUSTER_AUTHORIZATION_FAILED")
    request = struct.pack(">hhih", API_VERSIONS_KEY, 99, 1, -1) + b"\0"
    with socket.create_connection(("127.0.0.1", broker.port), DEADLINE_SECONDS) as connection:
        connection.sendall(len(request).to_bytes(4, "big") + request)
        size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
        frame = memoryview(connection.recv(size, socket.MSG_WAITALL))
    _, body = open_response(frame, api_named("ApiVersions"), 0)
    answer = ApiVersionsResponse.decode(body, 0)
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_a_producer_without_acks_is_hung_up_on(
    broker: Broker, connection: BrokerConnection
) -> None:
    fault = broker.fail("Produce", REFUSED)
    with pytest.raises(ConnectionError):
        connection.ask(produce_request("t", b"x", acks=0), ProduceResponse, PRODUCE_VERSION)
    assert fault.fired == 1


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"api": "Produc", "error": 6}, "no API Produc"),
        ({"api": "Produce", "error": "NOT_LEADER"}, "NOT_LEADER"),
        ({"api": "Produce", "error": 0}, "NONE"),
        ({"api": "Produce", "error": 9999}, "9999"),
        ({"api": "Produce", "error": 6, "times": 0}, "times=0"),
        ({"api": "ApiVersions", "error": 6, "topic": "t"}, "no topics"),
    ],
)
def test_a_fault_that_cannot_be_is_refused(
    broker: Broker, arguments: dict[str, object], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        broker.fail(**arguments)  # type: ignore[arg-type]


# Delays.


def test_a_request_is_held_back_and_those_behind_it_keep_their_order(
    broker: Broker, connection: BrokerConnection
) -> None:
    fault = broker.delay("Produce", 0.2)
    began = time.monotonic()
    assert [produce(connection, "t", value) for value in (b"1", b"2")] == [0, 0]
    assert time.monotonic() - began >= 0.19  # timers count in whole milliseconds
    assert fault.fired == 1
    assert fetched(connection, "t") == [b"1", b"2"]


def test_others_do_not_wait(broker: Broker, connection: BrokerConnection) -> None:
    with (
        broker.delay("Produce", 600, client_id="slow") as fault,
        BrokerConnection(broker.port, "slow") as slow,
    ):
        slow.send(produce_request("t", b"slow"), PRODUCE_VERSION)
        while not fault.fired:
            time.sleep(0.001)
        assert produce(connection, "t", b"fast") == 0
        assert fetched(connection, "t") == [b"fast"]
        fault.clear()
        answer = slow.receive(ProduceResponse, PRODUCE_VERSION)
        assert answer.responses[0].partition_responses[0].base_offset == 1


def test_a_broker_that_stops_lets_go_of_what_is_held_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("odradek.node.node.STOP_GRACE_MS", 2 * DEADLINE_SECONDS * 1000)
    with Broker(topics=["t"], memory=True) as broker:
        fault = broker.delay("Produce", 600)
        with BrokerConnection(broker.port) as connection:
            connection.send(produce_request("t", b"x"), PRODUCE_VERSION)
            while not fault.fired:
                time.sleep(0.001)
            began = time.monotonic()
            broker.stop()
            # Without waiting for its grace to be over.
            assert time.monotonic() - began < DEADLINE_SECONDS
            answer = connection.receive(ProduceResponse, PRODUCE_VERSION)
            assert answer.responses[0].partition_responses[0].error_code == 0


def test_a_delayed_request_can_fail_too(broker: Broker, connection: BrokerConnection) -> None:
    broker.fail("Produce", REFUSED)
    broker.delay("Produce", 0.01)
    assert produce(connection, "t", b"x") == REFUSED


def test_a_delayed_request_that_is_nonsense_ends_its_connection(broker: Broker) -> None:
    fault = broker.delay("Produce", 0.01)
    api = api_named("Produce")
    whole = b"".join(frame_request(produce_request("t", b"x"), api, PRODUCE_VERSION, 1, None))
    cut = whole[4:-20]
    with socket.create_connection(("127.0.0.1", broker.port), DEADLINE_SECONDS) as connection:
        connection.sendall(len(cut).to_bytes(4, "big") + cut)
        assert connection.recv(1) == b""
    assert fault.fired == 1


# Lost connections.


def test_a_request_can_be_lost(broker: Broker, connection: BrokerConnection) -> None:
    fault = broker.drop("Produce")
    with pytest.raises(ConnectionError):
        produce(connection, "t", b"lost")
    assert fault.fired == 1
    with BrokerConnection(broker.port) as again:
        assert fetched(again, "t") == []


def test_an_answer_can_be_lost(broker: Broker, connection: BrokerConnection) -> None:
    broker.drop("Produce", after=True)
    with pytest.raises(ConnectionError):
        produce(connection, "t", b"there")
    with BrokerConnection(broker.port) as again:
        assert fetched(again, "t") == [b"there"]


@pytest.mark.seed_row("0.6")
@pytest.mark.parametrize(("retries", "copies"), [(0, 0), (5, 1)])
def test_a_producer_that_lost_its_request_has_written_nothing_unless_it_tries_again(
    broker: Broker, retries: int, copies: int
) -> None:
    fault = broker.drop("Produce")
    with BlockingProducer(
        bootstrap_servers=broker.bootstrap_servers,
        enable_idempotence=False,
        retries=retries,
        retry_backoff_ms=10,
    ) as producer:
        sent = producer.send("t", b"x")
        assert (sent.exception(DEADLINE_SECONDS) is None) == bool(copies)
    assert fault.fired == 1
    with BrokerConnection(broker.port) as connection:
        assert fetched(connection, "t") == [b"x"] * copies


@pytest.mark.seed_row("0.6")
@pytest.mark.parametrize(("idempotent", "copies"), [(False, 2), (True, 1)])
def test_a_producer_that_lost_its_answer_writes_twice_unless_it_is_idempotent(
    broker: Broker, idempotent: bool, copies: int
) -> None:
    fault = broker.drop("Produce", after=True)
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "enable.idempotence": idempotent,
            "retry.backoff.ms": 10,
            "reconnect.backoff.ms": 10,
        }
    )
    producer.produce("t", b"x")
    assert producer.flush(DEADLINE_SECONDS) == 0
    assert fault.fired == 1
    with BrokerConnection(broker.port) as connection:
        assert fetched(connection, "t") == [b"x"] * copies


def test_a_real_client_tries_again(broker: Broker) -> None:
    fault = broker.fail("Produce", REFUSED, times=2)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "retry.backoff.ms": 10}
    )
    producer.produce("t", b"x")
    assert producer.flush(DEADLINE_SECONDS) == 0
    assert fault.fired == 2
    with BrokerConnection(broker.port) as connection:
        assert fetched(connection, "t") == [b"x"]


def test_faults_work_on_the_callers_loop() -> None:
    async def story() -> list[int]:
        async with Broker(topics=["t"], memory=True, own_thread=False) as broker:
            broker.fail("Produce", REFUSED)
            return await asyncio.to_thread(produce_twice, broker.port)

    assert asyncio.run(story()) == [REFUSED, 0]


def produce_twice(port: int) -> list[int]:
    with BrokerConnection(port) as connection:
        return [produce(connection, "t", b"x") for _ in range(2)]


def test_a_fetch_does_not_wait_if_a_part_of_it_is_refused(
    broker: Broker, connection: BrokerConnection
) -> None:
    broker.fail("Fetch", "OFFSET_OUT_OF_RANGE", topic="u")
    request = fetch_request(["t", "u"], max_wait_ms=600_000)
    answer = connection.ask(request, FetchResponse, FETCH_VERSION)
    assert [topic.topic for topic in answer.responses] == ["t", "u"]


def test_the_rest_of_a_produce_is_appended(broker: Broker, connection: BrokerConnection) -> None:
    broker.fail("Produce", REFUSED, topic="u")
    request = produce_request("t", b"x")
    request.topic_data += produce_request("u", b"y").topic_data
    answer = connection.ask(request, ProduceResponse, PRODUCE_VERSION)
    codes = {each.name: each.partition_responses[0].error_code for each in answer.responses}
    assert codes == {"t": 0, "u": REFUSED}
    assert fetched(connection, "t") == [b"x"]
    assert fetched(connection, "u") == []
