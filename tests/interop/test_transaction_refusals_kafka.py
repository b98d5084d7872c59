"""Requests that no producer should send, and markers that no coordinator should: as in Kafka."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from odradek.client import BlockingAdmin, NewTopic
from odradek.core.errors import ErrorCode
from odradek.protocol.generated.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from odradek.protocol.generated.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.protocol.generated.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from odradek.records import BatchBuilder
from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection
from tests.interop.kafka_peer import KafkaNode
from tests.transaction_requests import TRANSACTION_KEY, TransactionalProducer
from tests.unit.broker.transaction_broker import state_of

pytestmark = [pytest.mark.slow, pytest.mark.kafka]

SECONDS_MAX = 90
NOT_YET = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_ENOUGH_REPLICAS,
)


class Seen(NamedTuple):
    refused: list[tuple[int, int, str | None]]
    hung_up: list[bool]
    ends: list[ErrorCode]
    state: str


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)  # between questions


def settled(ask: Callable[[], ErrorCode]) -> ErrorCode:
    """Return the first answer that is not "try again"."""
    found: list[ErrorCode] = []

    def is_settled() -> bool:
        found.append(ask())
        return found[-1] not in NOT_YET

    until(is_settled)
    return found[-1]


def coordinator(connection: BrokerConnection) -> ErrorCode:
    request = FindCoordinatorRequest(key_type=TRANSACTION_KEY, coordinator_keys=["tx"])
    (found,) = connection.ask(request, FindCoordinatorResponse).coordinators
    return ErrorCode(found.error_code)


def plain(topic: str) -> TopicProduceData:
    builder = BatchBuilder()
    builder.append(0, None, b"plain")
    data = PartitionProduceData(index=0, records=builder.build())
    return TopicProduceData(name=topic, partition_data=[data])


def without_id(producer: TransactionalProducer, acks: int) -> ProduceRequest:
    request = producer.produce_request(b"x")
    request.transactional_id, request.acks = None, acks
    request.topic_data = [plain("u"), *request.topic_data, plain("no-such-topic")]
    return request


def is_hung_up_on(port: int, request: ProduceRequest) -> bool:
    with BrokerConnection(port) as connection:
        connection.send(request, 12)
        try:
            connection.receive(ProduceResponse, 12)
        except ConnectionError:
            return True
    return False


def as_later_coordinator(connection: BrokerConnection, producer: TransactionalProducer) -> int:
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
        coordinator_epoch=1000,
    )
    request = WriteTxnMarkersRequest(markers=[marker])
    (written,) = connection.ask(request, WriteTxnMarkersResponse, 1).markers
    return written.topics[0].partitions[0].error_code


def story(servers: str, has_given_up: Callable[[], bool]) -> Seen:
    port = int(servers.rpartition(":")[2])
    with BlockingAdmin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic("t", 1), NewTopic("u", 1)]).unwrap()
    with BrokerConnection(port) as connection:
        settled(lambda: coordinator(connection))
        producer = TransactionalProducer(connection)
        assert settled(lambda: ErrorCode(producer.init().error_code)) == ErrorCode.NONE
        producer.begin()
        assert settled(lambda: producer.produce(b"aborted")) == ErrorCode.NONE
        refused = [
            (each.error_code, each.base_offset, each.error_message)
            for version in (3, 8, 12)
            for topic in connection.ask(
                without_id(producer, -1), ProduceResponse, version
            ).responses
            for each in topic.partition_responses
        ]
        unknown = ProduceRequest(acks=0, timeout_ms=1000, topic_data=[plain("no-such-topic")])
        hung_up = [is_hung_up_on(port, each) for each in (without_id(producer, 0), unknown)]
        assert as_later_coordinator(connection, producer) == 0
        assert settled(lambda: producer.produce(b"never decided")) == ErrorCode.NONE
        ends = [producer.end(commit=True, version=4)]
        until(has_given_up)
        ends.append(producer.end(commit=True, version=4))
        return Seen(refused, hung_up, ends, state_of(connection))


def test_refusals_are_those_of_a_real_kafka(kafka_libs: Path, tmp_path: Path) -> None:
    with KafkaNode(tmp_path / "data") as node:
        log = node.log_file
        theirs = story(
            node.bootstrap_servers, lambda: "has permanently failed with error" in log.read_text()
        )
    with Broker(memory=True) as broker:
        ours = story(broker.bootstrap_servers, lambda: True)
        assert broker.node.broker.transactions.marker_retries == 0
    assert ours == theirs
    assert ours.hung_up == [True, True]
    assert ours.ends == [ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS]
    assert ours.state == "PrepareCommit"
