"""Scenarios of Kafka's system tests that no other test plays; docs/system-tests.md has all of them.

Three controllers and three brokers, shared by the tests, whose metadata goes through many small
snapshots meanwhile.
"""

import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Protocol

import confluent_kafka
import pytest

from odradek.client import BlockingAdmin, BlockingConsumer, BlockingProducer, NewTopic
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from tests.cluster.asking import (
    active_controller,
    alive_brokers,
    create_until_done,
    make_topic,
    placements_of,
)
from tests.cluster.flavours import Flavour
from tests.cluster.processes import IS_WHOLE_MATRIX, Cluster, ClusterNode, wait_until
from tests.cluster.reading import Reader, read_all
from tests.cluster.recipes import CLEAN_ENDS
from tests.cluster.relays import CLIENT
from tests.cluster.replica_records import (
    ACKS_ALL,
    ACKS_LEADER,
    batches_on_disk,
    check_equal_logs,
    make_replicated_topic,
    produce,
    produce_as_new_leader,
    see,
    wait_for_leader,
    wait_until_in_sync,
)
from tests.cluster.writers import Writer, confluent_writer, odradek_writer

pytestmark = pytest.mark.slow

ROLES = {
    1: "controller",
    2: "controller",
    3: "controller",
    11: "broker",
    12: "broker",
    13: "broker",
}
BROKERS = (11, 12, 13)
CONFIGS = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "auto.leader.rebalance.enable": "false",
    "offsets.topic.replication.factor": "3",
    # Snapshots all the time, and no log from the beginning.
    "metadata.log.max.record.bytes.between.snapshots": "2048",
    "metadata.max.retention.bytes": "2048",
    "metadata.log.segment.ms": "1000",
}
BOUNCES = 5 if IS_WHOLE_MATRIX else 2
# For the other nodes see test_processes_failover.
BOUNCED = ("leader", "controller") if IS_WHOLE_MATRIX else ("leader",)
TOPICS = 50 if IS_WHOLE_MATRIX else 4
PARTITIONS = 34
CUT_SECONDS = 5.0
PROGRESS = 10
SECONDS_MAX = 180
SHORT_SECONDS = 5.0


@pytest.fixture(scope="module")
def shared(flavour: Flavour, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("system"), ROLES, flavour, configs=CONFIGS) as made:
        made.start()
        yield made


@pytest.fixture
def cluster(shared: Cluster) -> Iterator[Cluster]:
    """All of it runs; also for the next test, whatever becomes of this one."""
    yield shared
    shared.relays.heal()
    for node in shared.nodes.values():
        if not node.is_running:
            node.restart()


def progress(*writers: Writer) -> None:
    goals = [each.acknowledged + PROGRESS for each in writers]
    wait_until(
        lambda: all(w.acknowledged >= goal for w, goal in zip(writers, goals, strict=True)),
        "producers go on",
    )


def stop(node: ClusterNode) -> None:
    assert node.stop() in CLEAN_ENDS, node.log_tail()


def kill(node: ClusterNode) -> None:
    node.kill()


def leader_of(cluster: Cluster, topic: str) -> ClusterNode:
    asked = next(node for node in cluster.brokers if node.is_running)
    return wait_for_leader(asked, topic, [each for each in cluster.brokers if each.is_running])


def isr_of(node: ClusterNode, topic: str) -> frozenset[int]:
    return placements_of(node, topic)[0].isr


