"""Produce, Fetch, ListOffsets and DeleteRecords while a partition's high watermark lags."""

from collections.abc import Iterator

import pytest

from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from odradek.protocol.generated.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from odradek.protocol.generated.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from odradek.protocol.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.protocol.generated.metadata import MetadataRequest, MetadataResponse
from odradek.protocol.generated.produce import (
    LeaderIdAndEpoch,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection
from tests.record_requests import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    fetch_request,
    fetched,
    produce_request,
    values_in,
)
from tests.storage_batches import make_batch
from tests.unit.broker.held_commits import (
    ELSEWHERE,
    Leadership,
    assert_held,
    is_answered,
    partition_of,
    wait_until,
)

LATEST = -1
MAX_TIMESTAMP = -3
TIMEOUT_MS = 60_000
LEADER_ONLY_VERSION = 10
"""The last in which consumers read from leaders alone (KIP-392)."""
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(topics={"t": 2}, memory=True) as started:
        yield started


@pytest.fixture
def connection(broker: Broker) -> Iterator[BrokerConnection]:
    with BrokerConnection(broker.port) as opened:
        yield opened


@pytest.fixture
def other(broker: Broker) -> Iterator[BrokerConnection]:
    with BrokerConnection(broker.port) as opened:
        yield opened


def produce(
    *numbers: int, value: bytes = b"v", acks: int = -1, sequence: int = -1
) -> ProduceRequest:
    is_idempotent = sequence >= 0
    batch = make_batch(
        [value],
        base_sequence=sequence,
        producer_id=5 if is_idempotent else -1,
        producer_epoch=0 if is_idempotent else -1,
    )
    data = [PartitionProduceData(index=number, records=bytes(batch)) for number in numbers]
    topic = TopicProduceData(name="t", partition_data=data)
    return ProduceRequest(acks=acks, timeout_ms=TIMEOUT_MS, topic_data=[topic])


def codes(response: ProduceResponse) -> list[ErrorCode]:
    return [ErrorCode(p.error_code) for p in response.responses[0].partition_responses]


def answer_of(connection: BrokerConnection) -> list[ErrorCode]:
    return codes(connection.receive(ProduceResponse, PRODUCE_VERSION))


def fetch(max_wait_ms: int, *, min_bytes: int = 1, offset: int = 0) -> FetchRequest:
    wanted = FetchPartition(partition=0, partition_max_bytes=1 << 20, fetch_offset=offset)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[FetchTopic(topic="t", partitions=[wanted])],
    )


def find_offset(
    connection: BrokerConnection, timestamp: int, version: int = 9
) -> tuple[ErrorCode, int]:
    query = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[query])]
    )
    (topic,) = connection.ask(request, ListOffsetsResponse, version).topics
    return ErrorCode(topic.partitions[0].error_code), topic.partitions[0].offset


def wait_for_parked(broker: Broker, count: int = 1) -> None:
    wait_until(lambda: len(broker.node.broker.delayed) >= count, "a fetch should be parked")


# Acknowledgement.


def test_acks_all_waits_for_the_commit(broker: Broker, connection: BrokerConnection) -> None:
    with broker.hold_commits("t", 0):
        connection.send(produce(0), PRODUCE_VERSION)
        assert_held(broker, connection, count=1)
    answer = connection.receive(ProduceResponse, PRODUCE_VERSION)
    assert codes(answer) == [ErrorCode.NONE]
    assert answer.responses[0].partition_responses[0].base_offset == 0


@pytest.mark.parametrize("acks", [0, 1])
def test_other_acks_do_not_wait(broker: Broker, connection: BrokerConnection, acks: int) -> None:
    with broker.hold_commits("t"):
        connection.send(produce(0, acks=acks), PRODUCE_VERSION)
        if acks:
            assert answer_of(connection) == [ErrorCode.NONE]
        assert fetched(connection, "t") == []
    assert fetched(connection, "t") == [b"v"]


def test_the_partitions_of_a_request_are_answered_together(
    broker: Broker, connection: BrokerConnection
) -> None:
    with broker.hold_commits("t", 1):
        connection.send(produce(0, 1), PRODUCE_VERSION)
        assert_held(broker, connection, count=1)
    assert answer_of(connection) == [ErrorCode.NONE, ErrorCode.NONE]


