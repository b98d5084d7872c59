"""The recipes of docs/operations.md, run as printed while producers with acks=all write.

A broker joins, gets partitions, is drained and forgotten; nodes are restarted one after the other;
nodes of an older version are replaced by newer ones, and features follow.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from odradek.client import BlockingAdmin, BlockingConsumer, NewTopic
from odradek.client.consumer.records import OffsetAndMetadata
from odradek.core.ids import TopicPartition
from tests.cluster.asking import active_controller, alive_brokers
from tests.cluster.flavours import Flavour, Odradek
from tests.cluster.processes import COMBINED, Cluster, ClusterNode, wait_until
from tests.cluster.reading import read_all
from tests.cluster.recipes import CLEAN_ENDS, Recipes, steps_of
from tests.cluster.replica_records import batches_on_disk
from tests.cluster.writers import Writer, confluent_writer, odradek_writer

pytestmark = pytest.mark.slow

OLDER = "4.0-IV3"
TOPIC = "orders"
PARTITIONS = 6
PROGRESS = 20
CONFIGS = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "offsets.topic.replication.factor": "3",
    "auto.leader.rebalance.enable": "false",
}


class OlderOdradek(Odradek):
    """Nodes that know no features after an older release, in a cluster formatted for it."""

    def format(self, properties: Path, arguments: Sequence[str]) -> None:
        super().format(properties, [*arguments, "--release-version", OLDER])

    def command(self, properties: Path) -> list[str]:
        program = Path(__file__).with_name("older_node.py")
        return [sys.executable, str(program), OLDER, str(properties)]


@pytest.fixture(scope="module")
def cluster(flavour: Flavour, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("operations")
    with Cluster(folder, COMBINED, flavour, configs=CONFIGS, is_relayed=False) as made:
        made.start()
        yield made


@contextmanager
def load(cluster: Cluster, topic: str) -> Iterator[list[Writer]]:
    """Write to the first two partitions of a new topic meanwhile; then check every replica."""
    servers = cluster.bootstrap_servers
    wanted = NewTopic(topic, PARTITIONS, 3, configs={"min.insync.replicas": "2"})
    with BlockingAdmin(bootstrap_servers=servers) as admin:
        admin.create_topics([wanted]).unwrap()
    commit(servers, topic, 0)
    with (
        odradek_writer(servers, topic, 0, retries=None) as ours,
        confluent_writer(servers, topic, 1, retries=None) as librdkafka,
    ):
        writers = [ours, librdkafka]
        yield writers
        wait_for_progress(writers)
    assert [each.failures for each in writers] == [[], []]
    for number, writer in enumerate(writers):
        written = [b"%d" % each for each in range(writer.acknowledged)]
        assert read_all(servers, TopicPartition(topic, number), len(written)) == written
    assert committed(servers, topic) == 0
    check_equal_replicas(cluster, topic)


def wait_for_progress(writers: list[Writer]) -> None:
    goals = [writer.acknowledged + PROGRESS for writer in writers]
    wait_until(
        lambda: all(w.acknowledged >= goal for w, goal in zip(writers, goals, strict=True)),
        "producers go on",
    )


def group(servers: str, topic: str) -> "BlockingConsumer[bytes, bytes]":
    return BlockingConsumer(bootstrap_servers=servers, group_id=topic, enable_auto_commit=False)


def commit(servers: str, topic: str, offset: int) -> None:
    at = TopicPartition(topic, 0)
    with group(servers, topic) as consumer:
        consumer.assign([at])
        consumer.commit({at: OffsetAndMetadata(offset)})


def committed(servers: str, topic: str) -> int:
    at = TopicPartition(topic, 0)
    with group(servers, topic) as consumer:
        found = consumer.committed([at])[at]
    assert found is not None
    return found.offset


def replicas_of(cluster: Cluster, topic: str) -> dict[int, tuple[int, ...]]:
    with BlockingAdmin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        found = admin.describe_topics([topic]).unwrap()[topic].partitions
    return {each.partition: tuple(each.replicas) for each in found}


def leaders_of(cluster: Cluster, topic: str) -> dict[int, int | None]:
    with BlockingAdmin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        found = admin.describe_topics([topic]).unwrap()[topic].partitions
    return {each.partition: each.leader for each in found}


def check_equal_replicas(cluster: Cluster, topic: str) -> None:
    """Check that the replicas of what was written are where they should be, with equal batches."""
    for number, replicas in replicas_of(cluster, topic).items():
        logs = [batches_on_disk(cluster.nodes[each], topic, number) for each in replicas]
        assert logs[1:] == logs[:-1]
        assert bool(logs[0]) == (number < 2)


def join(cluster: Cluster, node_id: int) -> ClusterNode:
    """Make a broker that nobody knows yet: neither formatted nor started."""
    node = cluster.add(node_id, "broker")
    cluster.write_properties(node)
    return node


def test_a_broker_joins_gets_partitions_is_drained_and_is_forgotten(
    cluster: Cluster, tmp_path: Path
) -> None:
    recipes = Recipes(cluster, tmp_path)
    fourth = join(cluster, 4)
    with load(cluster, TOPIC) as writers:
        recipes.run("Adding a broker")
        wait_for_progress(writers)
        shared = replicas_of(cluster, TOPIC)
        counts = [sum(node in each for each in shared.values()) for node in (1, 2, 3, 4)]
        assert sum(counts) == 3 * PARTITIONS
        assert max(counts) - min(counts) <= 1, shared
        preferred = {number: replicas[0] for number, replicas in shared.items()}
        wait_until(lambda: leaders_of(cluster, TOPIC) == preferred, "preferred replicas lead")
        assert 4 in preferred.values()

        recipes.run("Draining and removing a broker")
        wait_for_progress(writers)
        assert {node for each in replicas_of(cluster, TOPIC).values() for node in each} == {1, 2, 3}
        assert not list(fourth.data_dir.glob(f"{TOPIC}-?"))
        assert alive_brokers(cluster.nodes[1]) == {1, 2, 3}
    check_that_it_may_come_back(cluster, fourth)


def check_that_it_may_come_back(cluster: Cluster, node: ClusterNode) -> None:
    """Without configs of its former life: it is not cordoned."""
    node.restart()
    with BlockingAdmin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("everywhere", 1, 4)]).unwrap()
        admin.delete_topics(["everywhere"]).unwrap()
        node.stop()
        admin.unregister_broker(node.id)
    del cluster.nodes[node.id]


def test_a_rolling_restart_as_the_recipe_says(cluster: Cluster, tmp_path: Path) -> None:
    recipes = Recipes(cluster, tmp_path)
    with load(cluster, "rolled") as writers:
        last = active_controller(cluster)
        for node in (*(each for each in cluster.brokers if each is not last), last):
            restart(recipes, writers, node)
        recipes.take(steps_of("Adding a broker")[-1])
        preferred = {n: each[0] for n, each in replicas_of(cluster, "rolled").items()}
        wait_until(lambda: leaders_of(cluster, "rolled") == preferred, "preferred replicas lead")


def restart(
    recipes: Recipes, writers: list[Writer], node: ClusterNode, flavour: Flavour | None = None
) -> None:
    """Restart one node as the recipe says, perhaps in another version."""
    checks = steps_of("Rolling restart")
    assert len(checks) == 2
    for check in checks:
        recipes.take(check)
    assert node.stop() in CLEAN_ENDS
    wait_for_progress(writers)
    node.flavour = flavour or node.flavour
    node.restart()
    for check in checks:
        recipes.take(check)


def test_a_rolling_upgrade_as_the_recipe_says(tmp_path: Path) -> None:
    """From nodes that know the features of an older release; one goes back to it meanwhile."""
    older, newer = OlderOdradek(), Odradek()
    upgrade, describe = steps_of("Rolling upgrade")
    with Cluster(tmp_path, COMBINED, older, configs=CONFIGS, is_relayed=False) as cluster:
        cluster.start()
        recipes = Recipes(cluster, tmp_path)
        first, second, third = cluster.brokers
        with load(cluster, TOPIC) as writers:
            for node, version in ((first, newer), (first, older), (first, newer), (second, newer)):
                restart(recipes, writers, node, version)
            code, said = recipes.output_of(upgrade)
            assert code == 1
            assert "3 only supports versions 7-25" in said
            restart(recipes, writers, third, newer)
            assert f"FinalizedVersionLevel: {OLDER}" in recipes.output_of(describe)[1]
            recipes.take(upgrade)
            recipes.take(describe)
        assert third.stop() == 0
        third.flavour = older
        third.start()
        assert third.wait_for_end() == 1
        # Its controller finds it in the log, or its broker hears it; whichever comes first.
        assert re.search("supports 7 to 25: start a newer|start another version", third.log_tail())
