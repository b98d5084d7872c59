"""Moves of partitions by the tool, between nodes that are processes and may be down."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.client import BlockingAdmin, BlockingConsumer, BlockingProducer, NewTopic
from odradek.client.admin.configs import ConfigResource
from odradek.client.consumer.records import OffsetAndMetadata
from odradek.core.ids import TopicPartition
from tests.cluster.processes import COMBINED, Cluster, ClusterNode, wait_until
from tests.cluster.reading import read_all
from tests.cluster.replica_records import batches_on_disk
from tests.cluster.writers import Writer, confluent_writer, odradek_writer
from tests.interop.odradek_tool import odradek_tool

pytestmark = pytest.mark.slow

GROUPS = "__consumer_offsets"
LARGE, LARGE_COUNT, LARGE_DELETED = bytes(50_000), 200, 30  # each restart may let 1 MiB through
CONFIGS = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "offsets.topic.num.partitions": "3",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("moves")
    with Cluster(folder, COMBINED, configs=CONFIGS, is_relayed=False) as made:
        made.start()
        yield made


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    return tmp_path / "plan.json"


def write(plan: Path, topic: str, replicas: dict[int, list[int]]) -> None:
    rows = [{"topic": topic, "partition": n, "replicas": ids} for n, ids in replicas.items()]
    plan.write_text(json.dumps({"version": 1, "partitions": rows}))


def run(cluster: Cluster, *arguments: str | Path) -> tuple[list[str], list[str]]:
    """Return what the tool prints: lines of stdout, and of stderr."""
    place = ("--bootstrap-server", cluster.bootstrap_servers)
    made = odradek_tool("reassign-partitions", *place, *arguments)
    assert made.returncode == 0, made
    return [each for each in made.stdout.splitlines() if each], made.stderr.splitlines()


def move(cluster: Cluster, plan: Path, *flags: str) -> tuple[list[str], list[str]]:
    return run(cluster, "--execute", "--reassignment-json-file", plan, *flags)


def wait_until_completed(cluster: Cluster, plan: Path, count: int) -> list[str]:
    """Return the lines of the first --verify that finds all partitions where they shall be."""
    printed: list[str] = []

    def is_completed() -> bool:
        printed[:], _ = run(cluster, "--verify", "--reassignment-json-file", plan)
        return sum(each.endswith(" is completed.") for each in printed) == count

    wait_until(is_completed, "the moves are over")
    return printed


def create(admin: BlockingAdmin, topic: str, replicas: list[int]) -> None:
    admin.create_topics([NewTopic(topic, assignments={0: replicas})]).unwrap()


def wait_until_gone(cluster: Cluster, node: ClusterNode) -> None:
    """Wait until the brokers that run do not list it any more."""
    with BlockingAdmin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        wait_until(
            lambda: node.id not in {each.node_id for each in admin.describe_cluster().brokers},
            f"node {node.id} is fenced",
        )


@pytest.mark.seed_row("0.14")
def test_offsets_of_groups_get_three_replicas_from_a_json_file(
    cluster: Cluster, plan: Path
) -> None:
    """Row 0.14."""
    servers, at = cluster.bootstrap_servers, TopicPartition("read", 0)
    with BlockingAdmin(bootstrap_servers=servers) as admin:
        create(admin, "read", [1, 2, 3])
        with BlockingProducer(bootstrap_servers=servers) as producer:
            for number in range(5):
                producer.send("read", b"%d" % number, partition=0).result(60)
        with group_member(servers, at) as consumer:
            consumer.commit({at: OffsetAndMetadata(3)})
        before = admin.describe_topics([GROUPS]).unwrap()[GROUPS]
        assert [len(each.replicas) for each in before.partitions] == [1, 1, 1]
        first = {each.partition: each.replicas[0] for each in before.partitions}
        wanted = {n: [node, *(i for i in (1, 2, 3) if i != node)] for n, node in first.items()}
        write(plan, GROUPS, wanted)
        started, _ = move(cluster, plan)
        assert started[-1] == (
            f"Successfully started partition reassignments for {GROUPS}-0,{GROUPS}-1,{GROUPS}-2"
        )
        wait_until_completed(cluster, plan, 3)
        after = admin.describe_topics([GROUPS]).unwrap()[GROUPS]
        assert {each.partition: list(each.replicas) for each in after.partitions} == wanted
        assert all(set(each.isr) == {1, 2, 3} for each in after.partitions)
        coordinator = cluster.nodes[admin.describe_groups(["g"]).unwrap()["g"].coordinator]
    coordinator.kill()
    with group_member(cluster.bootstrap_servers, at) as consumer:
        committed = consumer.committed([at])[at]
        assert committed is not None
        assert committed.offset == 3
        consumer.commit({at: OffsetAndMetadata(4)})
    coordinator.restart()


def group_member(servers: str, at: TopicPartition) -> "BlockingConsumer[bytes, bytes]":
    consumer = BlockingConsumer(bootstrap_servers=servers, group_id="g", enable_auto_commit=False)
    consumer.assign([at])
    return consumer


@pytest.mark.seed_row("1.7")
def test_partitions_go_where_generate_proposes_and_back_under_load(
    cluster: Cluster, plan: Path
) -> None:
    """Row 1.7: nothing that is acknowledged is lost or doubled, and all replicas are equal."""
    servers = cluster.bootstrap_servers
    with BlockingAdmin(bootstrap_servers=servers) as admin:
        places = {0: [1, 2], 1: [2, 1]}
        configs = {"min.insync.replicas": "2"}
        admin.create_topics([NewTopic("carried", assignments=places, configs=configs)]).unwrap()
    topics = plan.with_name("topics.json")
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": "carried"}]}))
    with (
        odradek_writer(servers, "carried", 0, retries=None) as ours,
        confluent_writer(servers, "carried", 1, retries=None) as librdkafka,
    ):
        writers = [ours, librdkafka]
        to = ("--topics-to-move-json-file", topics, "--broker-list", "3,2")
        generated, _ = run(cluster, "--generate", *to)
        before, proposed = generated[1], generated[3]
        for document in (proposed, before, proposed):
            goals = [writer.acknowledged + 20 for writer in writers]
            plan.write_text(document)
            move(cluster, plan)
            wait_until_completed(cluster, plan, 2)
            wait_until(
                lambda goals=goals: all(  # type: ignore[misc]
                    writer.acknowledged >= goal for writer, goal in zip(writers, goals, strict=True)
                ),
                "producers go on",
            )
    assert ours.failures + librdkafka.failures == []
    rows = json.loads(proposed)["partitions"]
    for number, writer in enumerate(writers):
        (replicas,) = (each["replicas"] for each in rows if each["partition"] == number)
        assert set(replicas) == {2, 3}
        at = TopicPartition("carried", number)
        assert read_all(servers, at, writer.acknowledged) == [
            b"%d" % each for each in range(writer.acknowledged)
        ]
    for number in (0, 1):
        second, third = (batches_on_disk(cluster.nodes[each], "carried", number) for each in (2, 3))
        assert second == third
        left = cluster.nodes[1].data_dir / f"carried-{number}"
        wait_until(lambda left=left: not left.exists(), f"{left} is deleted")  # type: ignore[misc]


def test_a_broker_that_is_down_holds_up_no_tool(cluster: Cluster, plan: Path) -> None:
    """Kafka's tool times out when a broker with an old replica is down (KAFKA-13392)."""
    servers = cluster.bootstrap_servers
    with BlockingAdmin(bootstrap_servers=servers) as admin:
        create(admin, "left", [3, 1])
    gone = cluster.nodes[3]
    gone.kill()
    write(plan, "left", {0: [2, 1]})
    wait_until_gone(cluster, gone)
    started, warned = move(cluster, plan, "--throttle", "1000000")
    assert started[-1] == "Successfully started partition reassignment for left-0"
    assert started[-2] == "The inter-broker throttle limit was set to 1000000 B/s"
    throttled = "did not answer, and throttles there stay as they are: run"
    assert warned == [
        f"Warning: broker 3 {throttled} --execute --additional again when it is back."
    ]
    assert wait_until_completed(cluster, plan, 1) == [
        "Status of partition reassignment:",
        "Reassignment of partition left-0 is completed.",
        "Clearing broker-level throttles on brokers 1,2",
        "Clearing topic-level throttles on topic left",
    ]
    gone.restart()