def test_after_its_timeout_a_produce_is_answered_and_its_records_stay(
    broker: Broker, connection: BrokerConnection
) -> None:
    with broker.hold_commits("t", 1):
        connection.send(produce(0, 1), PRODUCE_VERSION)
        assert_held(broker, connection, count=1)
        broker.clock.advance(TIMEOUT_MS / 2000)
        assert not is_answered(connection)
        broker.clock.advance(TIMEOUT_MS / 2000)
        answer = connection.receive(ProduceResponse, PRODUCE_VERSION)
        assert codes(answer) == [ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT]
        assert answer.responses[0].partition_responses[1].base_offset == 0
    server = broker.node.broker
    assert partition_of(server, TopicPartition("t", 1)).log.high_watermark == 1


def test_a_duplicate_is_acknowledged_no_sooner_than_its_original(
    broker: Broker, connection: BrokerConnection, other: BrokerConnection
) -> None:
    with broker.hold_commits("t"):
        connection.send(produce(0, sequence=0), PRODUCE_VERSION)
        assert_held(broker, connection, count=1)
        other.send(produce(0, sequence=0), PRODUCE_VERSION)
        assert_held(broker, connection, other, count=2)
    for each in (connection, other):
        answer = each.receive(ProduceResponse, PRODUCE_VERSION)
        assert answer.responses[0].partition_responses[0].base_offset == 0
    connection.ask(produce(0, sequence=0), ProduceResponse, PRODUCE_VERSION)


def test_a_produce_that_must_be_flushed_waits_for_the_commit_too(
    broker: Broker, connection: BrokerConnection
) -> None:
    broker.create_topic("flushed", flush_messages="1")
    with broker.hold_commits("flushed"):
        connection.send(produce_request("flushed", b"v"), PRODUCE_VERSION)
        assert_held(broker, connection, count=1)
    assert answer_of(connection) == [ErrorCode.NONE]


def test_answers_come_in_the_order_of_their_offsets(
    broker: Broker, connection: BrokerConnection
) -> None:
    """Not all requests of a connection are handled at once: answers bring the next appends."""
    count = 2_000
    hold = broker.hold_commits("t")
    for number in range(count):
        connection.send(produce(0, value=b"%d" % number), PRODUCE_VERSION)
    assert_held(broker, connection, count=1)
    hold.clear()
    for number in range(count):
        answer = connection.receive(ProduceResponse, PRODUCE_VERSION)
        assert answer.responses[0].partition_responses[0].base_offset == number


def test_a_producer_need_not_wait_for_its_own_commits(
    broker: Broker, connection: BrokerConnection
) -> None:
    """What is behind a produce on its connection is appended while that waits, in its order."""
    with broker.hold_commits("t"):
        for number in range(3):
            connection.send(produce(0, value=b"%d" % number), PRODUCE_VERSION)
        connection.send(produce(0, acks=1), PRODUCE_VERSION)
        assert_held(broker, connection, count=3)
        log = partition_of(broker.node.broker, TopicPartition("t", 0)).log
        wait_until(lambda: log.log_end_offset == 4, "the one that waits for nothing is appended")
        assert not is_answered(connection)
    for number in range(4):
        answer = connection.receive(ProduceResponse, PRODUCE_VERSION)
        assert answer.responses[0].partition_responses[0].base_offset == number


def test_what_reads_behind_a_produce_waits_for_its_commit(
    broker: Broker, connection: BrokerConnection
) -> None:
    with broker.hold_commits("t"):
        connection.send(produce(0), PRODUCE_VERSION)
        connection.send(fetch(0), FETCH_VERSION)
        connection.send(produce(0), PRODUCE_VERSION)
        assert_held(broker, connection, count=1)
    assert answer_of(connection) == [ErrorCode.NONE]
    assert values_in(connection.receive(FetchResponse, FETCH_VERSION)) == [b"v"]
    assert answer_of(connection) == [ErrorCode.NONE]


# What consumers see.


@pytest.mark.seed_row("3.2")
def test_consumers_see_nothing_that_is_not_committed(
    broker: Broker, connection: BrokerConnection, other: BrokerConnection
) -> None:
    connection.ask(produce(0, value=b"old"), ProduceResponse, PRODUCE_VERSION)
    with broker.hold_commits("t"):
        connection.send(produce(0, value=b"new"), PRODUCE_VERSION)
        assert_held(broker, connection, count=1)
        assert fetched(other, "t") == [b"old"]
        assert find_offset(other, LATEST) == (ErrorCode.NONE, 1)
        assert find_offset(other, MAX_TIMESTAMP) in [(ErrorCode.NONE, 0), (ErrorCode.NONE, -1)]
    assert fetched(other, "t") == [b"old", b"new"]
    assert find_offset(other, LATEST) == (ErrorCode.NONE, 2)


