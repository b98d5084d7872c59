"""Transactions while their coordinator's log, or the partitions they write to, commit nothing."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from odradek.broker.opening import UNPACKED_PER_TURN_BYTES_MAX
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from odradek.protocol.generated.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from odradek.protocol.generated.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from odradek.protocol.generated.end_txn import EndTxnResponse
from odradek.protocol.generated.fetch import FetchRequest, FetchResponse
from odradek.protocol.generated.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from odradek.protocol.generated.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from odradek.protocol.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from odradek.protocol.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from odradek.protocol.generated.produce import (
    PartitionProduceData,
    ProduceResponse,
    TopicProduceData,
)
from odradek.protocol.generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from odradek.protocol.generated.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from odradek.protocol.message import Message
from odradek.records import CompressionType
from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection
from tests.record_requests import FETCH_VERSION, fetch_request, values_in
from tests.storage_batches import make_batch
from tests.transaction_requests import (
    GROUP_KEY,
    T0,
    T1,
    TransactionalProducer,
    errors_in,
    find_coordinator,
    topics_of,
)
from tests.unit.broker.held_commits import (
    GROUP_TOPIC,
    TRANSACTION_TOPIC,
    Leadership,
    assert_held,
    held_answers,
    partition_of,
    wait_until,
)
from tests.unit.broker.transaction_broker import state_of

COMMIT_TIMEOUT_MS = 5_000
REQUEST_TIMEOUT_MS = 30_000
NOT_AVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE
NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR
RETRY = ErrorCode.NOT_ENOUGH_REPLICAS
ADD_VERSION, PRODUCE_VERSION, VERIFYING_PRODUCE, COMMIT_VERSION = 3, 12, 11, 5


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(topics={"t": 2, "u": 1}, memory=True) as started:
        yield started


@pytest.fixture
def connection(broker: Broker) -> Iterator[BrokerConnection]:
    with BrokerConnection(broker.port) as opened:
        find_coordinator(opened, "g", GROUP_KEY)
        yield opened


@pytest.fixture
def other(broker: Broker) -> Iterator[BrokerConnection]:
    with BrokerConnection(broker.port) as opened:
        yield opened


@pytest.fixture
def producer(connection: BrokerConnection) -> TransactionalProducer:
    """One whose transaction has the first partition already."""
    started = TransactionalProducer(connection).begin()
    assert started.produce(b"first") is ErrorCode.NONE
    return started


class Asked(NamedTuple):
    request: Callable[[TransactionalProducer], Message]
    response: type[Any]
    version: int
    code_of: Callable[[Any], int]
    timed_out: ErrorCode = NOT_AVAILABLE
    resigned: ErrorCode = NOT_COORDINATOR


def add_request(producer: TransactionalProducer, *partitions: TopicPartition) -> Message:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=producer.transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=topics_of(partitions),
    )


def verify_request(producer: TransactionalProducer) -> Message:
    return AddPartitionsToTxnRequest(transactions=[producer.as_transaction(T0, verify=True)])


def add_offsets_request(producer: TransactionalProducer) -> Message:
    return AddOffsetsToTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        group_id="g",
    )


def offsets_request(producer: TransactionalProducer) -> Message:
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=3)
    return TxnOffsetCommitRequest(
        transactional_id=producer.transactional_id,
        group_id="g",
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[partition])],
    )


def init_request(producer: TransactionalProducer) -> Message:
    return InitProducerIdRequest(transactional_id="another", transaction_timeout_ms=60_000)


def produce_code(response: ProduceResponse) -> int:
    return response.responses[0].partition_responses[0].error_code


def first_code(response: AddPartitionsToTxnResponse) -> int:
    results = response.results_by_topic_v3_and_below
    if not results:
        results = response.results_by_transaction[0].topic_results
    return next(iter(errors_in(results).values()))


ASKED = {
    "InitProducerId": Asked(init_request, InitProducerIdResponse, 5, lambda r: r.error_code),
    "AddPartitionsToTxn": Asked(
        lambda p: add_request(p, T1), AddPartitionsToTxnResponse, ADD_VERSION, first_code
    ),
    "AddPartitionsToTxn of a broker": Asked(
        verify_request, AddPartitionsToTxnResponse, 4, first_code
    ),
    "AddOffsetsToTxn": Asked(
        add_offsets_request, AddOffsetsToTxnResponse, 3, lambda r: r.error_code
    ),
    "EndTxn": Asked(
        lambda p: p.end_request(commit=True), EndTxnResponse, 5, lambda r: r.error_code
    ),
    "Produce that adds": Asked(
        lambda p: p.produce_request(b"v", partition=T1),
        ProduceResponse,
        PRODUCE_VERSION,
        produce_code,
        RETRY,
        RETRY,
    ),
    "TxnOffsetCommit that adds": Asked(
        offsets_request,
        TxnOffsetCommitResponse,
        COMMIT_VERSION,
        lambda r: r.topics[0].partitions[0].error_code,
    ),
    "DescribeTransactions": Asked(
        lambda _: DescribeTransactionsRequest(transactional_ids=["tx"]),
        DescribeTransactionsResponse,
        0,
        lambda r: r.transaction_states[0].error_code,
    ),
    "ListTransactions": Asked(
        lambda _: ListTransactionsRequest(), ListTransactionsResponse, 1, lambda r: r.error_code
    ),
}


def send_all(
    broker: Broker,
    connection: BrokerConnection,
    other: BrokerConnection,
    producer: TransactionalProducer,
    asked: Asked,
) -> None:
    """Have something written that is not committed; behind it send what is tested."""
    connection.send(add_request(producer, TopicPartition("u", 0)), ADD_VERSION)
    assert_held(broker, connection, count=1)
    other.send(asked.request(producer), asked.version)
    assert_held(broker, connection, other, count=2)


# The coordinator's log.


@pytest.mark.parametrize("name", ASKED)
def test_an_answer_waits_for_the_coordinators_log(
    broker: Broker,
    connection: BrokerConnection,
    other: BrokerConnection,
    producer: TransactionalProducer,
    name: str,
) -> None:
    asked = ASKED[name]
    with broker.hold_commits(TRANSACTION_TOPIC):
        send_all(broker, connection, other, producer, asked)
    assert asked.code_of(other.receive(asked.response, asked.version)) == ErrorCode.NONE
    assert first_code(connection.receive(AddPartitionsToTxnResponse, ADD_VERSION)) == ErrorCode.NONE


@pytest.mark.parametrize("name", ASKED)
def test_an_answer_that_waits_too_long_is_an_error(
    broker: Broker,
    connection: BrokerConnection,
    other: BrokerConnection,
    producer: TransactionalProducer,
    name: str,
) -> None:
    asked = ASKED[name]
    with broker.hold_commits(TRANSACTION_TOPIC):
        send_all(broker, connection, other, producer, asked)
        broker.clock.advance(COMMIT_TIMEOUT_MS / 1000)
        assert asked.code_of(other.receive(asked.response, asked.version)) == asked.timed_out
        first = connection.receive(AddPartitionsToTxnResponse, ADD_VERSION)
        assert first_code(first) == NOT_AVAILABLE


@pytest.mark.parametrize("name", ASKED)
def test_an_answer_comes_when_leadership_is_lost(
    broker: Broker,
    connection: BrokerConnection,
    other: BrokerConnection,
    producer: TransactionalProducer,
    name: str,
) -> None:
    asked = ASKED[name]
    with broker.hold_commits(TRANSACTION_TOPIC):
        send_all(broker, connection, other, producer, asked)
        Leadership(broker).take(TRANSACTION_TOPIC)
        assert asked.code_of(other.receive(asked.response, asked.version)) == asked.resigned
        first = connection.receive(AddPartitionsToTxnResponse, ADD_VERSION)
        assert first_code(first) == NOT_COORDINATOR


def test_a_decision_has_no_effect_before_it_is_committed(
    broker: Broker,
    connection: BrokerConnection,
    other: BrokerConnection,
    producer: TransactionalProducer,
) -> None:
    with broker.hold_commits(TRANSACTION_TOPIC):
        connection.send(producer.end_request(commit=True), 5)
        assert_held(broker, connection, count=1)
        assert read_committed(other) == []
    assert connection.receive(EndTxnResponse, 5).error_code == ErrorCode.NONE
    assert read_committed(other) == [b"first"]
    assert state_of(other) == "CompleteCommit"


def test_a_transaction_that_takes_too_long_is_aborted_when_that_is_committed(
    broker: Broker, connection: BrokerConnection, other: BrokerConnection
) -> None:
    """No reply waits for this decision: the watermark alone brings its markers."""
    producer = TransactionalProducer(connection, timeout_ms=1_000).begin()
    assert producer.produce(b"v") is ErrorCode.NONE
    led = partition_of(broker.node.broker, T0)
    with broker.hold_commits(TRANSACTION_TOPIC):
        broker.clock.advance(60)
        assert led.log.last_stable_offset == 0
    wait_until(lambda: led.log.last_stable_offset == 2, "the transaction should be aborted")
    assert state_of(other) == "CompleteAbort"


# Verification that is answered later.


def test_a_batch_is_kept_while_the_coordinator_is_asked(
    broker: Broker,
    connection: BrokerConnection,
    other: BrokerConnection,
    producer: TransactionalProducer,
) -> None:
    """What comes behind it on the connection is read into the same buffer."""
    with broker.hold_commits(TRANSACTION_TOPIC):
        connection.send(producer.produce_request(b"k" * 1_000, partition=T1), PRODUCE_VERSION)
        assert_held(broker, connection, count=1)
        names = [MetadataRequestTopic(name=f"{number:0>200}") for number in range(2_000)]
        connection.send(MetadataRequest(topics=names, allow_auto_topic_creation=False), 8)
    assert produce_code(connection.receive(ProduceResponse, PRODUCE_VERSION)) == ErrorCode.NONE
    connection.receive(MetadataResponse, 8)
    assert producer.end(commit=True) is ErrorCode.NONE
    assert read_committed(other, T1) == [b"k" * 1_000]


def test_batches_that_are_opened_on_a_thread_wait_for_everything_too(
    broker: Broker,
    connection: BrokerConnection,
    other: BrokerConnection,
    producer: TransactionalProducer,
) -> None:
    """For the coordinator, for a thread, for the coordinator again, and for the commit."""
    request = producer.produce_request(b"small", partition=TopicPartition("u", 0))
    for number in (0, 1):
        batch = make_batch(
            [bytes(UNPACKED_PER_TURN_BYTES_MAX + 1)],
            codec=CompressionType.ZSTD,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=1 - number,
            transactional=True,
        )
        data = PartitionProduceData(index=number, records=bytes(batch))
        request.topic_data.append(TopicProduceData(name="t", partition_data=[data]))
    held = broker.hold_commits(TRANSACTION_TOPIC)
    with broker.hold_commits("t", 1):
        connection.send(request, PRODUCE_VERSION)
        assert_held(broker, connection, count=1)
        assert partition_of(broker.node.broker, T1).log.log_end_offset == 0
        held.clear()
        led = partition_of(broker.node.broker, T1)
        wait_until(lambda: led.log.log_end_offset == 1, "the batch should be appended")
        assert_held(broker, connection, count=1)
    answer = connection.receive(ProduceResponse, PRODUCE_VERSION)
    codes = [each.partition_responses[0].error_code for each in answer.responses]
    assert codes == [ErrorCode.NONE] * 3


@pytest.mark.parametrize("version", [VERIFYING_PRODUCE, PRODUCE_VERSION])
def test_a_marker_between_question_and_answer_voids_the_answer(
    broker: Broker,
    connection: BrokerConnection,
    other: BrokerConnection,
    producer: TransactionalProducer,
    version: int,
) -> None:
    """KIP-890: the batch would begin a transaction in this partition that no marker ends."""
    assert producer.add(T1) == {T1: ErrorCode.NONE}
    with broker.hold_commits(TRANSACTION_TOPIC):
        other.send(add_request(producer, TopicPartition("u", 0)), ADD_VERSION)
        assert_held(broker, other, count=1)
        connection.send(producer.produce_request(b"late", partition=T1), version)
        assert_held(broker, connection, count=2)
        with BrokerConnection(broker.port) as admin:
            assert write_markers(admin, producer, T1) == [ErrorCode.NONE]
    answer = connection.receive(ProduceResponse, version)
    assert produce_code(answer) == ErrorCode.INVALID_TXN_STATE
    assert partition_of(broker.node.broker, T1).log.log_end_offset == 1  # the marker


def test_a_marker_voids_the_verification_of_offsets_too(
    broker: Broker,
    connection: BrokerConnection,
    other: BrokerConnection,
    producer: TransactionalProducer,
) -> None:
    group_partition = TopicPartition(GROUP_TOPIC, 0)
    with broker.hold_commits(TRANSACTION_TOPIC):
        connection.send(offsets_request(producer), COMMIT_VERSION)
        assert_held(broker, connection, count=1)
        assert write_markers(other, producer, group_partition) == [ErrorCode.NONE]
    answer = connection.receive(TxnOffsetCommitResponse, COMMIT_VERSION)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.INVALID_TXN_STATE


def test_a_later_epoch_that_asks_voids_the_answer_to_the_earlier(
    broker: Broker, producer: TransactionalProducer
) -> None:
    led = partition_of(broker.node.broker, T1)
    old = led.begin_verification(producer.producer_id, 3)
    same = led.begin_verification(producer.producer_id, 3)
    new = led.begin_verification(producer.producer_id, 4)
    fenced = led.begin_verification(producer.producer_id, 3)
    assert old is same
    assert [led.end_verification(each) for each in (old, fenced, new)] == [False, False, True]
    led.check_invariants()
    assert not led._verifications


def test_a_partition_that_is_lost_refuses_a_batch_that_waits_for_its_verification(
    broker: Broker, connection: BrokerConnection, producer: TransactionalProducer
) -> None:
    with broker.hold_commits(TRANSACTION_TOPIC):
        connection.send(producer.produce_request(b"v", partition=T1), PRODUCE_VERSION)
        assert_held(broker, connection, count=1)
        Leadership(broker).take("t", 1)
    answer = connection.receive(ProduceResponse, PRODUCE_VERSION)
    assert produce_code(answer) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_an_answer_is_void_for_a_leader_of_a_later_epoch(
    broker: Broker, connection: BrokerConnection, producer: TransactionalProducer
) -> None:
    """Another leader may have had the transaction's marker in between."""
    leadership = Leadership(broker)
    with broker.hold_commits(TRANSACTION_TOPIC):
        connection.send(producer.produce_request(b"v", partition=T1), PRODUCE_VERSION)
        assert_held(broker, connection, count=1)
        leadership.take("t", 1)
        leadership.give_back("t", 1)
    answer = connection.receive(ProduceResponse, PRODUCE_VERSION)
    assert produce_code(answer) == ErrorCode.INVALID_TXN_STATE


