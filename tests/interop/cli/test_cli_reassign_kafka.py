"""``odradek reassign-partitions`` does what Kafka's tool does, to Kafka's brokers and to ours.

Two brokers; the first has two log directories. Each tool has a topic of its own, and the names are
equally long.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from odradek.protocol.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tests.broker_connection import BrokerConnection
from tests.cluster import processes
from tests.cluster.processes import HOST
from tests.interop.cli.tool_pair import Printed, ToolPair, wait_until
from tests.interop.clients import Sent
from tests.interop.clients.confluent import Confluent
from tests.interop.kafka_peer import KafkaBroker, KafkaNode
from tests.interop.programs.program import Program

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.usefixtures("kafka_libs")]

# One batch at a time, and after each the quota of a byte a second is used up for as long as it is
# measured over: a move of so many batches does not end while somebody looks at it.
CONFIGS = {
    "replica.fetch.max.bytes": "1",
    "replica.fetch.response.max.bytes": "1",
    # Nobody is fenced, nor out of sync, because the machine stood still for a while.
    "broker.session.timeout.ms": "600000",
    "replica.lag.time.max.ms": "600000",
}
BATCHES = 100

_numbers = count(1)


class Cluster(NamedTuple):
    tools: ToolPair
    log_dirs: tuple[str, str]
    ports: tuple[int, int]


@pytest.fixture(scope="module", params=["kafka", "odradek"])
def cluster(
    request: pytest.FixtureRequest,
    tool_program: Program,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("reassign")
    log_dirs = (str(folder / "first"), str(folder / "other"))
    with ExitStack() as stack:
        begin = kafkas_nodes if request.param == "kafka" else our_nodes
        ports = begin(stack, folder, ",".join(log_dirs))
        tools = ToolPair(tool_program, f"{HOST}:{ports[0]}")
        yield Cluster(tools, log_dirs, ports)


def kafkas_nodes(stack: ExitStack, folder: Path, log_dirs: str) -> tuple[int, int]:
    first = KafkaNode(folder / "first", {**CONFIGS, "log.dirs": log_dirs})
    stack.enter_context(first)
    second = KafkaBroker(folder / "second", first.quorum, node_id=2, overrides=CONFIGS)
    stack.enter_context(second)
    for node in (first, second):  # nobody reads what is left: no need for a clean stop
        stack.callback(node.kill)
    return first.port, second.port


def our_nodes(stack: ExitStack, folder: Path, log_dirs: str) -> tuple[int, int]:
    roles = {1: "broker,controller", 2: "broker"}
    nodes = processes.Cluster(folder / "nodes", roles, configs=CONFIGS, is_relayed=False)
    stack.enter_context(nodes)
    first, second = nodes.brokers
    nodes.write_properties(first, log_dirs=log_dirs)
    nodes.format(first)
    nodes.start()
    return first.port, second.port


class Pair(NamedTuple):
    """The same plan for a topic of either tool."""

    tools: ToolPair
    log_dirs: tuple[str, str]
    ports: tuple[int, int]
    names: tuple[str, str]
    files: tuple[Path, Path]

    def plan(self, *rows: dict[str, Any]) -> None:
        for name, file in zip(self.names, self.files, strict=True):
            partitions = [{"topic": name, "partition": 0, **row} for row in rows]
            file.write_text(json.dumps({"version": 1, "partitions": partitions}))

    def run(self, action: str, *arguments: str) -> tuple[Printed, Printed]:
        """Run both tools, each on its own topic."""
        ours, kafkas = (
            run("reassign-partitions", f"--{action}", "--reassignment-json-file", file, *arguments)
            for run, file in zip((self.tools.ours, self.tools.kafkas), self.files, strict=True)
        )
        return ours, kafkas

    def compare(self, action: str, *arguments: str, status: int = 0) -> list[str]:
        """Return the lines that both print, with NAME for the topic and DIR for where it is."""
        printed = self.run(action, *arguments)
        ours, kafkas = (
            each.out.replace(name, "NAME") for each, name in zip(printed, self.names, strict=True)
        )
        for path in self.log_dirs:  # the broker chooses one for each new topic
            ours, kafkas = ours.replace(path, "DIR"), kafkas.replace(path, "DIR")
        assert ours == kafkas
        assert [each.status for each in printed] == [status, status]
        return ours.splitlines()

    def first_line(self, action: str, *arguments: str) -> str:
        """Return the first line of what both refuse; Kafka's goes on with a stack trace."""
        printed = self.run(action, *arguments)
        ours, kafkas = (
            each.lines[0].replace(name, "NAME")
            for each, name in zip(printed, self.names, strict=True)
        )
        assert ours == kafkas
        assert [each.status for each in printed] == [1, 1]
        assert len(printed[0].lines) == 1
        return ours

    def wait_until_completed(self) -> None:
        wait_until(lambda: all(" completed" in each.out for each in self.run("verify")))
        wait_until(lambda: all("in progress" not in each.out for each in self.run("verify")))

    def wait_for_replicas(self, *ids: int) -> None:
        """Wait until all brokers know: tools ask any of them, and may ask a late one."""
        wait_until(lambda: all(self._replicas(port) == [list(ids)] * 2 for port in self.ports))

    def _replicas(self, port: int) -> list[list[int]]:
        topics = [MetadataRequestTopic(name=name) for name in self.names]
        with BrokerConnection(port) as connection:
            answer = connection.ask(MetadataRequest(topics=topics), MetadataResponse, 12)
        return [each.replica_nodes for topic in answer.topics for each in topic.partitions]