def test_a_fetch_wakes_at_the_commit_and_not_at_the_append(
    broker: Broker, connection: BrokerConnection, other: BrokerConnection
) -> None:
    with broker.hold_commits("t"):
        other.send(fetch(TIMEOUT_MS), FETCH_VERSION)
        wait_for_parked(broker)
        connection.send(produce(0), PRODUCE_VERSION)
        assert_held(broker, connection, other, count=1)
    assert values_in(other.receive(FetchResponse, FETCH_VERSION)) == [b"v"]


def test_uncommitted_bytes_do_not_count_for_min_bytes(
    broker: Broker, connection: BrokerConnection, other: BrokerConnection
) -> None:
    small, large = b"s", b"l" * 5_000
    other.send(fetch(TIMEOUT_MS, min_bytes=4_000), FETCH_VERSION)
    wait_for_parked(broker)
    connection.ask(produce(0, value=small), ProduceResponse, PRODUCE_VERSION)
    with broker.hold_commits("t"):
        connection.send(produce(0, value=large), PRODUCE_VERSION)
        assert_held(broker, connection, other, count=1)
        # An event without enough behind it: the watermark moves, by nothing that is large.
        led = partition_of(broker.node.broker, TopicPartition("t", 0))
        broker._call(led.on_changed)
        assert not is_answered(other)
    assert values_in(other.receive(FetchResponse, FETCH_VERSION)) == [small, large]


def test_records_are_deleted_up_to_what_is_committed(
    broker: Broker, connection: BrokerConnection, other: BrokerConnection
) -> None:
    connection.ask(produce(0), ProduceResponse, PRODUCE_VERSION)
    with broker.hold_commits("t"):
        connection.send(produce(0), PRODUCE_VERSION)
        assert_held(broker, connection, count=1)
        assert _delete(other, 2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert _delete(other, -1) == (ErrorCode.NONE, 1)


def _delete(connection: BrokerConnection, offset: int) -> tuple[ErrorCode, int]:
    wanted = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[wanted])])
    (topic,) = connection.ask(request, DeleteRecordsResponse).topics
    return ErrorCode(topic.partitions[0].error_code), topic.partitions[0].low_watermark


# Leadership lost.


def test_all_that_waits_is_answered_when_leadership_is_lost(
    broker: Broker, connection: BrokerConnection, other: BrokerConnection
) -> None:
    with broker.hold_commits("t", 0):
        connection.send(produce(0, 1), PRODUCE_VERSION)
        assert_held(broker, connection, count=1)
        other.send(fetch(TIMEOUT_MS, offset=1), LEADER_ONLY_VERSION)
        wait_for_parked(broker, 2)
        Leadership(broker).take("t")
        assert answer_of(connection) == [NOT_LEADER, ErrorCode.NONE]
        (topic,) = other.receive(FetchResponse, LEADER_ONLY_VERSION).responses
        assert topic.partitions[0].error_code == NOT_LEADER


@pytest.mark.parametrize("leader", [-1, ELSEWHERE])
def test_a_partition_that_is_led_elsewhere_refuses_everything(
    broker: Broker, connection: BrokerConnection, leader: int
) -> None:
    leadership = Leadership(broker)
    leadership.give("t", leader)
    answer = connection.ask(produce(0, 1), ProduceResponse, PRODUCE_VERSION)
    assert codes(answer) == [NOT_LEADER, ErrorCode.NONE]
    (topic,) = connection.ask(fetch(TIMEOUT_MS), FetchResponse, LEADER_ONLY_VERSION).responses
    assert topic.partitions[0].error_code == NOT_LEADER
    assert find_offset(connection, LATEST)[0] == NOT_LEADER
    assert _delete(connection, -1)[0] == NOT_LEADER

    leadership.give_back("t")
    answer = connection.ask(produce(0), ProduceResponse, PRODUCE_VERSION)
    assert codes(answer) == [ErrorCode.NONE]


def test_a_produce_that_comes_to_the_wrong_node_is_told_where_to_go(
    broker: Broker, connection: BrokerConnection
) -> None:
    """KIP-951. What is known of the leader is what the image says, here that it is this node."""
    Leadership(broker).take("t")
    answer = connection.ask(produce(0, 1), ProduceResponse, 10)
    refused, done = answer.responses[0].partition_responses
    assert (refused.error_code, done.error_code) == (NOT_LEADER, ErrorCode.NONE)
    node_id, image = broker.node.broker.node_id, broker.node.broker.image
    epoch = image.topics["t"].partitions[0].leader_epoch
    assert refused.current_leader == LeaderIdAndEpoch(leader_id=node_id, leader_epoch=epoch)
    assert [(each.node_id, each.port) for each in answer.node_endpoints] == [(node_id, broker.port)]
    assert done.current_leader is None
    before = connection.ask(produce(0), ProduceResponse, 9).responses[0].partition_responses[0]
    assert (before.error_code, before.current_leader) == (NOT_LEADER, None)


