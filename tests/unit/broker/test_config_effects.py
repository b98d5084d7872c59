"""What single configs of a broker do, as a client sees it."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from odradek.broker.internal_topics import GROUP_TOPIC, TRANSACTION_TOPIC
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from odradek.metadata.config_resource import ConfigResource
from odradek.protocol.generated.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.protocol.generated.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from odradek.protocol.generated.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from odradek.protocol.generated.fetch import FetchResponse
from odradek.protocol.generated.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from odradek.protocol.generated.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from odradek.protocol.generated.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from odradek.protocol.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from odradek.protocol.generated.produce import ProduceResponse
from odradek.records import CompressionType
from odradek.storage.scan import iter_batches
from odradek.testing.broker import Broker
from tests.broker_connection import TIMEOUT_SECONDS, BrokerConnection
from tests.record_requests import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    fetch_request,
    produce_request,
)
from tests.transaction_requests import T0, TransactionalProducer
from tests.unit.broker.test_group_protocols import heartbeat
from tests.unit.broker.transaction_broker import state_of

METADATA_VERSION = 9
INIT_VERSION = 4
GROUP, TRANSACTION = 0, 1


@contextmanager
def running(**configs: str) -> Iterator[tuple[Broker, BrokerConnection]]:
    config = {name.replace("_", "."): value for name, value in configs.items()}
    with (
        Broker(memory=True, config=config) as broker,
        BrokerConnection(broker.port) as connection,
    ):
        yield broker, connection


def ask_for_topic(connection: BrokerConnection, name: str) -> MetadataResponse:
    topics = [MetadataRequestTopic(name=name)]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=True)
    return connection.ask(request, MetadataResponse, METADATA_VERSION)


def produce(connection: BrokerConnection, *values: bytes) -> int:
    request = produce_request("t", *values)
    answer = connection.ask(request, ProduceResponse, PRODUCE_VERSION)
    return answer.responses[0].partition_responses[0].error_code


# Who and where it is.


def test_a_broker_has_the_id_the_rack_and_the_address_of_its_config() -> None:
    names = {"advertised_listeners": "PLAINTEXT://example.org:1234"}
    with running(node_id="7", broker_rack="r1", **names) as (_, connection):
        (broker,) = connection.ask(DescribeClusterRequest(), DescribeClusterResponse).brokers
        found = broker.broker_id, broker.rack, broker.host, broker.port
        assert found == (7, "r1", "example.org", 1234)


def test_logs_are_in_log_dir_if_log_dirs_is_not_set(tmp_path: Path) -> None:
    from odradek.core.config import STANDALONE, load_broker_config, parse_overrides

    overrides = parse_overrides([f"log.dir={tmp_path}"])
    assert load_broker_config(overrides, base=STANDALONE).config.log_dirs == (str(tmp_path),)


# Connections.


def test_a_request_over_the_limit_is_not_read() -> None:
    with running(socket_request_max_bytes="1000") as (broker, connection):
        broker.create_topic("t")
        assert produce(connection, b"x") == ErrorCode.NONE
        with pytest.raises(ConnectionError):
            produce(connection, b"x" * 2000)


def test_a_silent_connection_is_closed() -> None:
    with running(connections_max_idle_ms="150") as (broker, _):
        address = ("127.0.0.1", broker.port)
        with socket.create_connection(address, TIMEOUT_SECONDS) as silent:
            assert silent.recv(1) == b""


@pytest.mark.parametrize("limit", ["max.connections", "max.connections.per.ip"])
def test_connections_over_the_limit_are_closed(limit: str) -> None:
    with running(**{limit.replace(".", "_"): "1"}) as (broker, connection):
        connection.ask(DescribeClusterRequest(), DescribeClusterResponse)
        with socket.create_connection(("127.0.0.1", broker.port), TIMEOUT_SECONDS) as second:
            assert second.recv(1) == b""


def test_an_address_may_have_a_limit_of_its_own() -> None:
    limits = {"max_connections_per_ip_overrides": "127.0.0.1:2"}
    with (
        running(max_connections_per_ip="1", **limits) as (broker, connection),
        BrokerConnection(broker.port) as second,
    ):
        for each in (connection, second):
            assert each.ask(DescribeClusterRequest(), DescribeClusterResponse).error_code == 0


# Fetching.


def test_a_fetch_gives_no_more_than_the_brokers_limit() -> None:
    with running(fetch_max_bytes="1024") as (broker, connection):
        broker.create_topic("t")
        for _ in range(5):
            assert produce(connection, b"x" * 600) == ErrorCode.NONE
        answer = connection.ask(fetch_request(["t"]), FetchResponse, FETCH_VERSION)
        records = answer.responses[0].partitions[0].records
        assert records is not None
        assert 0 < len(records) <= 1024  # the last batch is cut, as ever


@pytest.mark.parametrize(("slots", "has_session"), [("0", False), ("1", True)])
def test_fetch_sessions_are_kept_where_there_are_slots(slots: str, has_session: bool) -> None:
    with running(max_incremental_fetch_session_cache_slots=slots) as (broker, connection):
        broker.create_topic("t")
        request = fetch_request(["t"])
        request.session_epoch = 0  # a new session
        answer = connection.ask(request, FetchResponse, FETCH_VERSION)
        assert (answer.session_id != 0) == has_session


# Topics.


def test_a_topic_that_is_asked_for_has_the_default_number_of_partitions() -> None:
    with running(num_partitions="3") as (broker, connection):
        ask_for_topic(connection, "t")
        broker.clock.advance(1)
        (topic,) = ask_for_topic(connection, "t").topics
        assert len(topic.partitions) == 3


@pytest.mark.seed_row("1.2")
def test_topics_are_not_created_by_asking_if_the_config_says_so() -> None:
    with running(auto_create_topics_enable="false") as (broker, connection):
        (topic,) = ask_for_topic(connection, "t").topics
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert "t" not in broker.node.broker.image.topics


def test_topics_stay_where_deletion_is_off() -> None:
    with running(delete_topic_enable="false") as (broker, connection):
        broker.create_topic("t")
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000)
        (answer,) = connection.ask(request, DeleteTopicsResponse).responses
        assert answer.error_code == ErrorCode.TOPIC_DELETION_DISABLED


def test_a_default_replication_factor_needs_as_many_brokers() -> None:
    with running(default_replication_factor="2") as (_, connection):
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=-1)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=1000)
        (answer,) = connection.ask(request, CreateTopicsResponse).topics
        assert answer.error_code == ErrorCode.INVALID_REPLICATION_FACTOR


# Internal topics.


def find_coordinator(connection: BrokerConnection, kind: int) -> int:
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=["k"])
    (answer,) = connection.ask(request, FindCoordinatorResponse).coordinators
    return answer.error_code


INTERNAL_TOPICS = pytest.mark.parametrize(
    ("kind", "topic", "prefix"),
    [
        (GROUP, GROUP_TOPIC, "offsets.topic"),
        (TRANSACTION, TRANSACTION_TOPIC, "transaction.state.log"),
    ],
)


@pytest.mark.seed_row("0.13")
@INTERNAL_TOPICS
def test_an_internal_topic_is_made_as_the_config_says(kind: int, topic: str, prefix: str) -> None:
    config = {
        f"{prefix}.num.partitions": "3",
        f"{prefix}.segment.bytes": "2000000",
        "transaction.state.log.min.isr": "1",
    }
    with (
        Broker(memory=True, config=config) as broker,
        BrokerConnection(broker.port) as connection,
    ):
        assert find_coordinator(connection, kind) == ErrorCode.NONE
        image = broker.node.broker.image
        assert len(image.topics[topic].partitions) == 3
        configs = image.config_of(ConfigResource.topic(topic))
        assert configs["segment.bytes"] == "2000000"
        if kind == TRANSACTION:
            assert configs["min.insync.replicas"] == "1"


@pytest.mark.seed_row("0.13")
@INTERNAL_TOPICS
def test_an_internal_topic_needs_brokers_for_its_replicas(
    kind: int, topic: str, prefix: str
) -> None:
    with (
        Broker(memory=True, config={f"{prefix}.replication.factor": "2"}) as broker,
        BrokerConnection(broker.port) as connection,
    ):
        assert find_coordinator(connection, kind) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert topic not in broker.node.broker.image.topics


def test_records_of_groups_are_compressed_as_the_config_says() -> None:
    codec = CompressionType.ZSTD
    one = {"offsets_topic_num_partitions": "1"}
    with running(offsets_topic_compression_codec=str(codec.value), **one) as (broker, connection):
        broker.create_topic("t")
        assert heartbeat(connection).error_code == ErrorCode.NONE
        log = broker.node.broker.store.get(TopicPartition(GROUP_TOPIC, 0))
        assert log is not None
        batches = list(iter_batches(log.read(0, bytes_max=1 << 20).records))
        assert batches
        assert {batch.codec for batch in batches} == {codec}


# Records.


@pytest.mark.parametrize(
    ("codec", "low", "high"), [("gzip", 1, 9), ("lz4", 1, 12), ("zstd", 1, 19)]
)
def test_a_broker_compresses_with_the_level_of_the_topic(codec: str, low: int, high: int) -> None:
    words = [b"%x" % (number * 2654435761 % 4096) for number in range(20_000)]
    value = b" ".join(words)
    sizes = []
    for level in (low, high):
        with running() as (broker, connection):
            options = {f"compression_{codec}_level": str(level)}
            broker.create_topic("t", compression_type=codec, **options)  # type: ignore[arg-type]
            assert produce(connection, value) == ErrorCode.NONE
            log = broker.node.broker.store.get(TopicPartition("t", 0))
            assert log is not None
            sizes.append(log.segments.bytes)
    assert sizes[0] > sizes[1]


def test_a_time_too_far_in_the_future_is_refused() -> None:
    with running() as (broker, connection):
        broker.create_topic("t", message_timestamp_after_max_ms="1000")
        assert produce(connection, b"x") == ErrorCode.NONE
        broker.clock.step_wall(-60)
        assert produce(connection, b"x") == ErrorCode.INVALID_TIMESTAMP


# Transactions.


def test_a_transaction_may_not_take_longer_than_the_brokers_limit() -> None:
    with running(transaction_max_timeout_ms="60000") as (_, connection):
        find_coordinator(connection, TRANSACTION)
        for timeout_ms, code in ((60_000, 0), (60_001, ErrorCode.INVALID_TRANSACTION_TIMEOUT)):
            request = InitProducerIdRequest(
                transactional_id="tx", transaction_timeout_ms=timeout_ms
            )
            answer = connection.ask(request, InitProducerIdResponse, INIT_VERSION)
            assert answer.error_code == code


def test_transactions_that_ran_out_are_looked_for_as_often_as_the_config_says() -> None:
    interval = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": "3600000"}
    with running(**interval) as (broker, connection):
        broker.create_topic("t")
        TransactionalProducer(connection, timeout_ms=60_000).begin().add(T0)
        broker.clock.advance(3601)  # the first look comes within one interval
        assert state_of(connection) == "CompleteAbort"
        TransactionalProducer(connection, timeout_ms=60_000).begin().add(T0)
        broker.clock.advance(600)
        assert state_of(connection) == "Ongoing"
        broker.clock.advance(3600)
        assert state_of(connection) == "CompleteAbort"


def test_unused_transactional_ids_go_as_soon_and_as_often_as_the_configs_say() -> None:
    interval = {"transaction_remove_expired_transaction_cleanup_interval_ms": "60000"}
    with running(transactional_id_expiration_ms="1000", **interval) as (broker, connection):
        for _ in range(2):  # the first look comes within one interval, the second after another
            TransactionalProducer(connection, timeout_ms=60_000).begin()
            broker.clock.advance(61)
            assert state_of(connection) == "TRANSACTIONAL_ID_NOT_FOUND"


# Groups.


def alter_group(connection: BrokerConnection, name: str, value: int) -> int:
    config = AlterableConfig(name=name, config_operation=0, value=str(value))
    resource = AlterConfigsResource(resource_type=32, resource_name="g", configs=[config])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    (answer,) = connection.ask(request, IncrementalAlterConfigsResponse).responses
    return answer.error_code


@pytest.mark.parametrize(
    ("what", "least", "most"),
    [
        ("session.timeout.ms", 20_000, 90_000),
        ("heartbeat.interval.ms", 2_000, 18_000),
        ("assignment.interval.ms", 100, 90_000),
    ],
)
def test_a_groups_config_counts_within_the_brokers_bounds(what: str, least: int, most: int) -> None:
    bounds = {
        f"group.consumer.min.{what}": str(least),
        f"group.consumer.max.{what}": str(most),
    }
    with (
        Broker(topics=["t"], memory=True, config=bounds) as broker,
        BrokerConnection(broker.port) as connection,
    ):
        find_coordinator(connection, GROUP)
        settings = broker.node.broker.groups.settings
        assert settings is not None
        name = f"consumer.{what}"
        for value in (least, most):
            assert alter_group(connection, name, value) == ErrorCode.NONE
            setting = getattr(settings.consumer_for("g"), what.replace(".", "_"))
            assert setting == value
        for value in (least - 1, most + 1):
            assert alter_group(connection, name, value) == ErrorCode.INVALID_CONFIG
