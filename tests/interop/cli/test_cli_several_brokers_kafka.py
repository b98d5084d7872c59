"""Our tools beside Kafka's on clusters of two brokers, ours and Kafka's: the same lines.

Both find out what a broker lacks that is down, as in ducktape's replica_verification_test, and both
elect, change features and unregister. Replicas that differ: ``test_replica_verification_kafka``.
"""

import json
import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from click.testing import CliRunner

from odradek.cli.main import main
from odradek.core.errors import ErrorCode
from tests.cluster.asking import alive_brokers
from tests.cluster.flavours import Flavour, Kafka, Odradek
from tests.cluster.processes import Cluster, wait_until
from tests.cluster.recipes import CLEAN_ENDS
from tests.cluster.replica_records import (
    ACKS_ALL,
    ACKS_LEADER,
    make_replicated_topic,
    produce,
    wait_for_leader,
    wait_until_in_sync,
)
from tests.interop.cli.tool_pair import Printed, ToolPair
from tests.interop.kafka_peer import resolve_jars
from tests.interop.kafka_peer.jvm import until_parent_ends
from tests.interop.kafka_peer.tools import MAIN_CLASSES, java_command
from tests.interop.odradek_tool import COMMAND
from tests.interop.programs.program import Program

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.usefixtures("kafka_libs")]

ROLES = {1: "broker,controller", 2: "broker"}
CONFIGS = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "auto.leader.rebalance.enable": "false",
}
TOOL = "replica-verification"
DATE = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}: ")
STOP_SECONDS_MAX = 60


