"""What the nodes of a cluster measure of replication, moves and their quorum, as processes."""

from collections.abc import Iterator

import pytest

from odradek.client import BlockingAdmin, BlockingProducer, NewTopic
from odradek.client.admin.configs import ConfigResource
from odradek.core.ids import TopicPartition
from tests.cluster.measured import MeasuredOdradek, scrape
from tests.cluster.processes import Cluster, ClusterNode, wait_until
from tests.interop.odradek_tool import odradek_tool

pytestmark = pytest.mark.slow

ROLES = {1: "controller", 2: "controller", 11: "broker", 12: "broker"}
TRAFFIC = "kafka_server_brokertopicmetrics_"
MANAGER = "kafka_server_replicamanager_"
QUORUM = "kafka_server_raftmetrics_"
REQUESTS = "kafka_network_requestmetrics_requests_total"
TIMES = "kafka_network_requestmetrics_totaltimems_count"
MAX_LAG = "kafka_server_replicafetchermanager_maxlag"
ACTIVE = "kafka_controller_kafkacontroller_activecontrollercount"
RECORD = bytes(100_000)
COUNT = 20
FETCHED_AT_ONCE = 1 << 20
CONFIGS = {"replication.quota.window.size.seconds": "3600"}
THROTTLED = {"leader.replication.throttled.replicas": "*"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("metrics")
    with Cluster(
        folder,
        ROLES,
        MeasuredOdradek(),
        quorum="dynamic",
        configs=CONFIGS,
        is_relayed=False,
        first_voters=[1],
    ) as made:
        made.start()
        yield made


@pytest.fixture(scope="module")
def admin(cluster: Cluster) -> Iterator[BlockingAdmin]:
    with BlockingAdmin(bootstrap_servers=cluster.bootstrap_servers) as made:
        yield made


def replica_bytes(node: ClusterNode) -> dict[str, float]:
    names = (
        "replicationbytesin",
        "replicationbytesout",
        "reassignmentbytesin",
        "reassignmentbytesout",
    )
    found = scrape(node)
    return {name: found.value(f"{TRAFFIC}{name}_total") for name in names}


def grown(node: ClusterNode, before: dict[str, float]) -> dict[str, float]:
    return {name: value - before[name] for name, value in replica_bytes(node).items()}


def write(cluster: Cluster, topic: str) -> None:
    with BlockingProducer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as producer:
        for sent in [producer.send(topic, RECORD, partition=0) for _ in range(COUNT)]:
            sent.result(60)


def bytes_in(node: ClusterNode, topic: str) -> float:
    return scrape(node).value(TRAFFIC + "bytesin_total", topic=topic)


def test_what_goes_to_a_replica_in_sync_is_replication_and_no_reassignment(
    cluster: Cluster, admin: BlockingAdmin
) -> None:
    leader, follower = cluster.brokers
    before = [replica_bytes(each) for each in (leader, follower)]
    admin.create_topics([NewTopic("kept", assignments={0: [leader.id, follower.id]})]).unwrap()
    write(cluster, "kept")
    size = bytes_in(leader, "kept")
    assert size > COUNT * len(RECORD)
    assert grown(leader, before[0]) == {
        "replicationbytesin": 0,
        "replicationbytesout": size,
        "reassignmentbytesin": 0,
        "reassignmentbytesout": 0,
    }
    assert grown(follower, before[1]) == {
        "replicationbytesin": size,
        "replicationbytesout": 0,
        "reassignmentbytesin": 0,
        "reassignmentbytesout": 0,
    }
    found = scrape(leader)
    assert found.value(TRAFFIC + "bytesout_total", topic="kept") == 0  # no consumer
    asked = {each["request"] for each in found.labels(REQUESTS)}
    assert "FetchFollower" in asked
    assert "FetchConsumer" not in asked
    times = [found.value(TIMES, request=each) for each in ("Fetch", "FetchFollower")]
    assert times[0] == times[1] > 0


def test_a_move_is_counted_on_both_sides_and_seen_while_it_lasts(
    cluster: Cluster, admin: BlockingAdmin
) -> None:
    source, target = cluster.brokers
    topic = NewTopic("moved", assignments={0: [source.id]}, configs=THROTTLED)
    admin.create_topics([topic]).unwrap()
    write(cluster, "moved")
    size = bytes_in(source, "moved")
    assert size > FETCHED_AT_ONCE
    limit(admin, "1")
    before = [replica_bytes(each) for each in (source, target)]
    admin.alter_partition_reassignments({TopicPartition("moved", 0): [target.id]}).unwrap()
    wait_until(lambda: scrape(target).value(MAX_LAG) > 0, "the replica has a part")
    assert scrape(source).value(MANAGER + "reassigningpartitions") == 1
    limit(admin, None)
    wait_until(lambda: not admin.list_partition_reassignments(), "it is over")
    wait_until(lambda: not has_log(source, "moved"), "the source has heard of it")
    sent = grown(source, before[0])
    count = sent["replicationbytesout"]  # with the parts of batches that end an answer
    assert size <= count < size + FETCHED_AT_ONCE
    assert sent == {
        "replicationbytesin": 0,
        "replicationbytesout": count,
        "reassignmentbytesin": 0,
        "reassignmentbytesout": count,
    }
    assert grown(target, before[1]) == {
        "replicationbytesin": count,
        "replicationbytesout": 0,
        "reassignmentbytesin": count,
        "reassignmentbytesout": 0,
    }
    for node in (source, target):
        assert scrape(node).value(MANAGER + "reassigningpartitions") == 0
        assert scrape(node).value(MAX_LAG) == 0


def has_log(node: ClusterNode, topic: str) -> bool:
    logs = scrape(node).labels("kafka_log_log_logendoffset")
    return topic in {labels["topic"] for labels in logs}


def limit(admin: BlockingAdmin, rate: str | None) -> None:
    """Throttle the leader: with such a window, one answer passes and nothing after it."""
    source = ConfigResource.broker(11)
    admin.alter_configs({source: {"leader.replication.throttled.rate": rate}}).unwrap()


def test_controllers_tell_who_is_in_charge_and_how_many_vote(cluster: Cluster) -> None:
    first, second = cluster.controllers
    assert [scrape(node).value(ACTIVE) for node in cluster.nodes.values()] == [1, 0, 0, 0]
    assert scrape(second).value(QUORUM + "is_observer") == 1
    assert scrape(first).value(QUORUM + "number_of_voters") == 1
    assert scrape(first).value(QUORUM + "number_of_observers") == 3  # with the brokers
    add = ("--command-config", second.properties, "add-controller")
    place = ("--bootstrap-server", cluster.bootstrap_servers)
    wait_until(
        lambda: odradek_tool("metadata-quorum", *place, *add, check=False).returncode == 0,
        "the second controller votes",
    )
    for node in cluster.nodes.values():
        wait_until(
            lambda node=node: scrape(node).value(QUORUM + "number_of_voters") == 2,  # type: ignore[misc]
            f"node {node.id} counts two voters",
        )
        assert scrape(node).value(QUORUM + "current_leader") == first.id
        assert scrape(node).value(QUORUM + "uncommitted_voter_change") == 0
    assert scrape(first).value(QUORUM + "number_of_observers") == 2
    assert scrape(second).value(QUORUM + "is_observer") == 0
