"""Transactions over the wire: what each API says, in each version whose codes differ."""

from collections.abc import Iterator

import pytest

from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from odradek.protocol.generated.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from odradek.protocol.generated.end_txn import EndTxnResponse
from odradek.protocol.generated.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from odradek.protocol.generated.metadata import MetadataRequest, MetadataResponse
from odradek.protocol.generated.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.protocol.generated.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
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
from tests.transaction_requests import (
    GROUP_KEY,
    T0,
    T1,
    TransactionalProducer,
    errors_in,
    find_coordinator,
)
from tests.unit.broker.transaction_broker import offsets, running, state_of

GHOST = TopicPartition("ghost", 0)
NONE = ErrorCode.NONE
FENCED = ErrorCode.PRODUCER_FENCED
OLD_FENCED = ErrorCode.INVALID_PRODUCER_EPOCH
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE
INVALID_STATE = ErrorCode.INVALID_TXN_STATE


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(topics={"t": 2}, memory=True) as started:
        yield started


@pytest.fixture
def producer(
    connection: BrokerConnection, request: pytest.FixtureRequest
) -> Iterator[TransactionalProducer]:
    """Nothing begun, and a transactional id that no other test has."""
    begun = TransactionalProducer(connection, request.node.nodeid).begin()
    yield begun
    begun.end(commit=False, version=4)  # whoever reads committed data is to get past it


@pytest.fixture
def fenced(connection: BrokerConnection, producer: TransactionalProducer) -> TransactionalProducer:
    """A producer whose place another took."""
    TransactionalProducer(connection, producer.transactional_id).begin()
    return producer


# InitProducerId.


def test_nobody_is_initialised_before_the_coordinator_is_looked_for() -> None:
    with (
        Broker(memory=True) as broker,
        BrokerConnection(broker.port) as connection,
    ):
        refused = TransactionalProducer(connection).init()
        assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (refused.producer_id, refused.producer_epoch) == (-1, -1)


@pytest.mark.parametrize("version", range(6))
def test_whoever_starts_gets_the_next_epoch(producer: TransactionalProducer, version: int) -> None:
    assert producer.producer_epoch == 0
    given = producer.init(version)
    assert (given.error_code, given.producer_id) == (NONE, producer.producer_id)
    assert given.producer_epoch == 1


@pytest.mark.parametrize(("version", "code"), [(3, OLD_FENCED), (4, FENCED), (5, FENCED)])
def test_whoever_goes_on_must_be_the_last(
    producer: TransactionalProducer, version: int, code: ErrorCode
) -> None:
    had = (producer.producer_id, producer.producer_epoch)
    given = producer.init(version, had=had)
    assert (given.error_code, given.producer_epoch) == (NONE, 1)
    again = producer.init(version, had=had)
    assert (again.error_code, again.producer_epoch) == (NONE, 1)  # its answer was lost
    producer.init(version)
    assert producer.init(version, had=had).error_code == code