@pytest.mark.parametrize("end", [stop, kill])
@pytest.mark.parametrize("who", BOUNCED)
def test_what_is_acknowledged_is_read_while_nodes_bounce(
    cluster: Cluster, who: str, end: Callable[[ClusterNode], None]
) -> None:
    """replication_test: clean and hard bounces, one after the other."""
    topic = f"bounced-{who}-{end.__name__}"
    make_replicated_topic(cluster, topic, cluster.brokers, min_insync_replicas="2")
    servers, at = cluster.bootstrap_servers, TopicPartition(topic, 0)
    with Reader(servers, at) as reader, odradek_writer(servers, topic, 0, retries=None) as writer:
        for _ in range(BOUNCES):
            progress(writer)
            find = leader_of if who == "leader" else lambda made, _: active_controller(made)
            node = find(cluster, topic)
            end(node)
            progress(writer)
            node.restart()
            wait_until_in_sync(cluster, topic)
        written = writer.acknowledged
        values = reader.wait_for(written)
    assert writer.failures + reader.failures == []
    assert values == [b"%d" % number for number in range(len(values))]
    check_equal_logs(cluster, topic)


def test_a_partition_comes_back_with_an_eligible_replica_when_its_last_one_is_gone(
    cluster: Cluster,
) -> None:
    """eligible_leader_replicas_test: two leave cleanly, the leader is killed, the two return."""
    leader, *others = cluster.brokers
    make_replicated_topic(cluster, "eligible", cluster.brokers, min_insync_replicas="2")
    values = [b"%d" % number for number in range(50)]
    for value in values:
        assert produce(leader, "eligible", value, acks=ACKS_ALL).code == ErrorCode.NONE
    for node in others:
        stop(node)
    wait_until(lambda: isr_of(leader, "eligible") == {leader.id}, "the leader is alone")
    kill(leader)
    for node in others:
        node.restart()
    successor = wait_for_leader(others[0], "eligible", others)
    both = {node.id for node in others}
    wait_until(lambda: isr_of(successor, "eligible") == both, "both are in sync")
    # A follower learns with its next fetch that the last record is committed; it stopped before.
    # Kafka's new leader waits for min.insync.replicas as well before it moves its high watermark.
    wait_until(
        lambda: see(successor, "eligible").high_watermark == len(values), "all of it can be read"
    )
    assert see(successor, "eligible").values == values
    assert produce_as_new_leader(successor, "eligible", b"more", acks=ACKS_ALL) == (0, len(values))
    leader.restart()
    wait_until_in_sync(cluster, "eligible")
    check_equal_logs(cluster, "eligible")


class Consuming(Protocol):
    def poll(self) -> list[bytes | None]: ...

    def state(self) -> str: ...

    def close(self) -> None: ...


class Ours:
    def __init__(self, servers: str, topic: str) -> None:
        self._at = TopicPartition(topic, 0)
        self._consumer = BlockingConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
        self._consumer.assign([self._at])

    def poll(self) -> list[bytes | None]:
        found = self._consumer.poll(0.2).values()
        return [record.value for records in found for record in records]

    def state(self) -> str:
        return f"our position is {self._consumer.position(self._at, SHORT_SECONDS)}"

    def close(self) -> None:
        self._consumer.close()


class Librdkafka:
    def __init__(self, servers: str, topic: str) -> None:
        settings = {"group.id": "unused", "auto.offset.reset": "earliest", "log_level": 0}
        self._at = confluent_kafka.TopicPartition(topic, 0, 0)
        self._errors: Counter[str] = Counter()
        self._consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, **settings})
        self._consumer.assign([self._at])

    def poll(self) -> list[bytes | None]:
        message = self._consumer.poll(0.2)
        if message is None:
            return []
        if (error := message.error()) is not None:
            self._errors[str(error)] += 1
            return []
        return [message.value()]

    def state(self) -> str:
        (found,) = self._consumer.position([self._at])
        return f"librdkafka's position is {found.offset}, its errors were {dict(self._errors)}"

    def close(self) -> None:
        self._consumer.close()