def test_a_move_to_a_broker_that_is_down_is_explained_and_can_be_cancelled(
    cluster: Cluster, plan: Path
) -> None:
    with BlockingAdmin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        create(admin, "stuck", [1])
    gone = cluster.nodes[3]
    gone.kill()
    wait_until_gone(cluster, gone)
    with BlockingAdmin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        # The tool refuses it, as Kafka's does; a controller takes it.
        wanted = {TopicPartition("stuck", 0): [3]}
        admin.alter_partition_reassignments(wanted).unwrap()
    assert run(cluster, "--list") == (
        [
            "Current partition reassignments:",
            "stuck-0: replicas: 3,1. adding: 3. removing: 1.",
        ],
        [
            "  stuck-0 waits for broker 3, which does not run: start it, or stop the move with"
            " --cancel"
        ],
    )
    write(plan, "stuck", {0: [3]})
    status, _ = run(cluster, "--verify", "--reassignment-json-file", plan)
    assert status[1] == "Reassignment of partition stuck-0 is still in progress."
    stopped, _ = run(cluster, "--cancel", "--reassignment-json-file", plan)
    assert stopped[0] == "Successfully cancelled partition reassignment for: stuck-0"
    assert run(cluster, "--list") == (["No partition reassignments found."], [])
    gone.restart()


