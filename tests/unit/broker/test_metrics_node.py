"""What a node tells: right after traffic, in both families of names, with bounded labels."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from odradek.broker.metrics.exposition import text_of
from odradek.broker.metrics.family import Family, Kind, Sample
from odradek.core.errors import ErrorCode
from odradek.protocol.generated import delete_topics
from odradek.protocol.generated.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from odradek.protocol.generated.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from odradek.protocol.generated.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from odradek.protocol.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek.protocol.generated.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.raft.leader import Leader
from odradek.raft.messages import RemoveVoterRequest, ReplicaKey
from odradek.raft.voter_change import VoterChange
from odradek.records import BatchBuilder
from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection
from tests.unit.broker.metrics_scrape import scrape

DOCUMENT = Path(__file__).parents[3] / "docs" / "metrics.md"
TRAFFIC = "kafka_server_brokertopicmetrics_"
VERSION = 12  # the last one of both APIs in which topics go by their names


def batch(records: int, size: int = 10) -> bytearray:
    builder = BatchBuilder()
    for _ in range(records):
        builder.append(0, None, bytes(size))
    return builder.build()


def produce(connection: BrokerConnection, topic: str, records: bytes | bytearray) -> int:
    data = PartitionProduceData(index=0, records=records)
    request = ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )
    response = connection.ask(request, ProduceResponse, VERSION)
    return response.responses[0].partition_responses[0].error_code


def fetch(
    connection: BrokerConnection, topic: str, offset: int, *, min_bytes: int = 1, wait_ms: int = 0
) -> tuple[int, bytes]:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
    data = connection.ask(request, FetchResponse, VERSION).responses[0].partitions[0]
    return data.error_code, bytes(data.records or b"")


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(topics={"orders": 2, "bills": 1}) as started:
        yield started


def test_records_in_and_out_are_counted_by_topic_and_in_all(
    broker: Broker, connection: BrokerConnection
) -> None:
    sent = batch(3)
    assert produce(connection, "orders", sent) == 0
    assert produce(connection, "bills", batch(1)) == 0
    _, taken = fetch(connection, "orders", 0)
    assert len(taken) == len(sent)
    found = scrape(broker)
    assert found.value(TRAFFIC + "messagesin_total", topic="orders") == 3
    assert found.value(TRAFFIC + "messagesin_total") == 4
    assert found.value(TRAFFIC + "bytesin_total", topic="orders") == len(sent)
    assert found.value(TRAFFIC + "bytesout_total", topic="orders") == len(sent)
    assert found.value(TRAFFIC + "bytesout_total") == len(sent)
    assert found.value(TRAFFIC + "bytesout_total", topic="bills") == 0
    assert found.value(TRAFFIC + "totalproducerequests_total", topic="orders") == 1
    assert found.value(TRAFFIC + "totalfetchrequests_total", topic="orders") == 1
    assert found.value("kafka_topic_partition_current_offset", topic="orders", partition="0") == 3
    assert found.value("kafka_topic_partition_current_offset", topic="orders", partition="1") == 0
    assert found.value("kafka_log_log_logendoffset", topic="orders", partition="0") == 3
    assert found.value("kafka_log_log_size", topic="orders", partition="0") == len(sent)


def test_bytes_of_a_fetch_that_waits_are_counted_once(
    broker: Broker, connection: BrokerConnection
) -> None:
    sent = batch(1)
    produce(connection, "orders", sent)
    _, taken = fetch(connection, "orders", 0, min_bytes=10_000, wait_ms=20)
    assert len(taken) == len(sent)
    found = scrape(broker)
    assert found.value(TRAFFIC + "bytesout_total", topic="orders") == len(sent)
    local = found.value("kafka_network_requestmetrics_localtimems_sum", request="Fetch")
    remote = found.value("kafka_network_requestmetrics_remotetimems_sum", request="Fetch")
    total = found.value("kafka_network_requestmetrics_totaltimems_sum", request="Fetch")
    assert total == pytest.approx(local + remote)
    # Not of the remote time alone: the wait begins before the handler has returned.
    assert total >= 19
    assert remote > 0


def test_bytes_that_went_out_by_topic_id_are_counted_by_name(broker: Broker) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("orders", b"x" * 1000, partition=1)
    assert producer.flush(120) == 0
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}
    )
    consumer.assign([confluent_kafka.TopicPartition("orders", 1, 0)])
    assert consumer.poll(120) is not None
    consumer.close()
    found = scrape(broker)
    assert found.value(TRAFFIC + "bytesout_total", topic="orders") > 1000
    assert found.value(TRAFFIC + "bytesout_total") == found.value(
        TRAFFIC + "bytesout_total", topic="orders"
    )


def test_refusals_are_counted_by_code(broker: Broker, connection: BrokerConnection) -> None:
    broker.create_topic("small", max_message_bytes="100")
    large = batch(10, 100)
    assert produce(connection, "small", large) == ErrorCode.MESSAGE_TOO_LARGE
    assert produce(connection, "nowhere", batch(1)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert produce(connection, "nowhere", batch(1)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert fetch(connection, "orders", 99)[0] == ErrorCode.OFFSET_OUT_OF_RANGE
    found = scrape(broker)
    assert found.value(TRAFFIC + "bytesrejected_total", topic="small") == len(large)
    assert found.value(TRAFFIC + "failedproducerequests_total", topic="small") == 0
    assert found.value(TRAFFIC + "failedfetchrequests_total") == 0
    errors = "kafka_network_requestmetrics_errors_total"
    assert found.value(errors, request="Produce", error="MESSAGE_TOO_LARGE") == 1
    assert found.value(errors, request="Produce", error="UNKNOWN_TOPIC_OR_PARTITION") == 2
    assert found.value(errors, request="FetchConsumer", error="OFFSET_OUT_OF_RANGE") == 1
    requests = "kafka_network_requestmetrics_requests_total"
    assert found.value(requests, request="Produce", version=str(VERSION)) == 3


def test_names_that_clients_make_up_become_no_labels(
    broker: Broker, connection: BrokerConnection
) -> None:
    for i in range(50):
        produce(connection, f"nowhere-{i}", batch(1))
        fetch(connection, f"nowhere-{i}", 0)
    found = scrape(broker)
    for name in set(found.names()):
        topics = {labels.get("topic") for labels in found.labels(name)}
        assert topics <= {None, "orders", "bills", "__cluster_metadata"}, name


def test_series_of_a_topic_end_with_it_and_totals_do_not_fall(
    broker: Broker, connection: BrokerConnection
) -> None:
    produce(connection, "bills", batch(5))
    request = delete_topics.DeleteTopicsRequest(
        topics=[delete_topics.DeleteTopicState(name="bills")], timeout_ms=10_000
    )
    connection.ask(request, delete_topics.DeleteTopicsResponse)
    found = scrape(broker)
    for name in set(found.names()):
        assert not any(labels.get("topic") == "bills" for labels in found.labels(name)), name
    assert found.value(TRAFFIC + "messagesin_total") == 5
    broker.create_topic("bills")
    again = scrape(broker)
    assert again.value(TRAFFIC + "messagesin_total", topic="bills") == 0
    assert again.value(TRAFFIC + "messagesin_total") == 5


def test_the_cluster_is_described(broker: Broker) -> None:
    found = scrape(broker)
    assert found.value("kafka_brokers") == 1
    assert found.value("kafka_topic_partitions", topic="orders") == 2
    partition = {"topic": "orders", "partition": "1"}
    assert found.value("kafka_topic_partition_leader", **partition) == 1
    assert found.value("kafka_topic_partition_leader_is_preferred", **partition) == 1
    assert found.value("kafka_topic_partition_in_sync_replica", **partition) == 1
    assert found.value("kafka_topic_partition_under_replicated_partition", **partition) == 0
    assert found.value("kafka_server_replicamanager_leadercount") == 3
    assert found.value("kafka_server_replicamanager_atminisrpartitioncount") == 3
    assert found.value("kafka_controller_kafkacontroller_globalpartitioncount") == 3
    assert found.value("kafka_controller_kafkacontroller_offlinepartitionscount") == 0
    log_end_offset = found.value("kafka_server_raftmetrics_log_end_offset")
    assert log_end_offset == broker.node.metadata.log.log_end_offset


def test_requests_that_wait_are_in_purgatory(broker: Broker, connection: BrokerConnection) -> None:
    with BrokerConnection(broker.port) as other:
        other.send(waiting_fetch(), VERSION)
        connection_seen = 0
        while connection_seen == 0:  # a request on another connection is no proof that it is there
            assert fetch(connection, "orders", 0)[0] == 0
            connection_seen = len(broker.node.broker.delayed)
        name = "kafka_server_delayedoperationpurgatory_purgatorysize"
        assert scrape(broker).value(name, delayedoperation="Fetch") == 1


def waiting_fetch() -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=60_000,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[FetchTopic(topic="orders", partitions=[wanted])],
    )


def test_the_document_lists_every_name_and_no_other(
    broker: Broker, connection: BrokerConnection
) -> None:
    produce(connection, "nowhere", batch(1))
    commit(broker, connection)
    documented = set(re.findall(r"^\| `(\w+)` \|", DOCUMENT.read_text(), re.MULTILINE))
    found = scrape(broker)
    shown = set()
    for name in found.names():
        is_summary = found.types.get(name.removesuffix("_count").removesuffix("_sum")) == "summary"
        shown.add(name.removesuffix("_count").removesuffix("_sum") if is_summary else name)
    assert shown == documented


def test_a_large_family_comes_in_chunks_under_one_heading() -> None:
    samples = [Sample({"n": str(n)}, n) for n in range(1234)]
    chunks = list(text_of(Family("many", "Many.", Kind.COUNTER, samples)))
    assert len(chunks) == 3
    text = b"".join(chunks)
    assert text.count(b"# TYPE many_total counter\n") == 1
    assert [int(float(n)) for n in re.findall(rb"^many_total{.*} (.*)$", text, re.MULTILINE)] == [
        *range(1234)
    ]


def test_groups_show_how_far_they_are_behind(broker: Broker, connection: BrokerConnection) -> None:
    for _ in range(2):
        produce(connection, "orders", batch(5))
    commit(broker, connection, offset=3)
    found = scrape(broker)
    labels = {"consumergroup": 'a "group"', "topic": "orders"}
    assert found.value("kafka_consumergroup_current_offset", **labels, partition="0") == 3
    assert found.value("kafka_consumergroup_lag", **labels, partition="0") == 7
    assert found.value("kafka_consumergroup_lag_sum", **labels) == 7
    assert found.value("kafka_consumergroup_members", consumergroup='a "group"') == 0
    name = "kafka_server_group_coordinator_metrics_group_count"
    assert found.value(name, protocol="classic") == 1
    assert found.value("kafka_coordinator_group_groupmetadatamanager_numgroupsempty") == 1
    assert found.value("kafka_coordinator_group_groupmetadatamanager_numoffsets") == 1
    assert found.value("kafka_server_group_coordinator_metrics_offset_commit_total") == 1


def commit(broker: Broker, connection: BrokerConnection, offset: int = 1) -> None:
    """Commit an offset for a group, and begin a transaction."""
    for key_type, key in ((0, 'a "group"'), (1, "t")):
        find = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        connection.ask(find, FindCoordinatorResponse)
    init = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1000)
    assert connection.ask(init, InitProducerIdResponse, 5).error_code == 0
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequestTopic(
        topic_id=broker.node.broker.image.topics["orders"].topic_id, partitions=[partition]
    )
    request = OffsetCommitRequest(group_id='a "group"', topics=[topic])
    (answer,) = connection.ask(request, OffsetCommitResponse).topics
    assert answer.partitions[0].error_code == 0


@pytest.mark.slow
def test_a_node_that_nobody_scrapes_does_not_load_what_scrapes_need() -> None:
    program = (
        "import sys\n"
        "from odradek.testing.broker import Broker\n"
        "with Broker(topics=['t']) as broker:\n"
        "    late = ('prometheus_client', 're2', 'odradek.broker.metrics.client_metrics')\n"
        "    assert not [name for name in late if name in sys.modules]\n"
        "    assert b'kafka_brokers 1.0' in broker.node.broker.metrics.text()\n"
        "    assert 'prometheus_client' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=180)


def test_a_change_of_the_voters_shows_while_it_is_under_way(broker: Broker) -> None:
    name = "kafka_server_raftmetrics_uncommitted_voter_change"
    assert scrape(broker).value(name) == 0
    role = broker.node.metadata.raft.role
    assert isinstance(role, Leader)
    role.change = VoterChange(RemoveVoterRequest(1, ReplicaKey(9)), deadline_ms=2**62)
    assert scrape(broker).value(name) == 1
    role.change = None