def test_offsets_in_a_transaction_are_refused_where_their_group_is_not(
    broker: Broker, connection: BrokerConnection, producer: TransactionalProducer
) -> None:
    Leadership(broker).take(GROUP_TOPIC)
    answer = connection.ask(offsets_request(producer), TxnOffsetCommitResponse, COMMIT_VERSION)
    assert answer.topics[0].partitions[0].error_code == NOT_COORDINATOR


# Markers.


def test_a_marker_counts_when_it_is_committed(
    broker: Broker,
    connection: BrokerConnection,
    other: BrokerConnection,
    producer: TransactionalProducer,
) -> None:
    with broker.hold_commits("t"):
        assert producer.end(commit=True) is ErrorCode.NONE  # what is decided is decided
        wait_until(lambda: held_answers(broker) == 1, "the marker should wait")
        assert state_of(other) == "PrepareCommit"
        assert read_committed(other) == []
    assert state_of(other) == "CompleteCommit"
    assert read_committed(other) == [b"first"]


def test_a_marker_is_written_again_when_leadership_of_its_partition_comes_back(
    broker: Broker, other: BrokerConnection, producer: TransactionalProducer
) -> None:
    leadership = Leadership(broker)
    with broker.hold_commits("t"):
        assert producer.end(commit=True) is ErrorCode.NONE
        wait_until(lambda: held_answers(broker) == 1, "the marker should wait")
        leadership.take("t")
        assert held_answers(broker) == 0
        assert state_of(other) == "PrepareCommit"
        leadership.give_back("t")
    wait_until(lambda: state_of(other) == "CompleteCommit", "it should be complete")
    assert read_committed(other) == [b"first"]