def test_consumers_go_on_where_logs_parted_when_an_unclean_leader_has_cut_them_off(
    cluster: Cluster,
) -> None:
    """truncation_test: they neither begin anew nor miss what the new leader writes."""
    first, second, asked = cluster.brokers
    replicas = [first, second]
    make_replicated_topic(cluster, "cut-off", replicas, unclean_leader_election_enable="true")
    kept, lost, new = ([b"%s %d" % (name, n) for n in range(20)] for name in (b"a", b"b", b"c"))
    with ExitStack() as stack:
        consumers: list[Consuming] = [
            stack.enter_context(closing(kind(cluster.bootstrap_servers, "cut-off")))
            for kind in (Ours, Librdkafka)
        ]
        write(first, "cut-off", kept)
        # A follower that is in sync may lack what acks=1 wrote a moment ago: its fetch for other
        # partitions was under way. Kafka stops a leader, and loses those records, as well.
        wait_until(lambda: have_equal_logs(replicas, "cut-off"), "the second has all of it")
        stop(first)
        wait_until(lambda: isr_of(asked, "cut-off") == {second.id}, "the second is alone")
        write(second, "cut-off", lost)
        for consumer in consumers:
            assert poll(cluster, "cut-off", consumer, 40) == [*kept, *lost]
        kill(second)
        first.restart()
        wait_until(lambda: isr_of(asked, "cut-off") == {first.id}, "the first leads, uncleanly")
        write(first, "cut-off", new)
        second.restart()
        for consumer in consumers:
            assert poll(cluster, "cut-off", consumer, 20) == new
    at = TopicPartition("cut-off", 0)
    assert read_all(cluster.bootstrap_servers, at, 40) == [*kept, *new]


def write(node: ClusterNode, topic: str, values: Sequence[bytes]) -> None:
    """Write to a leader, which may not know yet that it is one."""
    for value in values:
        assert produce_as_new_leader(node, topic, value, acks=ACKS_LEADER).code == ErrorCode.NONE


def have_equal_logs(nodes: Sequence[ClusterNode], topic: str) -> bool:
    return len({tuple(batches_on_disk(node, topic)) for node in nodes}) == 1


def poll(cluster: Cluster, topic: str, consumer: Consuming, count: int) -> list[bytes | None]:
    values: list[bytes | None] = []

    def has_all() -> bool:
        values.extend(consumer.poll())
        return len(values) >= count

    try:
        wait_until(has_all, f"{count} records are read", SECONDS_MAX)
    except AssertionError as error:
        error.add_note(f"{type(consumer).__name__} has read {values}")
        for node in cluster.brokers:
            error.add_note(state_of(node, topic))
        error.add_note(consumer.state())  # last: it may fail, too
        raise
    return values


def state_of(node: ClusterNode, topic: str) -> str:
    """Return what a broker knows of a partition, and what its log is made of."""
    known = placements_of(node, topic) if node.is_running else "does not run"
    log = [(batch.base_offset, batch.leader_epoch) for batch in batches_on_disk(node, topic)]
    return f"node {node.id}: {known}; offsets and epochs of its log: {log}"


def test_clients_that_are_cut_off_go_on_when_they_are_back(cluster: Cluster) -> None:
    """round_trip_fault_test: no byte goes between the clients and any broker."""
    make_replicated_topic(cluster, "away", cluster.brokers, min_insync_replicas="2")
    servers, at = cluster.bootstrap_servers, TopicPartition("away", 0)
    with (
        Reader(servers, at) as reader,
        odradek_writer(servers, "away", 0, retries=None) as ours,
        confluent_writer(servers, "away", 0, retries=None) as librdkafka,
    ):
        writers = (ours, librdkafka)
        progress(*writers)
        for each in BROKERS:
            cluster.relays.cut(CLIENT, each)
            cluster.relays.cut(each, CLIENT)
        wait_until(lambda: stand_still(writers), "no producer goes on")
        assert alive_brokers(cluster.brokers[0]) == set(BROKERS)
        cluster.relays.heal()
        progress(*writers)
        written = sum(each.acknowledged for each in writers)
        values = reader.wait_for(written)
    assert ours.failures + librdkafka.failures + reader.failures == []
    wanted = sorted(b"%d" % n for each in writers for n in range(each.acknowledged))
    assert sorted(read_all(servers, at, len(wanted))) == wanted  # type: ignore[type-var]
    assert len(values) <= len(wanted)


