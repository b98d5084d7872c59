"""What others see of a transaction while it is open and when it has ended, over the wire."""

from collections.abc import Iterator

import pytest

from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from odradek.protocol.generated.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from odradek.protocol.generated.fetch import FetchRequest, FetchResponse, PartitionData
from odradek.protocol.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.protocol.generated.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from odradek.protocol.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from odradek.records import read_all
from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection
from tests.record_requests import FETCH_VERSION, fetch_request
from tests.transaction_requests import (
    GROUP_KEY,
    TransactionalProducer,
    find_coordinator,
)

COMMITTED = 1
UNCOMMITTED = 0
LATEST = -1
NONE = ErrorCode.NONE


@pytest.fixture(scope="module")
def shared() -> Iterator[Broker]:
    with Broker(memory=True) as started:
        yield started


@pytest.fixture
def broker(shared: Broker, place: TopicPartition) -> Broker:
    shared.create_topic(place.topic)
    return shared


@pytest.fixture
def place(request: pytest.FixtureRequest) -> TopicPartition:
    """A partition of a topic that no other test has."""
    return TopicPartition(request.node.name.replace("[", ".").replace("]", ""), 0)


@pytest.fixture
def producer(connection: BrokerConnection, place: TopicPartition) -> TransactionalProducer:
    return TransactionalProducer(connection, place.topic).begin()


def read(isolation: int, place: TopicPartition, max_wait_ms: int = 0) -> FetchRequest:
    request = fetch_request([place.topic], max_wait_ms)
    request.isolation_level = isolation
    return request


def fetched(connection: BrokerConnection, isolation: int, place: TopicPartition) -> PartitionData:
    answer = connection.ask(read(isolation, place), FetchResponse, FETCH_VERSION)
    return answer.responses[0].partitions[0]


def values(data: PartitionData) -> list[bytes | None]:
    """Return what is in the records; markers are left out."""
    records = read_all(bytes(data.records or b""))
    return [None if each.value is None else bytes(each.value) for each in records]


def latest(connection: BrokerConnection, isolation: int, place: TopicPartition) -> int:
    asked = ListOffsetsPartition(partition_index=0, timestamp=LATEST)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=place.topic, partitions=[asked])],
    )
    (found,) = connection.ask(request, ListOffsetsResponse).topics[0].partitions
    assert found.error_code == NONE
    return found.offset


def test_readers_of_committed_data_stop_where_a_transaction_is_open(
    connection: BrokerConnection, producer: TransactionalProducer, place: TopicPartition
) -> None:
    producer.produce(b"a", b"b", partition=place)
    assert producer.end(commit=True) == NONE
    producer.produce(b"c", partition=place)

    seen = fetched(connection, COMMITTED, place)
    assert (seen.last_stable_offset, seen.high_watermark) == (3, 4)
    assert values(seen) == [b"a", b"b"]
    assert seen.aborted_transactions == []
    all_of_it = fetched(connection, UNCOMMITTED, place)
    assert values(all_of_it) == [b"a", b"b", b"c"]
    assert all_of_it.aborted_transactions is None
    assert latest(connection, COMMITTED, place) == 3
    assert latest(connection, UNCOMMITTED, place) == 4

    assert producer.end(commit=True) == NONE
    assert values(fetched(connection, COMMITTED, place)) == [b"a", b"b", b"c"]
    assert latest(connection, COMMITTED, place) == latest(connection, UNCOMMITTED, place) == 5


def test_readers_of_committed_data_are_told_what_was_aborted(
    connection: BrokerConnection, producer: TransactionalProducer, place: TopicPartition
) -> None:
    other = TransactionalProducer(connection, f"{place.topic}-2").begin()
    producer.produce(b"kept", partition=place)
    other.produce(b"dropped", partition=place)
    assert other.end(commit=False) == NONE
    assert latest(connection, COMMITTED, place) == 0  # the older one is still open
    assert producer.end(commit=True) == NONE

    seen = fetched(connection, COMMITTED, place)
    assert seen.last_stable_offset == 4
    assert [(each.producer_id, each.first_offset) for each in seen.aborted_transactions or ()] == [
        (other.producer_id, 1)
    ]
    assert fetched(connection, UNCOMMITTED, place).aborted_transactions is None


def test_a_reader_of_committed_data_waits_for_the_end_of_the_transaction(
    broker: Broker,
    connection: BrokerConnection,
    producer: TransactionalProducer,
    place: TopicPartition,
) -> None:
    with BrokerConnection(broker.port) as reader:
        reader.send(read(COMMITTED, place, max_wait_ms=100_000), FETCH_VERSION)
        producer.produce(b"a", partition=place)
        assert latest(connection, COMMITTED, place) == 0
        assert producer.end(commit=True) == NONE
        answer = reader.receive(FetchResponse, FETCH_VERSION)
        assert values(answer.responses[0].partitions[0]) == [b"a"]


# Offsets.