@pytest.fixture
def pair(cluster: Cluster, tmp_path: Path) -> Iterator[Pair]:
    number = next(_numbers)
    names = (f"ours-{number:03}", f"kafk-{number:03}")
    for name in names:
        create = ("--create", "--topic", name, "--replica-assignment", "1")
        assert cluster.tools.ours("topics", *create).status == 0
    files = (tmp_path / "ours.json", tmp_path / "kafkas.json")
    made = Pair(*cluster, names, files)
    made.wait_for_replicas(1)
    yield made
    if json.loads(cluster.tools.ours("reassign-partitions", "--list", "--json").out):
        made.run("cancel")  # a test failed half-way: no reason for the next ones to


def fill(pair: Pair, batches: int) -> None:
    client = Confluent(pair.tools.servers)
    for name in pair.names:
        for number in range(batches):
            client.produce(name, [Sent(None, b"%d" % number)], partition=0)


@pytest.mark.seed_row("1.7")
def test_a_partition_moves_to_another_broker_and_back(cluster: Cluster, pair: Pair) -> None:
    fill(pair, 1)
    for replicas in ([2], [1, 2], [2, 1], [1]):
        pair.plan({"replicas": replicas})
        started = pair.compare("execute", "--additional")  # the first may still be on the way
        # Where log directories are is told too, by the broker that has them.
        assert started[0] == "Current partition replica assignment"
        assert started[-1] == "Successfully started partition reassignment for NAME-0"
        pair.wait_for_replicas(*replicas)
        pair.wait_until_completed()
        assert pair.compare("verify") == [
            "Status of partition reassignment:",
            "Reassignment of partition NAME-0 is completed.",
            "",
            "Clearing broker-level throttles on brokers 1,2",
            "Clearing topic-level throttles on topic NAME",
        ]
        partition = described(cluster.tools, pair.names[0])
        assert f"\tReplicas: {','.join(map(str, replicas))}\t" in partition