def stand_still(writers: Sequence[Writer]) -> bool:
    """Tell whether nothing is acknowledged for a while: as long as the fault is to last."""
    before = [each.acknowledged for each in writers]
    deadline = time.monotonic() + CUT_SECONDS
    while time.monotonic() < deadline:
        if [each.acknowledged for each in writers] != before:
            return False
        time.sleep(0.05)
    return True


def test_a_wiped_broker_and_a_wiped_controller_come_back_from_snapshots(cluster: Cluster) -> None:
    """snapshot_test: nobody has the metadata log from its beginning any more."""
    number = 0
    beginnings = [beginning_of(node) for node in cluster.controllers]
    while any(each.exists() for each in beginnings):
        create_until_done(cluster.brokers[0], f"made-{number}", [11, 12, 13])
        number += 1
        assert number < 2_000, "the first segment of the metadata log stays"
    broker = cluster.nodes[13]
    active = active_controller(cluster)
    controller = next(node for node in cluster.controllers if node is not active)
    for node in (broker, controller):
        kill(node)
        shutil.rmtree(node.data_dir)
        cluster.format(node)
        create_until_done(cluster.brokers[0], f"while-{node.id}-was-away", [11, 12])
        node.restart()
        wait_until(lambda node=node: snapshots_of(node) != [], f"{node.id} has a snapshot")  # type: ignore[misc]
        assert not beginning_of(node).exists()
    stop(active)
    make_topic(cluster, "by-the-next-controller", [broker.id])
    produced = produce_as_new_leader(broker, "by-the-next-controller", b"there", acks=ACKS_ALL)
    assert produced == (ErrorCode.NONE, 0)
    active.restart()


def beginning_of(node: ClusterNode) -> Path:
    return node.data_dir / "__cluster_metadata-0" / f"{0:020}.log"


def snapshots_of(node: ClusterNode) -> list[Path]:
    return list((node.data_dir / "__cluster_metadata-0").glob("*.checkpoint"))


def test_many_replicas_are_written_read_bounced_and_deleted(cluster: Cluster) -> None:
    """replica_scale_test, in `make soak` with its 5,100 replicas."""
    servers = cluster.bootstrap_servers
    names = [f"many-{number}" for number in range(TOPICS)]
    configs = {"min.insync.replicas": "2"}
    with BlockingAdmin(bootstrap_servers=servers) as admin:
        for name in names:
            admin.create_topics([NewTopic(name, PARTITIONS, 3, configs=configs)]).unwrap()
    active = names[:3]
    with BlockingProducer(bootstrap_servers=servers, acks="all") as producer:
        sent = [
            producer.send(name, b"%d" % number, partition=number % PARTITIONS)
            for name in active
            for number in range(10 * PARTITIONS)
        ]
        for each in sent:
            each.result(SECONDS_MAX)
    for node in cluster.brokers:
        stop(node)
        node.restart()
    with closing(
        BlockingConsumer(*active, bootstrap_servers=servers, auto_offset_reset="earliest")
    ) as consumer:
        count = 0

        def has_all() -> bool:
            nonlocal count
            count += sum(map(len, consumer.poll(0.2).values()))
            return count >= len(sent)

        wait_until(has_all, "all records are read", SECONDS_MAX)
        assert count == len(sent)
    for name in names:
        wait_until_all_in_sync(cluster, name)
    with BlockingAdmin(bootstrap_servers=servers) as admin:
        admin.delete_topics(names).unwrap()
    logs = [cluster.nodes[each].data_dir / f"{names[0]}-0" for each in BROKERS]
    wait_until(lambda: not any(each.exists() for each in logs), "the logs are gone")


def wait_until_all_in_sync(cluster: Cluster, topic: str) -> None:
    asked = cluster.brokers[0]
    wait_until(
        lambda: all(each.isr == set(BROKERS) for each in placements_of(asked, topic)),
        f"all replicas of {topic} are in sync",
    )