def test_a_partition_that_is_not_of_this_node_any_more_goes_with_its_log(
    broker: Broker, connection: BrokerConnection
) -> None:
    with broker.hold_commits("t"):
        connection.send(produce(0), PRODUCE_VERSION)
        assert_held(broker, connection, count=1)
        Leadership(broker).give("t", ELSEWHERE, replicas=[ELSEWHERE])
        assert answer_of(connection) == [NOT_LEADER]
    server = broker.node.broker
    assert broker._call(lambda: server.store.get(TopicPartition("t", 0))) is None
    answer = connection.ask(produce(0), ProduceResponse, PRODUCE_VERSION)
    assert codes(answer) == [NOT_LEADER]  # it is known, and another node has it


def test_a_topic_that_is_deleted_answers_who_waits_for_it(
    broker: Broker, connection: BrokerConnection, other: BrokerConnection
) -> None:
    with broker.hold_commits("t"):
        connection.send(produce(0), PRODUCE_VERSION)
        assert_held(broker, connection, count=1)
        request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=TIMEOUT_MS)
        other.ask(request, DeleteTopicsResponse, 3)
        assert answer_of(connection) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_node_that_stops_answers_who_waits() -> None:
    with Broker(topics=["t"], memory=True) as broker, BrokerConnection(broker.port) as connection:
        hold = broker.hold_commits("t")
        connection.send(produce_request("t", b"v"), PRODUCE_VERSION)
        assert_held(broker, connection, count=1)
        broker._holds.pop(hold)  # else it would be cleared first
        broker.stop()
        assert answer_of(connection) == [NOT_LEADER]


def test_a_new_leader_does_not_name_offsets_that_may_go_back(
    broker: Broker, connection: BrokerConnection
) -> None:
    """KIP-207: the leader before may have shown more than this one knows to be committed."""
    connection.ask(produce(0), ProduceResponse, PRODUCE_VERSION)
    leadership = Leadership(broker)
    with broker.hold_commits("t"):
        connection.ask(produce(0, acks=1), ProduceResponse, PRODUCE_VERSION)
        assert find_offset(connection, LATEST) == (ErrorCode.NONE, 1)
        leadership.take("t")
        leadership.give_back("t")
        assert find_offset(connection, LATEST)[0] == ErrorCode.OFFSET_NOT_AVAILABLE
        assert find_offset(connection, LATEST, 4)[0] == ErrorCode.LEADER_NOT_AVAILABLE
    assert find_offset(connection, LATEST) == (ErrorCode.NONE, 2)


# The fault itself.


def test_holds_end_with_their_context_and_with_all_faults(
    broker: Broker, connection: BrokerConnection
) -> None:
    hold = broker.hold_commits()
    with broker.hold_commits("t", 1):
        connection.send(produce(0, 1), PRODUCE_VERSION)
        assert_held(broker, connection, count=2)
        hold.clear()
        assert_held(broker, connection, count=1)
    assert answer_of(connection) == [ErrorCode.NONE, ErrorCode.NONE]
    assert (str(hold), hold.is_cleared) == ("<CommitHold of all partitions, cleared>", True)

    other = broker.hold_commits("t", 1)
    broker.clear_faults()
    assert (repr(other), other.is_cleared) == ("<CommitHold of t-1, cleared>", True)
    with pytest.raises(ValueError, match="partition 1 of which topic"):
        broker.hold_commits(partition=1)


def test_a_topic_that_is_created_later_is_held_too(
    broker: Broker, connection: BrokerConnection
) -> None:
    with broker.hold_commits("later"):
        broker.create_topic("later")
        connection.send(produce_request("later", b"v"), PRODUCE_VERSION)
        assert_held(broker, connection, count=1)
        metadata = connection  # its next request waits behind the one that is held
        metadata.send(MetadataRequest(topics=[]))
    assert answer_of(connection) == [ErrorCode.NONE]
    connection.receive(MetadataResponse)
    assert values_in(connection.ask(fetch_request(["later"]), FetchResponse, FETCH_VERSION))