@pytest.mark.seed_row("1.8")
def test_a_move_under_way_is_shown_throttled_and_cancelled_alike(
    cluster: Cluster, pair: Pair
) -> None:
    tools = cluster.tools
    fill(pair, BATCHES)
    pair.plan({"replicas": [2]})
    begun = pair.compare("execute", "--throttle", "1", "--additional")
    assert "The inter-broker throttle limit was set to 1 B/s" in begun
    pair.wait_for_replicas(2, 1)
    again = pair.compare("execute", status=1)
    assert again[0].startswith("Cannot execute because there is an existing partition assignment.")
    listed = tools.compare("reassign-partitions", "--list")
    assert listed[1:] == [
        f"{name}-0: replicas: 2,1. adding: 2. removing: 1." for name in sorted(pair.names)
    ]
    waits = " waits for broker 2, which lacks "
    said = tools.ours("reassign-partitions", "--list").err.splitlines()
    assert [each.partition(waits)[0] for each in said] == [
        f"  {each}-0" for each in sorted(pair.names)
    ]
    assert all(" records (" in each and "throttled to 1 B/s" in each for each in said)
    (_, document) = json.loads(tools.ours("reassign-partitions", "--list", "--json").out)
    (reason,) = document.pop("waitsFor")
    assert waits in reason
    assert document == {
        "topic": pair.names[0],
        "partition": 0,
        "replicas": [2, 1],
        "addingReplicas": [2],
        "removingReplicas": [1],
    }
    assert pair.compare("verify") == [
        "Status of partition reassignment:",
        "Reassignment of partition NAME-0 is still in progress.",
        "",
    ]
    ours, kafkas = (throttles(tools, name) for name in pair.names)
    assert (
        ours
        == kafkas
        == {
            "leader.replication.throttled.replicas": "0:1",
            "follower.replication.throttled.replicas": "0:2",
        }
    )
    partition = described(tools, pair.names[0])
    assert "\tAdding Replicas: 2\tRemoving Replicas: 1\t" in partition
    assert pair.compare("cancel", "--preserve-throttles") == [
        "Successfully cancelled partition reassignment for: NAME-0",
        "None of the specified partition moves are active.",
    ]
    pair.wait_for_replicas(1)
    assert throttles(tools, pair.names[0]) == ours
    assert pair.compare("verify") == [
        "Status of partition reassignment:",
        "There is no active reassignment of partition NAME-0, but replica set is 1 rather than 2.",
        "",
        "Clearing broker-level throttles on brokers 1,2",
        "Clearing topic-level throttles on topic NAME",
    ]
    wait_until(lambda: throttles(tools, pair.names[0]) == {})
    stopped = pair.compare("cancel")
    assert stopped[0] == "None of the specified partition reassignments are active."
    assert tools.compare("reassign-partitions", "--list") == ["No partition reassignments found."]


def described(tools: ToolPair, topic: str) -> str:
    """Return the line of a partition that both print; that of the topic has configs unsorted."""
    ours, kafkas = (
        run("topics", "--describe", "--topic", topic).lines[1] for run in (tools.ours, tools.kafkas)
    )
    assert ours == kafkas
    return ours


def throttles(tools: ToolPair, topic: str) -> dict[str, str]:
    asked = ("configs", "--describe", "--topic", topic, "--json")
    (entity,) = json.loads(tools.ours(*asked).out)
    return {each["name"]: each["value"] for each in entity["configs"]}


def test_a_partition_moves_to_another_log_directory(cluster: Cluster, pair: Pair) -> None:
    fill(pair, 1)
    for where in cluster.log_dirs:  # so that one of them is a move, wherever they began
        pair.plan({"replicas": [1], "log_dirs": [where]})
        begun = pair.compare("execute", "--replica-alter-log-dirs-throttle", "100000000")
        assert "The replica-alter-dir throttle limit was set to 100000000 B/s" in begun
        moving = "Successfully started moving log directory to DIR for replica NAME-0 with broker 1"
        assert begun[-1] == f"{moving} "
        pair.wait_until_completed()
        assert "Reassignment of replica NAME-0-1 completed successfully." in pair.compare("verify")
    for where in ("somewhere", cluster.log_dirs[0]):
        pair.plan({"replicas": [1], "log_dirs": [where]})
        assert " is not being moved from log dir " in pair.compare("verify")[2]
    pair.plan({"replicas": [1], "log_dirs": ["somewhere"]})
    ours, kafkas = pair.run("execute")
    assert ours.status == kafkas.status == 1
    assert ours.lines[-1].startswith(f"Error: Failed to alter dir for {pair.names[0]}-0-1")
    assert f"Error: Failed to alter dir for {pair.names[1]}-0-1" in kafkas.lines