@pytest.mark.parametrize(
    ("transactional_id", "timeout_ms", "had", "code"),
    [
        ("", 1000, (-1, -1), ErrorCode.INVALID_REQUEST),
        ("x", 0, (-1, -1), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("x", 900_001, (-1, -1), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("x", 1000, (5, -1), ErrorCode.INVALID_REQUEST),
        ("x", 1000, (-1, 5), ErrorCode.INVALID_REQUEST),
    ],
)
def test_init_is_refused(
    connection: BrokerConnection,
    producer: TransactionalProducer,
    transactional_id: str,
    timeout_ms: int,
    had: tuple[int, int],
    code: ErrorCode,
) -> None:
    del producer  # its coordinator is there now
    asking = TransactionalProducer(connection, transactional_id, timeout_ms=timeout_ms)
    assert asking.init(had=had).error_code == code


# AddPartitionsToTxn and AddOffsetsToTxn.


@pytest.mark.parametrize(
    ("version", "code"), [(0, OLD_FENCED), (1, OLD_FENCED), (2, FENCED), (3, FENCED)]
)
def test_a_fenced_producer_adds_nothing(
    fenced: TransactionalProducer, version: int, code: ErrorCode
) -> None:
    assert fenced.add(T0, T1, version=version) == {T0: code, T1: code}
    assert fenced.add_offsets(version=version) == code


def test_a_producer_id_of_somebody_else_adds_nothing(producer: TransactionalProducer) -> None:
    mine, producer.producer_id = producer.producer_id, 10**6
    assert producer.add(T0) == {T0: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert producer.add_offsets() == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    producer.producer_id = mine


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added_all_or_none(producer: TransactionalProducer, version: int) -> None:
    assert producer.add(T0, GHOST, version=version) == {
        T0: ErrorCode.OPERATION_NOT_ATTEMPTED,
        GHOST: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert producer.end(commit=True, version=4) == INVALID_STATE  # nothing was begun
    assert producer.add(T0, T1, version=version) == {T0: NONE, T1: NONE}
    assert producer.end(commit=True, version=4) == NONE


@pytest.mark.parametrize(("version", "code"), [(4, INVALID_STATE), (5, ABORTABLE)])
def test_brokers_add_and_verify_for_several_transactions_at_once(
    connection: BrokerConnection, producer: TransactionalProducer, version: int, code: ErrorCode
) -> None:
    other = TransactionalProducer(connection, "other").begin()
    request = AddPartitionsToTxnRequest(
        transactions=[
            producer.as_transaction(T0, verify=False),
            other.as_transaction(T0, T1, verify=True),
        ]
    )
    answer = connection.ask(request, AddPartitionsToTxnResponse, version)
    results = {each.transactional_id: each.topic_results for each in answer.results_by_transaction}
    assert errors_in(results[producer.transactional_id]) == {T0: NONE}
    assert errors_in(results["other"]) == {T0: code, T1: code}


def test_a_transaction_that_is_named_twice_is_answered_once(
    connection: BrokerConnection, producer: TransactionalProducer
) -> None:
    twice = [producer.as_transaction(each, verify=False) for each in (T0, T1)]
    request = AddPartitionsToTxnRequest(transactions=twice)
    answer = connection.ask(request, AddPartitionsToTxnResponse)
    assert [each.transactional_id for each in answer.results_by_transaction] == [
        producer.transactional_id
    ] * 2
    assert producer.produce(b"x") == NONE  # the connection has nothing left over


# Produce.


@pytest.mark.parametrize(
    ("version", "code"), [(3, INVALID_STATE), (10, INVALID_STATE), (11, ABORTABLE)]
)
def test_what_was_not_added_is_not_written(
    producer: TransactionalProducer, version: int, code: ErrorCode
) -> None:
    assert producer.produce(b"x", version=version) == code
    producer.add(T0)
    assert producer.produce(b"x", version=version) == NONE
    assert producer.produce(b"x", partition=T1, version=version) == code


def test_the_broker_adds_what_is_written_in_version_12(producer: TransactionalProducer) -> None:
    assert producer.produce(b"x", version=12) == NONE
    assert producer.produce(b"y", partition=T1, version=12) == NONE
    assert producer.end(commit=True) == NONE


def test_without_verification_producers_are_trusted() -> None:
    trusting = {"transaction.partition.verification.enable": "false"}
    with (
        Broker(topics=["t"], memory=True, config=trusting) as broker,
        BrokerConnection(broker.port) as connection,
    ):
        producer = TransactionalProducer(connection).begin()
        assert producer.produce(b"x", version=11) == NONE
        find_coordinator(connection, "g", GROUP_KEY)
        assert producer.commit_offset(1, version=4) == NONE


@pytest.mark.parametrize("version", [3, 11, 12])
def test_a_fenced_producer_writes_nothing(fenced: TransactionalProducer, version: int) -> None:
    assert fenced.produce(b"x", version=version) == OLD_FENCED  # producers know no other code


@pytest.mark.parametrize("version", [3, 7, 9, 12])
def test_a_transactional_batch_needs_a_transactional_id(
    connection: BrokerConnection, producer: TransactionalProducer, version: int
) -> None:
    """The whole request is refused for it, as by Kafka: a plain batch beside it and a bad one."""
    request = producer.produce_request(b"x")
    request.transactional_id = None
    (plain,) = producer.produce_request(b"x", partition=T1).topic_data
    (data,) = plain.partition_data
    builder = BatchBuilder()
    builder.append(0, None, b"plain")
    data.records = builder.build()
    request.topic_data = [plain, *request.topic_data, TopicProduceData(name="no such topic")]
    request.topic_data[2].partition_data = [PartitionProduceData(index=0, records=data.records)]
    answer = connection.ask(request, ProduceResponse, version)
    refused = [(each.error_code, each.base_offset) for each in _partitions(answer)]
    assert refused == [(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1)] * 3


def _partitions(answer: ProduceResponse) -> list[PartitionProduceResponse]:
    return [each for topic in answer.responses for each in topic.partition_responses]


def test_a_request_has_records_of_one_producer(
    connection: BrokerConnection, producer: TransactionalProducer
) -> None:
    request = producer.produce_request(b"x")
    producer.producer_epoch += 1
    request.topic_data += producer.produce_request(b"x", partition=T1).topic_data
    producer.producer_epoch -= 1
    answer = connection.ask(request, ProduceResponse, 12)
    codes = [topic.partition_responses[0].error_code for topic in answer.responses]
    assert codes == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    # Also if both are for the same partition, where the second hides the first.
    request.topic_data[1].partition_data[0].index = 0
    answer = connection.ask(request, ProduceResponse, 12)
    codes = [topic.partition_responses[0].error_code for topic in answer.responses]
    assert codes == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2


def test_whoever_wants_no_answer_is_hung_up_on_when_refused(
    broker: Broker, producer: TransactionalProducer
) -> None:
    request = producer.produce_request(b"x")
    producer.producer_epoch += 1
    request.topic_data += producer.produce_request(b"x", partition=T1).topic_data
    producer.producer_epoch -= 1
    request.acks = 0
    unnamed = producer.produce_request(b"x")
    unnamed.transactional_id, unnamed.acks = None, 0
    unknown = ProduceRequest(acks=0, topic_data=[TopicProduceData(name="no such topic")])
    unknown.topic_data[0].partition_data = [PartitionProduceData(index=0, records=b"")]
    for refused in (request, unnamed, unknown):
        with BrokerConnection(broker.port) as connection:
            connection.send(refused, 12)
            with pytest.raises(ConnectionError):
                connection.receive(ProduceResponse, 12)
    good = producer.produce_request(b"x")
    good.acks = 0
    with BrokerConnection(broker.port) as connection:
        connection.send(good, 12)
        connection.ask(MetadataRequest(topics=[]), MetadataResponse)  # checks whose answer it is


def test_a_batch_that_is_cut_short_does_not_fail_its_neighbours(
    connection: BrokerConnection, producer: TransactionalProducer
) -> None:
    request = producer.produce_request(b"x")
    request.topic_data += producer.produce_request(b"x", partition=T1).topic_data
    (cut,) = request.topic_data[0].partition_data
    assert cut.records is not None
    cut.records = bytes(cut.records)[:-1]
    answer = connection.ask(request, ProduceResponse, 12)
    codes = [topic.partition_responses[0].error_code for topic in answer.responses]
    assert codes == [ErrorCode.CORRUPT_MESSAGE, NONE]


# TxnOffsetCommit.


def member_of(connection: BrokerConnection, group_id: str) -> tuple[str, int]:
    """Return the only member of a new generation of a group."""
    find_coordinator(connection, group_id, GROUP_KEY)
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
    join = JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=300_000,
        rebalance_timeout_ms=300_000,
        protocol_type="consumer",
        protocols=protocols,
    )
    joined = connection.ask(join, JoinGroupResponse, 3)
    assert joined.error_code == NONE
    assignment = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"")
    sync = SyncGroupRequest(
        group_id=group_id,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[assignment],
    )
    assert connection.ask(sync, SyncGroupResponse, 2).error_code == NONE
    return joined.member_id, joined.generation_id


def test_offsets_of_a_transaction_come_from_a_member_of_the_generation(
    connection: BrokerConnection, producer: TransactionalProducer
) -> None:
    group_id = "members"
    member_id, generation = member_of(connection, group_id)

    def commit(generation: int, member_id: str) -> ErrorCode:
        return producer.commit_offset(
            1, group_id=group_id, generation=generation, member_id=member_id
        )

    assert commit(generation - 1, member_id) == ErrorCode.ILLEGAL_GENERATION
    assert commit(generation, "ghost") == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(generation, member_id) == NONE
    # Producers of old versions do not say which member they work for, and are believed.
    assert producer.commit_offset(2, group_id=group_id, version=2) == NONE


@pytest.mark.parametrize("version", range(6))
def test_a_producer_that_is_no_member_commits_offsets_too(
    connection: BrokerConnection, producer: TransactionalProducer, version: int
) -> None:
    find_coordinator(connection, "g", GROUP_KEY)
    if version < 5:
        assert producer.add_offsets() == NONE
    assert producer.commit_offset(1, version=version) == NONE
    assert producer.commit_offset(2, version=version) == NONE
    assert producer.end(commit=False) == NONE


@pytest.mark.parametrize(
    ("version", "code"), [(0, INVALID_STATE), (3, INVALID_STATE), (4, ABORTABLE), (5, NONE)]
)
def test_the_partition_of_the_group_has_to_be_added_before_version_5(
    connection: BrokerConnection, producer: TransactionalProducer, version: int, code: ErrorCode
) -> None:
    find_coordinator(connection, "g", GROUP_KEY)
    assert producer.commit_offset(1, version=version) == code


@pytest.mark.parametrize("version", [3, 5])
def test_a_fenced_producer_commits_no_offsets(
    connection: BrokerConnection, fenced: TransactionalProducer, version: int
) -> None:
    find_coordinator(connection, "g", GROUP_KEY)
    assert fenced.commit_offset(1, version=version) == OLD_FENCED


def test_offsets_of_what_does_not_exist_are_refused(
    connection: BrokerConnection, producer: TransactionalProducer
) -> None:
    find_coordinator(connection, "g", GROUP_KEY)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert producer.commit_offset(1, partition=GHOST) == unknown
    assert producer.commit_offset(1, partition=TopicPartition("t", 9)) == unknown
    assert producer.commit_offset(1, group_id="") == ErrorCode.INVALID_GROUP_ID


# EndTxn.


@pytest.mark.parametrize(
    ("version", "code"), [(0, OLD_FENCED), (1, OLD_FENCED), (2, FENCED), (4, FENCED), (5, FENCED)]
)
def test_a_fenced_producer_ends_nothing(
    fenced: TransactionalProducer, version: int, code: ErrorCode
) -> None:
    assert fenced.end(commit=True, version=version) == code


@pytest.mark.parametrize("version", range(5))
def test_up_to_version_4_the_epoch_stays_and_an_end_may_be_repeated(
    connection: BrokerConnection, producer: TransactionalProducer, version: int
) -> None:
    producer.add(T0)
    for _ in range(2):
        answer = connection.ask(producer.end_request(commit=True), EndTxnResponse, version)
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (NONE, -1, -1)
    assert producer.end(commit=False, version=version) == INVALID_STATE


def test_from_version_5_on_each_end_gives_the_next_epoch(
    connection: BrokerConnection, producer: TransactionalProducer
) -> None:
    producer.produce(b"x")
    late = producer.end_request(commit=True)
    for _ in range(2):  # the second is sent because the answer to the first was lost
        answer = connection.ask(late, EndTxnResponse)
        assert (answer.error_code, answer.producer_id) == (NONE, producer.producer_id)
        assert answer.producer_epoch == 1
    producer.take(answer)
    assert connection.ask(producer.end_request(commit=True), EndTxnResponse).error_code == (
        INVALID_STATE
    )
    assert producer.produce(b"y") == NONE
    assert connection.ask(late, EndTxnResponse).error_code == FENCED
    assert producer.produce(b"z") == NONE  # a late request has not ended this one
    assert producer.end(commit=True) == NONE


def test_version_5_aborts_what_may_not_have_begun(producer: TransactionalProducer) -> None:
    assert producer.end(commit=False) == NONE
    assert producer.producer_epoch == 1
    assert producer.end(commit=True) == INVALID_STATE
    assert producer.end(commit=False) == NONE
    assert producer.producer_epoch == 2


def test_a_topic_that_is_deleted_does_not_hold_up_the_end(
    broker: Broker, connection: BrokerConnection, producer: TransactionalProducer
) -> None:
    broker.create_topic("doomed")
    assert producer.produce(b"x", partition=TopicPartition("doomed", 0)) == NONE
    delete = DeleteTopicsRequest(topics=[DeleteTopicState(name="doomed")], timeout_ms=1000)
    assert connection.ask(delete, DeleteTopicsResponse).responses[0].error_code == NONE
    assert producer.end(commit=True) == NONE
    assert producer.produce(b"y") == NONE  # the next one begins: the last is complete


# A coordinator that is fenced.


def test_a_fenced_coordinator_gives_its_markers_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Somebody wrote a marker as a later coordinator: like Kafka's, ours tries no more.

    Nothing more is written in the name of the transaction, and its producer has to wait.
    """
    with running() as (broker, connection):
        producer = TransactionalProducer(connection).begin()
        assert producer.produce(b"aborted") == NONE
        assert abort_as_coordinator(connection, producer, coordinator_epoch=1000) == NONE
        assert producer.produce(b"never decided") == NONE
        assert producer.end(commit=True, version=4) == NONE
        assert state_of(connection) == "PrepareCommit"
        assert broker.node.broker.transactions.marker_retries == 0
        given_up = [each for each in caplog.records if "given up" in each.getMessage()]
        assert len(given_up) == 1
        assert producer.end(commit=True, version=4) == ErrorCode.CONCURRENT_TRANSACTIONS
        stable, end = offsets(broker)
        assert stable == end - 1, "no marker behind the second record"


def abort_as_coordinator(
    connection: BrokerConnection, producer: TransactionalProducer, coordinator_epoch: int
) -> ErrorCode:
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
        coordinator_epoch=coordinator_epoch,
    )
    request = WriteTxnMarkersRequest(markers=[marker])
    (written,) = connection.ask(request, WriteTxnMarkersResponse, 1).markers
    return ErrorCode(written.topics[0].partitions[0].error_code)