@pytest.mark.parametrize("topic", ["t", GROUP_TOPIC])
def test_write_txn_markers_is_answered_after_the_commit(
    broker: Broker, connection: BrokerConnection, producer: TransactionalProducer, topic: str
) -> None:
    at = TopicPartition(topic, 0)
    with broker.hold_commits(topic):
        connection.send(markers_request(producer, at, TopicPartition("u", 0)), 1)
        assert_held(broker, connection, count=1)
    assert marker_codes(connection.receive(WriteTxnMarkersResponse, 1)) == [ErrorCode.NONE] * 2


def test_write_txn_markers_that_is_not_committed_in_time_says_so(
    broker: Broker, connection: BrokerConnection, producer: TransactionalProducer
) -> None:
    with broker.hold_commits("t"):
        connection.send(markers_request(producer, T0, TopicPartition("u", 0)), 1)
        assert_held(broker, connection, count=1)
        broker.clock.advance(REQUEST_TIMEOUT_MS / 1000)
        codes = marker_codes(connection.receive(WriteTxnMarkersResponse, 1))
    assert codes == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE]


def test_write_txn_markers_is_answered_when_leadership_is_lost(
    broker: Broker, connection: BrokerConnection, producer: TransactionalProducer
) -> None:
    with broker.hold_commits("t"):
        connection.send(markers_request(producer, T0), 1)
        assert_held(broker, connection, count=1)
        Leadership(broker).take("t")
        codes = marker_codes(connection.receive(WriteTxnMarkersResponse, 1))
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_offsets_of_a_transaction_are_shown_when_its_marker_is_committed(
    broker: Broker, connection: BrokerConnection, other: BrokerConnection
) -> None:
    producer = TransactionalProducer(connection).begin()
    assert producer.commit_offset(3) is ErrorCode.NONE
    with broker.hold_commits(GROUP_TOPIC):
        assert producer.end(commit=True) is ErrorCode.NONE
        wait_until(lambda: held_answers(broker) == 1, "the marker should wait")
        topic = OffsetFetchRequestTopics(name="t", partition_indexes=[0])
        group = OffsetFetchRequestGroup(group_id="g", topics=[topic])
        other.send(OffsetFetchRequest(groups=[group]), 8)
        assert_held(broker, other, count=2)
    (found,) = other.receive(OffsetFetchResponse, 8).groups
    assert found.topics[0].partitions[0].committed_offset == 3


def markers_request(
    producer: TransactionalProducer, *partitions: TopicPartition
) -> WriteTxnMarkersRequest:
    topics = [
        WritableTxnMarkerTopic(name=each.topic, partition_indexes=[each.partition])
        for each in partitions
    ]
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transaction_result=False,
        coordinator_epoch=0,
        topics=topics,
    )
    return WriteTxnMarkersRequest(markers=[marker])


def marker_codes(response: WriteTxnMarkersResponse) -> list[ErrorCode]:
    return [
        ErrorCode(each.error_code)
        for topic in response.markers[0].topics
        for each in topic.partitions
    ]


def write_markers(
    connection: BrokerConnection, producer: TransactionalProducer, *partitions: TopicPartition
) -> list[ErrorCode]:
    request = markers_request(producer, *partitions)
    return marker_codes(connection.ask(request, WriteTxnMarkersResponse, 1))


def read_committed(connection: BrokerConnection, at: TopicPartition = T0) -> list[bytes | None]:
    request: FetchRequest = fetch_request([at.topic])
    request.isolation_level = 1
    request.topics[0].partitions[0].partition = at.partition
    return values_in(connection.ask(request, FetchResponse, FETCH_VERSION))