def test_a_replica_comes_to_the_log_directory_that_is_chosen_for_it(
    cluster: Cluster, pair: Pair
) -> None:
    """The directory is chosen before the broker has the replica."""
    fill(pair, 1)
    for where in cluster.log_dirs:
        pair.plan({"replicas": [2]})
        pair.run("execute", "--additional")  # that of the other tool may be under way
        pair.wait_for_replicas(2)
        pair.wait_until_completed()
        pair.plan({"replicas": [1], "log_dirs": [where]})
        begun = pair.compare("execute", "--additional")
        assert begun[-2] == "Successfully started partition reassignment for NAME-0"
        moving = "Successfully started moving log directory to DIR for replica NAME-0 with broker 1"
        assert begun[-1] == f"{moving} "
        pair.wait_for_replicas(1)
        pair.wait_until_completed()
        ended = pair.compare("verify")
        assert ended[1:3] == [
            "Reassignment of partition NAME-0 is completed.",
            "Reassignment of replica NAME-0-1 completed successfully.",
        ]


REFUSED = [
    ([], "Error: Partition reassignment list cannot be empty"),
    ([{"replicas": []}], "Error: Partition replica list cannot be empty"),
    ([{"replicas": [7]}], "Error: Unknown broker id 7"),
    ([{"replicas": [1], "partition": 9}], "Error: Unable to find partition: NAME-9"),
    ([{"replicas": [1], "topic": "nowhere"}], "Error: Topic nowhere not found."),
    ([{"replicas": [1]}] * 2, "Error: Partition reassignment contains duplicate topic partitions"),
    ([{"replicas": [1, 1]}], "Error: Partition replica lists may not contain duplicate entries"),
    ([{"replicas": [1], "log_dirs": []}], "Error: Size of replicas list [1] is different from"),
]


@pytest.mark.parametrize(("rows", "said"), REFUSED)
def test_a_plan_that_cannot_be_is_refused_alike(
    pair: Pair, rows: list[dict[str, Any]], said: str
) -> None:
    pair.plan(*rows)
    assert pair.first_line("execute").startswith(said)


ROW = '"topic": "NAME", "partition": 0, "replicas": [1]'
WRONG = {
    "": "Error: The input string shouldn't be empty",
    "[]": "Error: Expected JSON object, received []",
    "{}": "Error: Partition reassignment list cannot be empty",
    '{"version": 2}': "Error: Not supported version field value 2",
    '{"version": "1"}': 'Error: Expected `Integer` value, received "1"',
    '{"partitions": {}}': "Error: Expected JSON array, received {}",
    '{"partitions": [1]}': "Error: Expected JSON object, received 1",
    '{"partitions": [{"partition": 0, "replicas": [1]}]}': "Error: No such field exists: `topic`",
    '{"partitions": [{"topic": "NAME"}]}': "Error: No such field exists: `partition`",
    '{"partitions": [{"topic": "NAME", "partition": 0}]}': (
        "Error: No such field exists: `replicas`"
    ),
    '{"partitions": [{"topic": "NAME", "partition": 0, "replicas": ["a"]}]}': (
        'Error: Expected `Integer` value, received "a"'
    ),
    f'{{"partitions": [{{{ROW}, "log_dirs": [1]}}]}}': "Error: Expected `String` value, received 1",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_plan_is_refused_alike(pair: Pair, text: str) -> None:
    for name, file in zip(pair.names, pair.files, strict=True):
        file.write_text(text.replace("NAME", name))
    assert pair.first_line("execute") == WRONG[text]


def test_the_number_of_replicas_may_be_kept(pair: Pair) -> None:
    pair.plan({"replicas": [1, 2]})
    refused = pair.compare("execute", "--disallow-replication-factor-change", status=1)
    assert refused[-2] == "Error reassigning partition(s):"
    assert refused[-1].startswith("NAME-0: ")


def test_a_plan_for_a_topic_that_is_gone_is_verified_alike(pair: Pair) -> None:
    pair.plan({"replicas": [1], "topic": "nowhere"})
    assert pair.compare("verify", "--preserve-throttles")[1:] == [
        "There is no active reassignment of partition nowhere-0, but replica set is  rather"
        " than 1.",
        "",
    ]