class Running:
    """A tool that runs until the end of ``with``, and the lines that it printed, without dates."""

    def __init__(self, command: list[str]) -> None:
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            [*until_parent_ends(), *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def wait_for(self, line: str) -> None:
        wait_until(lambda: line in self.lines, f"{line}, after {self.lines[-3:]}", STOP_SECONDS_MAX)

    def end(self) -> None:
        self._process.terminate()
        self._process.wait(STOP_SECONDS_MAX)
        self._thread.join(STOP_SECONDS_MAX)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if DATE.match(line):
                self.lines.append(DATE.sub("", line).rstrip())


def ours() -> list[str]:
    return [COMMAND, TOOL]


def kafkas() -> list[str]:
    return java_command(MAIN_CLASSES[TOOL], heap_mib=192, log_level="ERROR", libs=resolve_jars())


@contextmanager
def both(cluster: Cluster, topic: str, *arguments: str) -> Iterator[list[Running]]:
    """Run both tools; they have begun."""
    place = ["--broker-list", cluster.bootstrap_servers, "--topics-include", topic]
    report = ["--report-interval-ms", "100", "--max-wait-ms", "100"]
    with ExitStack() as stack:
        running = []
        for command in (ours, kafkas):
            tool = Running([*command(), *place, *report, *arguments])
            stack.callback(tool.end)
            running.append(tool)
        for tool in running:
            tool.wait_for("verification process is started")
        yield running


@pytest.fixture(scope="module", params=[Odradek, Kafka])
def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    flavour: Callable[[], Flavour] = request.param
    folder = tmp_path_factory.mktemp("verified")
    with Cluster(folder, ROLES, flavour(), configs=CONFIGS, is_relayed=False) as made:
        made.start()
        yield made


@pytest.fixture
def cluster(shared: Cluster) -> Iterator[Cluster]:
    """Both brokers run; also for the next test, whatever becomes of this one."""
    yield shared
    for node in shared.brokers:
        if not node.is_running:
            node.restart()


def write(cluster: Cluster, topic: str, count: int, *, acks: int = ACKS_ALL) -> None:
    for number in range(count):
        made = produce(cluster.nodes[1], topic, b"%d" % number, acks=acks)
        assert made.code == ErrorCode.NONE


def test_lags_are_reported_and_end_when_the_broker_is_back(cluster: Cluster) -> None:
    first, second = cluster.brokers
    make_replicated_topic(cluster, "lagging", [first, second])
    write(cluster, "lagging", 5)
    with both(cluster, "lagging", "--time", "-2") as tools:
        for tool in tools:
            tool.wait_for("max lag is 0 for partition lagging-0 at offset 5 among 1 partitions")
        second.kill()
        write(cluster, "lagging", 7, acks=ACKS_LEADER)
        for tool in tools:
            tool.wait_for("max lag is 7 for partition lagging-0 at offset 5 among 1 partitions")
        second.restart()
        for tool in tools:
            tool.wait_for("max lag is 0 for partition lagging-0 at offset 12 among 1 partitions")
            assert "checksum" not in "".join(tool.lines)


@pytest.fixture
def tools(cluster: Cluster, tool_program: Program) -> ToolPair:
    return ToolPair(tool_program, cluster.nodes[1].bootstrap_servers)


def without_progress(printed: Printed) -> list[list[str]]:
    """Return the words of lines that do not change while the metadata log goes on."""
    return [
        line.split()
        for line in printed.lines
        if not line.startswith(("HighWatermark:", "MaxFollowerLag"))
    ]


def in_order(printed: Printed) -> tuple[list[str], Any]:
    """Return the lines before the JSON, and the JSON; Kafka's order of logs is none."""
    *lines, document = printed.lines
    found = json.loads(document)
    for broker in found["brokers"]:
        for directory in broker["logDirs"]:
            directory["partitions"].sort(key=lambda each: each["partition"])
    return lines, found


def test_a_broker_that_is_down_is_shown_alike(cluster: Cluster, tools: ToolPair) -> None:
    second = cluster.nodes[2]
    asked = ("log-dirs", "--describe", "--broker-list", "2,1")
    assert in_order(tools.ours(*asked)) == in_order(tools.kafkas(*asked))
    assert second.stop() in CLEAN_ENDS
    wait_until(lambda: alive_brokers(cluster.nodes[1]) == {1}, "the broker is fenced")
    assert len(tools.compare("cluster", "list-endpoints")) == 2
    fenced = tools.compare("cluster", "list-endpoints", "--include-fenced-brokers")
    assert [row.split()[-2] for row in fenced[1:]] == ["unfenced", "fenced"]
    missing = ("log-dirs", "--describe", "--broker-list", "1,2")
    ours, kafkas = (run(*missing) for run in (tools.ours, tools.kafkas))
    assert (ours.status, ours.err or ours.out) == (kafkas.status, kafkas.err or kafkas.out)
    second.restart()
    status = ("metadata-quorum", "describe", "--status")
    assert without_progress(tools.ours(*status)) == without_progress(tools.kafkas(*status))
    described = ("metadata-quorum", "describe", "--replication")
    first, other = (
        [(row[0], row[1], row[-1]) for row in without_progress(run(*described)) if row]
        for run in (tools.ours, tools.kafkas)
    )
    assert first == other
    assert [row[-1] for row in first] == ["Status", "Leader", "Observer"]


def findings(cluster: Cluster) -> dict[str, str]:
    """Return the sentences of `odradek local status`, by state."""
    asked = ["local", "status", "--json", "--bootstrap-server", cluster.nodes[1].bootstrap_servers]
    shown = CliRunner().invoke(main, asked)
    assert shown.exit_code == 0, shown.output
    return {each["state"]: each["sentence"] for each in json.loads(shown.stdout)["findings"]}


def test_status_explains_a_broker_that_stands_still_and_one_that_died(cluster: Cluster) -> None:
    first, second = cluster.brokers
    make_replicated_topic(cluster, "explained", [second])
    make_replicated_topic(cluster, "strict", [first, second], min_insync_replicas="2")
    wait_until(lambda: findings(cluster) == {}, "all replicas are in sync")
    second.pause()
    try:
        wait_until(lambda: alive_brokers(first) == {1}, "the broker is fenced")
        silent = findings(cluster)["nodeSilent"]
    finally:
        second.resume()
    assert silent.startswith("node 2 is fenced and stands still (no answer at 127.0.0.1:"), silent
    wait_until_in_sync(cluster, "strict")
    second.kill()
    wait_until(lambda: alive_brokers(first) == {1}, "the broker is fenced")
    found = findings(cluster)
    assert found["noLeader"] == (
        "explained-0 has no leader: only node 2 has all committed records, and it does not run;"
        " start it; no other replica runs that could be elected"
    )
    assert found["underMinIsr"] == (
        "strict-0 refuses records with acks=all (NOT_ENOUGH_REPLICAS): 1 replica is in sync, and"
        " min.insync.replicas is 2; node 2 does not run: start it"
    )
    assert re.fullmatch(
        r"node 2 does not run \(fenced; 127\.0\.0\.1:\d+ refuses connections(; it last fetched"
        r" metadata \d+ s ago)?\): start it",
        found["nodeDown"],
    ), found
    second.restart()
    wait_until(lambda: findings(cluster) == {}, "nothing is wrong any more")


def test_elections_are_told_alike(cluster: Cluster, tools: ToolPair) -> None:
    """What is elected with one tool is elected with the other, after the same has happened."""
    first, second = cluster.brokers
    topics = {"ours": tools.ours, "theirs": tools.kafkas}
    for topic in topics:
        make_replicated_topic(cluster, topic, [second, first])
    assert second.stop() in CLEAN_ENDS
    for topic in topics:
        wait_for_leader(first, topic, [first])
    second.restart()
    for topic in topics:
        wait_until_in_sync(cluster, topic)
    said: dict[str, list[list[str]]] = {"preferred": [], "unclean": []}
    for kind, told in said.items():
        for _ in range(2):  # the second time there is nothing to do
            for topic, run in topics.items():
                asked = ("--election-type", kind, "--topic", topic, "--partition", "0")
                printed = run("leader-election", *asked)
                assert printed.status == 0, printed
                told.append([line.replace(topic, "TOPIC") for line in printed.lines if line])
                wait_for_leader(first, topic, [second])
        assert told[0] == told[1]
        assert told[2] == told[3]


def test_features_go_down_and_up_alike(tools: ToolPair) -> None:
    for change, level in (("downgrade", 0), ("upgrade", 1)):
        asked = ("features", change, "--feature", f"streams.version={level}")
        first, again = (run(*asked) for run in (tools.ours, tools.kafkas))
        assert (first.status, first.lines) == (again.status, again.lines)
        assert first.lines == [f"streams.version was {change}d to {level}."]


def test_a_broker_is_unregistered_alike(cluster: Cluster, tools: ToolPair) -> None:
    second = cluster.nodes[2]
    said = []
    for run in (tools.ours, tools.kafkas):
        assert second.stop() in CLEAN_ENDS
        said.append(run("cluster", "unregister", "--id", "2"))
        assert len(tools.compare("cluster", "list-endpoints", "--include-fenced-brokers")) == 2
        second.restart()
    assert (said[0].status, said[0].lines) == (said[1].status, said[1].lines)
    assert said[0].lines == ["Broker 2 is no longer registered."]
