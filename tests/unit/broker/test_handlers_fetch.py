"""Fetch over the wire: sessions, waiting, diverging epochs, and who leads instead."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic, sleep

import pytest

from odradek.core.errors import ErrorCode
from odradek.core.ids import Uuid
from odradek.protocol.generated.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from odradek.protocol.generated.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from odradek.protocol.generated.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    PartitionData,
)
from odradek.protocol.generated.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection
from tests.storage_batches import make_batch

BY_NAME = 12  # the last version that names topics
VALUE = b"x" * 1000


def topic(name: str, *offsets: int, topic_id: Uuid | None = None, **wanted: int) -> FetchTopic:
    """Return a topic of which all partitions are wanted, from these offsets on."""
    partitions = [
        FetchPartition(
            partition=number,
            fetch_offset=offset,
            partition_max_bytes=wanted.get("partition_max_bytes", 1 << 20),
            current_leader_epoch=wanted.get("current_leader_epoch", -1),
            last_fetched_epoch=wanted.get("last_fetched_epoch", -1),
        )
        for number, offset in enumerate(offsets)
    ]
    if topic_id is not None:
        return FetchTopic(topic_id=topic_id, partitions=partitions)
    return FetchTopic(topic=name, partitions=partitions)


class Client:
    """Keeps a session as a client does; topics by name unless told otherwise."""

    def __init__(self, connection: BrokerConnection, version: int = BY_NAME) -> None:
        self.connection = connection
        self.version = version
        self.session_id = 0
        self.epoch = 0

    def fetch(self, *topics: FetchTopic, max_wait_ms: int = 0, **fields: int) -> FetchResponse:
        request = FetchRequest(
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=list(topics),
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=fields.get("max_bytes", 1 << 20),
        )
        response = self.connection.ask(request, FetchResponse, self.version)
        if response.error_code == 0:
            self.session_id = response.session_id
            self.epoch += 1
        return response


def produce(connection: BrokerConnection, name: str, partition: int = 0) -> None:
    data = PartitionProduceData(index=partition, records=bytes(make_batch([VALUE])))
    request = ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=name, partition_data=[data])]
    )
    answer = connection.ask(request, ProduceResponse, BY_NAME)
    assert answer.responses[0].partition_responses[0].error_code == 0


def only(response: FetchResponse) -> PartitionData:
    (answered,) = response.responses
    (data,) = answered.partitions
    return data


def seen(response: FetchResponse) -> list[tuple[str, int]]:
    return [
        (each.topic, data.partition_index)
        for each in response.responses
        for data in each.partitions
    ]


def wait_until_one_waits(broker: Broker) -> None:
    deadline = monotonic() + 120
    while len(broker.node.broker.delayed) == 0:
        assert monotonic() < deadline, "nobody waits"
        sleep(0.001)


@pytest.fixture
def other(broker: Broker) -> Iterator[BrokerConnection]:
    with BrokerConnection(broker.port) as opened:
        yield opened


def test_a_session_tells_only_what_changed(broker: Broker, connection: BrokerConnection) -> None:
    broker.create_topic("t", 3)
    client = Client(connection)
    first = client.fetch(topic("t", 0, 0, 0))
    assert first.session_id > 0
    assert seen(first) == [("t", 0), ("t", 1), ("t", 2)]
    assert seen(client.fetch()) == []
    produce(connection, "t", 1)
    news = only(client.fetch())
    assert (news.partition_index, news.high_watermark) == (1, 1)
    assert news.records
    assert broker.node.broker.fetch_sessions.partitions == 3


def test_a_session_tells_that_records_were_deleted(
    broker: Broker, connection: BrokerConnection
) -> None:
    broker.create_topic("t")
    produce(connection, "t")
    client = Client(connection)
    client.fetch(topic("t", 1))
    partition = DeleteRecordsPartition(partition_index=0, offset=1)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[partition])])
    connection.ask(request, DeleteRecordsResponse)
    news = only(client.fetch())
    assert (news.high_watermark, news.log_start_offset, news.records) == (1, 1, b"")
    assert seen(client.fetch()) == []


@pytest.mark.parametrize("version", [4, 6])
def test_old_versions_have_no_sessions(
    broker: Broker, connection: BrokerConnection, version: int
) -> None:
    broker.create_topic("t")
    client = Client(connection, version)
    for _ in range(2):
        assert seen(client.fetch(topic("t", 0))) == [("t", 0)]
    assert broker.node.broker.fetch_sessions.sessions == 0


def test_any_connection_may_use_a_session(
    broker: Broker, connection: BrokerConnection, other: BrokerConnection
) -> None:
    broker.create_topic("t")
    client = Client(connection)
    client.fetch(topic("t", 0))
    client.connection = other
    response = client.fetch()
    assert (response.error_code, response.session_id) == (0, client.session_id)


def test_session_errors_are_errors_of_the_whole_response(
    broker: Broker, connection: BrokerConnection
) -> None:
    broker.create_topic("t")
    client = Client(connection)
    client.fetch(topic("t", 0))
    client.epoch = 5
    assert client.fetch().error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    client.epoch, client.version = 1, 18
    assert client.fetch().error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    client.session_id += 1
    assert client.fetch().error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_fetch_in_a_session_waits_for_records(
    broker: Broker, connection: BrokerConnection, other: BrokerConnection
) -> None:
    broker.create_topic("t", 2)
    client = Client(connection)
    client.fetch(topic("t", 0, 0))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.fetch, max_wait_ms=60_000)
        wait_until_one_waits(broker)
        produce(other, "t", 1)
        data = only(waiting.result(60))
    assert data.partition_index == 1
    assert data.records
    client.fetch(FetchTopic(topic="t", partitions=[FetchPartition(partition=1, fetch_offset=1)]))
    assert seen(client.fetch()) == [], "the session knows what it told late"


def test_a_topic_that_does_not_exist_ends_no_wait_but_alone_needs_none(
    broker: Broker, connection: BrokerConnection, other: BrokerConnection
) -> None:
    broker.create_topic("t")
    unknown = topic("unknown", 0)
    alone = only(Client(other).fetch(unknown, max_wait_ms=60_000))
    assert alone.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(Client(connection).fetch, unknown, topic("t", 0), max_wait_ms=60_000)
        wait_until_one_waits(broker)
        produce(other, "t")
        assert seen(waiting.result(60)) == [("unknown", 0), ("t", 0)]


def test_a_topic_that_comes_later_is_told_and_one_that_goes_too(
    broker: Broker, connection: BrokerConnection
) -> None:
    client = Client(connection)
    for _ in range(2):
        missing = only(client.fetch(topic("t", 0)))
        assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    broker.create_topic("t")
    assert only(client.fetch()).error_code == 0
    assert seen(client.fetch()) == []
    connection.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), DeleteTopicsResponse, 5)
    assert only(client.fetch()).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_id_that_nobody_knows_stays_in_the_session(
    broker: Broker, connection: BrokerConnection
) -> None:
    broker.create_topic("t")
    known, unknown = broker.node.broker.image.topics["t"].topic_id, Uuid(bytes(range(16)))
    client = Client(connection, 18)
    client.fetch(topic("", 0, topic_id=known), topic("", 0, topic_id=unknown))
    for _ in range(2):
        (answered,) = client.fetch().responses
        assert answered.topic_id == unknown
        assert answered.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert answered.partitions[0].high_watermark == -1


def test_all_partitions_get_their_turn_though_max_bytes_is_for_one(
    broker: Broker, connection: BrokerConnection
) -> None:
    broker.create_topic("t", 3)
    client = Client(connection)
    client.fetch(topic("t", 0, 0, 0))
    for partition in range(3):
        produce(connection, "t", partition)
    turns = []
    for _ in range(3):
        response = client.fetch(max_bytes=10)
        turns += [
            d.partition_index for each in response.responses for d in each.partitions if d.records
        ]
    assert turns == [0, 1, 2]


def test_a_batch_is_not_cut_except_behind_a_whole_one(
    broker: Broker, connection: BrokerConnection
) -> None:
    broker.create_topic("t", 2)
    for partition in range(2):
        produce(connection, "t", partition)
    answered = Client(connection).fetch(topic("t", 0, 0), max_bytes=1500).responses[0]
    first, second = answered.partitions
    assert len(first.records or b"") > len(VALUE)
    assert second.records == b""
    assert second.high_watermark == 1


@pytest.mark.seed_row("0.2")
def test_a_partition_gives_no_more_than_is_asked_of_it(
    broker: Broker, connection: BrokerConnection
) -> None:
    """But a whole batch, if it alone is larger: a reader must get on."""
    broker.create_topic("t", 2)
    for partition in (0, 0, 0, 1):
        produce(connection, "t", partition)
    least = only(Client(connection).fetch(topic("t", 0, partition_max_bytes=1)))
    size = len(least.records or b"")
    assert size > len(VALUE)
    limited = topic("t", 0, 0, partition_max_bytes=2 * size)
    first, second = Client(connection).fetch(limited).responses[0].partitions
    assert [len(each.records or b"") for each in (first, second)] == [2 * size, size]


@pytest.mark.seed_row("0.2")
def test_a_fetch_waits_for_its_longest_wait_and_no_longer(
    broker: Broker, connection: BrokerConnection
) -> None:
    broker.create_topic("t")
    produce(connection, "t")
    begun = monotonic()
    request = FetchRequest(
        max_wait_ms=300, min_bytes=1 << 20, max_bytes=1 << 20, topics=[topic("t", 0)]
    )
    assert only(connection.ask(request, FetchResponse, BY_NAME)).records, "too few, but all"
    assert monotonic() - begun >= 0.3


def test_min_bytes_is_no_more_than_max_bytes(broker: Broker, connection: BrokerConnection) -> None:
    broker.create_topic("t")
    produce(connection, "t")
    request = FetchRequest(
        max_wait_ms=60_000, min_bytes=1 << 30, max_bytes=500, topics=[topic("t", 0)]
    )
    assert only(connection.ask(request, FetchResponse, BY_NAME)).records


def test_logs_that_part_are_told_where(tmp_path: Path) -> None:
    with Broker(topics=["t"], data_dir=str(tmp_path)) as broker:
        with BrokerConnection(broker.port) as connection:
            for _ in range(3):
                produce(connection, "t")
        old_epoch = broker.node.broker.image.topics["t"].partitions[0].leader_epoch
    with Broker(data_dir=str(tmp_path)) as broker, BrokerConnection(broker.port) as connection:
        produce(connection, "t")
        epoch = broker.node.broker.image.topics["t"].partitions[0].leader_epoch
        assert epoch > old_epoch + 1, "else the epoch in between is none"

        def ask(offset: int, last_fetched_epoch: int) -> PartitionData:
            wanted = topic("t", offset, last_fetched_epoch=last_fetched_epoch)
            # It need not wait for the client to hear of it.
            return only(Client(connection).fetch(wanted, max_wait_ms=60_000))

        parted = EpochEndOffset(epoch=old_epoch, end_offset=3)
        assert ask(4, old_epoch).diverging_epoch == parted
        assert ask(3, old_epoch + 1).diverging_epoch == parted
        assert ask(4, old_epoch).records == b""
        agreed = ask(3, old_epoch)
        assert agreed.diverging_epoch is None
        assert agreed.records
        assert ask(4, epoch + 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        client = Client(connection)
        for _ in range(2):  # a session tells it again and again
            data = only(client.fetch(topic("t", 4, last_fetched_epoch=old_epoch)))
            assert data.diverging_epoch == parted


def test_whoever_knows_an_old_leader_is_told_the_current_one(tmp_path: Path) -> None:
    with Broker(topics=["t"], data_dir=str(tmp_path)):
        pass
    with Broker(data_dir=str(tmp_path)) as broker, BrokerConnection(broker.port) as connection:
        image = broker.node.broker.image.topics["t"]
        epoch = image.partitions[0].leader_epoch
        assert epoch > 0
        wanted = topic("", 0, topic_id=image.topic_id, current_leader_epoch=0)
        response = Client(connection, 16).fetch(wanted)
        data = only(response)
        assert data.error_code == ErrorCode.FENCED_LEADER_EPOCH
        leader = LeaderIdAndEpoch(leader_id=broker.node.node_id, leader_epoch=epoch)
        assert data.current_leader == leader
        (endpoint,) = response.node_endpoints
        assert (endpoint.node_id, endpoint.port) == (broker.node.node_id, broker.port)
        before = Client(connection, 15).fetch(wanted)
        assert only(before).current_leader is None


def test_an_epoch_begins_before_its_first_record(tmp_path: Path) -> None:
    """As in Kafka: with leadership. A follower of an empty partition asks so."""

    def ask(connection: BrokerConnection, offset: int, epoch: int) -> PartitionData:
        return only(Client(connection).fetch(topic("t", offset, last_fetched_epoch=epoch)))

    with Broker(topics=["t"], data_dir=str(tmp_path)) as broker:
        epoch = broker.node.broker.image.topics["t"].partitions[0].leader_epoch
        with BrokerConnection(broker.port) as connection:
            data = ask(connection, 0, epoch)
            assert (data.error_code, data.diverging_epoch) == (0, None)
            beyond = EpochEndOffset(epoch=epoch, end_offset=0)
            assert ask(connection, 1, epoch).diverging_epoch == beyond
            assert ask(connection, 0, epoch + 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            produce(connection, "t")
            assert ask(connection, 0, epoch).records
    with Broker(data_dir=str(tmp_path)) as broker, BrokerConnection(broker.port) as connection:
        later = broker.node.broker.image.topics["t"].partitions[0].leader_epoch
        assert later > epoch
        data = ask(connection, 1, later)
        assert (data.error_code, data.diverging_epoch) == (0, None)
        checkpoint = tmp_path / "t-0" / "leader-epoch-checkpoint"
        assert checkpoint.read_text() == f"0\n1\n{epoch} 0\n"  # an election syncs nothing
        produce(connection, "t")
        assert checkpoint.read_text() == f"0\n2\n{epoch} 0\n{later} 1\n"