def committed(
    connection: BrokerConnection, place: TopicPartition, *, stable: bool, version: int
) -> tuple[int, ErrorCode]:
    if version < 8:
        topic = OffsetFetchRequestTopic(name=place.topic, partition_indexes=[0])
        request = OffsetFetchRequest(
            group_id=place.topic, topics=[topic], require_stable=stable, groups=[]
        )
        (found,) = connection.ask(request, OffsetFetchResponse, version).topics[0].partitions
        return found.committed_offset, ErrorCode(found.error_code)
    topics = [OffsetFetchRequestTopics(name=place.topic, partition_indexes=[0])]
    group = OffsetFetchRequestGroup(group_id=place.topic, topics=topics)
    request = OffsetFetchRequest(groups=[group], require_stable=stable)
    answer = connection.ask(request, OffsetFetchResponse, version)
    (seen,) = answer.groups[0].topics[0].partitions
    return seen.committed_offset, ErrorCode(seen.error_code)


@pytest.mark.parametrize("version", [7, 8, 9])
@pytest.mark.parametrize(("commit", "expected"), [(True, 7), (False, -1)])
def test_offsets_count_when_the_transaction_does(
    connection: BrokerConnection,
    producer: TransactionalProducer,
    place: TopicPartition,
    version: int,
    commit: bool,
    expected: int,
) -> None:
    find_coordinator(connection, place.topic, GROUP_KEY)
    assert producer.commit_offset(7, partition=place, group_id=place.topic) == NONE

    stable = committed(connection, place, stable=True, version=version)
    assert stable == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert committed(connection, place, stable=False, version=version) == (-1, NONE)
    assert producer.end(commit=commit) == NONE
    assert committed(connection, place, stable=True, version=version) == (expected, NONE)


# What administrators see.


def producers(connection: BrokerConnection, place: TopicPartition) -> list[ProducerState]:
    request = DescribeProducersRequest(
        topics=[TopicRequest(name=place.topic, partition_indexes=[0])]
    )
    answer = connection.ask(request, DescribeProducersResponse)
    return answer.topics[0].partitions[0].active_producers


def test_producers_are_described_with_where_their_transaction_began(
    connection: BrokerConnection, producer: TransactionalProducer, place: TopicPartition
) -> None:
    producer.produce(b"a", partition=place)
    producer.end(commit=True)
    producer.produce(b"b", partition=place)
    producer.produce(b"c", partition=place)
    (during,) = producers(connection, place)
    assert (during.producer_id, during.producer_epoch) == (producer.producer_id, 1)
    assert (during.current_txn_start_offset, during.last_sequence) == (2, 1)

    producer.end(commit=True)
    (after,) = producers(connection, place)
    assert (after.producer_epoch, after.current_txn_start_offset) == (2, -1)
    assert after.coordinator_epoch >= 0


def described(connection: BrokerConnection, transactional_id: str) -> TransactionState:
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    (state,) = connection.ask(request, DescribeTransactionsResponse).transaction_states
    return state


def test_transactions_are_described(
    connection: BrokerConnection, producer: TransactionalProducer, place: TopicPartition
) -> None:
    empty = described(connection, producer.transactional_id)
    assert (empty.error_code, empty.transaction_state, empty.topics) == (NONE, "Empty", [])
    assert empty.transaction_start_time_ms == -1
    producer.produce(b"a", partition=place)
    during = described(connection, producer.transactional_id)
    assert (during.transaction_state, during.producer_epoch) == ("Ongoing", 0)
    assert during.transaction_timeout_ms == producer.timeout_ms
    assert during.transaction_start_time_ms > 0
    assert [(each.topic, each.partitions) for each in during.topics] == [(place.topic, [0])]
    producer.end(commit=True)
    after = described(connection, producer.transactional_id)
    assert (after.transaction_state, after.producer_epoch) == ("CompleteCommit", 1)
    ghost = described(connection, "ghost")
    assert ghost.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def listed(connection: BrokerConnection, request: ListTransactionsRequest) -> dict[str, str]:
    answer = connection.ask(request, ListTransactionsResponse)
    assert answer.error_code == NONE
    return {each.transactional_id: each.transaction_state for each in answer.transaction_states}


def test_transactions_are_listed_by_state_producer_age_and_name(
    connection: BrokerConnection, producer: TransactionalProducer, place: TopicPartition
) -> None:
    mine = producer.transactional_id
    producer.produce(b"a", partition=place)
    ours = ListTransactionsRequest(transactional_id_pattern=f".*{mine[1:]}")
    assert listed(connection, ours) == {mine: "Ongoing"}
    by_id = ListTransactionsRequest(producer_id_filters=[producer.producer_id])
    assert listed(connection, by_id) == {mine: "Ongoing"}
    by_state = ListTransactionsRequest(state_filters=["Ongoing", "Nonsense"])
    answer = connection.ask(by_state, ListTransactionsResponse)
    assert answer.unknown_state_filters == ["Nonsense"]
    assert mine in listed(connection, by_state)
    assert mine not in listed(connection, ListTransactionsRequest(state_filters=["Empty"]))
    assert mine not in listed(connection, ListTransactionsRequest(duration_filter=60_000))
    bad = ListTransactionsRequest(transactional_id_pattern="(")
    refused = connection.ask(bad, ListTransactionsResponse)
    assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
