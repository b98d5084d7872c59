"""Leaders elected by hand, with Kafka's tool and with ours, on nodes that are processes.

The same tests run with Kafka's server (``flavours``): both tools say the same of both.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.cluster.asking import placements_of
from tests.cluster.flavours import Flavour
from tests.cluster.processes import Cluster, ClusterNode, wait_until
from tests.cluster.replica_records import (
    ACKS_LEADER,
    make_replicated_topic,
    produce,
    see,
    wait_for_leader,
    wait_until_in_sync,
)
from tests.interop.kafka_peer import kafka_tool
from tests.interop.odradek_tool import odradek_tool

pytestmark = pytest.mark.slow

ROLES = {1: "controller", 11: "broker", 12: "broker"}
CONFIGS = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "auto.leader.rebalance.enable": "false",
    "leader.imbalance.check.interval.seconds": "1",  # would be soon, if it were enabled
}
Run = Callable[..., "CompletedProcess[str]"]
TOOLS: tuple[Run, ...] = (kafka_tool, odradek_tool)


@pytest.fixture(scope="module")
def cluster(flavour: Flavour, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("elections"), ROLES, flavour, configs=CONFIGS) as made:
        made.start()
        yield made


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    file = tmp_path / "plan.json"
    partitions = [{"topic": topic, "partition": 0} for topic in ("moved", "stayed")]
    file.write_text(json.dumps({"partitions": partitions}))
    return file


def elect(run: Run, cluster: Cluster, kind: str, *scope: str | Path) -> list[str]:
    place = ("--bootstrap-server", cluster.bootstrap_servers)
    made = run("leader-election", *place, "--election-type", kind, *scope, check=False)
    assert made.returncode == 0, made
    return [each for each in made.stdout.splitlines() if each]


def wait_until_led_by(cluster: Cluster, topic: str, node: ClusterNode) -> None:
    for each in cluster.brokers:
        if each.is_running:
            wait_for_leader(each, topic, [node])


@pytest.mark.seed_row("1.6")
def test_preferred_leaders_are_elected_from_a_file(cluster: Cluster, plan: Path) -> None:
    """Once with each tool: what moved goes back, what did not is said to need no election."""
    first, second = cluster.brokers
    make_replicated_topic(cluster, "moved", [first, second])
    make_replicated_topic(cluster, "stayed", [second, first])
    said = []
    for run in TOOLS:
        first.stop()
        wait_until_led_by(cluster, "moved", second)
        first.restart()
        wait_until_in_sync(cluster, "moved")
        wait_until_in_sync(cluster, "stayed")
        said.append(elect(run, cluster, "preferred", "--path-to-json-file", plan))
        wait_until_led_by(cluster, "moved", first)
        said.append(elect(run, cluster, "preferred", "--all-topic-partitions"))
    assert said == 2 * [
        [
            "Successfully completed leader election (PREFERRED) for partitions moved-0",
            "Valid replica already elected for partitions stayed-0",
        ],
        [],
    ]


@pytest.mark.seed_row("0.8")
def test_an_unclean_election_says_what_is_lost(cluster: Cluster) -> None:
    """With both tools the replica that was not in sync leads; ours says where its log ends."""
    first, second = cluster.brokers
    said = []
    for number, run in enumerate(TOOLS):
        topic = f"unclean-{number}"
        make_replicated_topic(cluster, topic, [first, second])
        lose_the_leader(cluster, topic)
        said += elect(run, cluster, "unclean", "--topic", topic, "--partition", "0")
        wait_until_led_by(cluster, topic, second)
        assert see(second, topic).values == [b"both have it"]
        first.restart()
        wait_until_in_sync(cluster, topic)
        assert see(second, topic).values == [b"both have it"]
    done = "Successfully completed leader election (UNCLEAN) for partitions unclean-{}-0"
    assert said[:2] == [done.format(0), done.format(1)]
    assert said[2:] == [
        f"unclean-1-0: broker {second.id} leads; its log ends at offset 1; records that broker "
        f"{first.id}, last in sync, has after that are lost, too: its log will show how many"
    ]


def lose_the_leader(cluster: Cluster, topic: str) -> None:
    """Have the first broker die with records that the second lacks, which is back alone."""
    first, second = cluster.brokers
    wait_until_in_sync(cluster, topic)
    assert produce(first, topic, b"both have it", acks=-1).base_offset == 0
    second.kill()
    wait_until(
        lambda: placements_of(first, topic)[0].isr == {first.id}, "the follower has left the ISR"
    )
    assert produce(first, topic, b"one has it", acks=ACKS_LEADER).base_offset == 1
    first.kill()
    second.restart()
    wait_until(lambda: placements_of(second, topic)[0].leader == -1, "nobody leads")