def test_a_move_goes_on_though_every_broker_restarts(cluster: Cluster, plan: Path) -> None:
    """A log that does not begin at 0; a throttle makes the move last, and is raised at its end."""
    servers, at = cluster.bootstrap_servers, TopicPartition("long", 0)
    with BlockingAdmin(bootstrap_servers=servers) as admin:
        create(admin, "long", [1, 2])
        with BlockingProducer(bootstrap_servers=servers, compression_type="none") as producer:
            for _ in range(LARGE_COUNT):  # a batch each
                producer.send("long", LARGE, partition=0).result(60)
        assert admin.delete_records({at: LARGE_DELETED}).unwrap() == {at: LARGE_DELETED}
    write(plan, "long", {0: [2, 3]})
    with odradek_writer(servers, "long", 0, retries=None) as writer:
        move(cluster, plan, "--throttle", "20000")
        for node in cluster.brokers:
            node.stop()
            node.restart()
            wait_for_writes(writer)
            assert run(cluster, "--list")[0][1].startswith("long-0: replicas: "), "it is over"
        move(cluster, plan, "--additional", "--throttle", "100000000")
        said = wait_until_completed(cluster, plan, 1)
        wait_for_writes(writer)
    assert said[-2:] == [
        "Clearing broker-level throttles on brokers 1,2,3",
        "Clearing topic-level throttles on topic long",
    ]
    assert writer.failures == []
    large = [LARGE] * (LARGE_COUNT - LARGE_DELETED)
    written = [*large, *(b"%d" % each for each in range(writer.acknowledged))]
    assert read_all(servers, at, len(written)) == written
    logs = [batches_on_disk(cluster.nodes[each], "long") for each in (2, 3)]
    assert logs[1][0].base_offset == LARGE_DELETED
    assert [each for each in logs[0] if each.base_offset >= LARGE_DELETED] == logs[1]


def wait_for_writes(writer: Writer) -> None:
    goal = writer.acknowledged + 20
    wait_until(lambda: writer.acknowledged >= goal, "the producer goes on")


BAD_ROWS = {
    "no such broker": ((1, [9]), "Error: Unknown broker id 9"),
    "no such partition": ((7, [2]), "Error: Unable to find partition: whole-7"),
    "no replicas": ((1, []), "Error: Partition replica list cannot be empty"),
    "a broker twice": (
        (1, [2, 2]),
        "Error: Partition replica lists may not contain duplicate entries:"
        " whole-1 contains multiple entries for 2",
    ),
    "a partition twice": (
        (0, [3]),
        "Error: Partition reassignment contains duplicate topic partitions: whole-0",
    ),
}


def test_a_plan_with_one_bad_row_moves_and_throttles_nothing(cluster: Cluster, plan: Path) -> None:
    topic = ConfigResource.topic("whole")
    with BlockingAdmin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("whole", assignments={0: [1], 1: [1]})]).unwrap()
        for (number, replicas), said in BAD_ROWS.values():
            rows = [(0, [2]), (number, replicas)]
            partitions = [{"topic": "whole", "partition": n, "replicas": ids} for n, ids in rows]
            plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
            place = ("--bootstrap-server", cluster.bootstrap_servers)
            flags = ("--execute", "--reassignment-json-file", plan, "--throttle", "1000")
            made = odradek_tool("reassign-partitions", *place, *flags, check=False)
            assert (made.returncode, made.stdout) == (1, f"{said}\n")
            assert admin.list_partition_reassignments() == {}
        found = admin.describe_topics(["whole"]).unwrap()["whole"]
        assert [list(each.replicas) for each in found.partitions] == [[1], [1]]
        for resource in (topic, *map(ConfigResource.broker, cluster.nodes)):
            configs = admin.describe_configs([resource]).unwrap()[resource]
            throttles = {each.value for name, each in configs.items() if "throttled" in name}
            assert throttles <= {""}
