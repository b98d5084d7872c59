"""Tools for the cluster, its features, quorum and transactions print what Kafka's print."""

import json
import re

import confluent_kafka
import pytest
from click.testing import CliRunner

from odradek.cli.main import main
from odradek.core.ids import TopicPartition
from tests.broker_connection import BrokerConnection
from tests.interop.cli.conftest import CALL_SECONDS, begin_transaction
from tests.interop.cli.tool_pair import ToolPair
from tests.transaction_requests import TransactionalProducer

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.usefixtures("kafka_libs")]

# Of Kafka 4.4, in our table already.
# From the next version on the broker tells the coordinator by itself.
PRODUCE_VERSION_BEFORE = 11
NEWER_APIS = re.compile(r"\t\w+\((93|94)\): ")


@pytest.mark.parametrize("command", ["cluster-id", "list-endpoints"])
def test_the_cluster_is_shown_alike(tools: ToolPair, command: str) -> None:
    assert tools.compare("cluster", command)


def test_local_status_is_that_of_any_kafka(tools: ToolPair) -> None:
    asked = ["local", "status", "--bootstrap-server", tools.servers]
    shown = CliRunner().invoke(main, asked)
    assert shown.exit_code == 0, shown.output
    cluster = tools.ours("cluster", "cluster-id").out.removeprefix("Cluster ID: ").strip()
    lines = shown.stdout.splitlines()
    assert re.fullmatch(
        rf"cluster {cluster}, active controller \d+ \(epoch \d+, voters \d+, .*\)", lines[0]
    )
    (row,) = (line for line in lines if " broker,controller " in f" {line} ")
    topics = tools.ours("topics", "--describe", "--json").out
    partitions = sum(len(each["partitions"]) for each in json.loads(topics))
    _node, _, state, listener, *_ = row.split()
    assert (state, listener) == ("up", tools.servers), row
    assert re.search(rf" {partitions} +{partitions} +0 +0 ", row), "leads, replicas, lags"
    assert f"{partitions} partitions of " in shown.stdout
    assert shown.stdout.endswith(": all replicas in sync\n")


def test_fenced_brokers_may_be_shown(tools: ToolPair) -> None:
    assert len(tools.compare("cluster", "list-endpoints", "--include-fenced-brokers")) == 2


def test_a_broker_that_is_not_there_is_not_unregistered(tools: ToolPair) -> None:
    ours, kafkas = (
        run("cluster", "unregister", "--id", "77") for run in (tools.ours, tools.kafkas)
    )
    assert ours.status == 1
    if kafkas.out:
        assert ours.out == kafkas.out
    else:
        assert "77" in ours.out + ours.err


def test_api_versions_are_shown_alike(tools: ToolPair) -> None:
    ours, kafkas = (
        [line for line in run("broker-api-versions").lines if not NEWER_APIS.match(line)]
        for run in (tools.ours, tools.kafkas)
    )
    # What is usable differs with the client, and the last line has no comma.
    clean = [
        [re.sub(r" \[usable: \d+\],?|,$", "", line) for line in each] for each in (ours, kafkas)
    ]
    assert clean[0] == clean[1]
    assert "\tProduce(0): 0 to 13 [usable: 13]," in ours


def test_features_are_described_alike(tools: ToolPair) -> None:
    # The epoch is the offset of the metadata log, which goes on.
    ours, kafkas = (
        [line.partition("Epoch:")[0] for line in run("features", "describe").lines]
        for run in (tools.ours, tools.kafkas)
    )
    assert ours == kafkas
    assert len(ours) >= 7
    assert any(line.startswith("Feature: kraft.version ") for line in ours)


@pytest.mark.parametrize(
    "arguments",
    [
        "upgrade --feature share.version=1 --dry-run",
        "upgrade --release-version 4.3 --dry-run",
        "downgrade --release-version 4.3 --dry-run",
        "downgrade --feature kraft.version=2 --dry-run",
        "downgrade --feature group.version=0 --dry-run",
        "disable --feature streams.version --dry-run",
        "version-mapping",
        "version-mapping --release-version 3.9-IV0",
        "feature-dependencies --feature transaction.version=2 --feature metadata.version=21",
    ],
)
def test_features_are_looked_up_and_tried_alike(tools: ToolPair, arguments: str) -> None:
    tools.compare("features", *arguments.split())


def test_a_level_that_is_not_there_is_refused(tools: ToolPair) -> None:
    asked = ("features", "upgrade", "--feature", "metadata.version=99")
    ours, kafkas = (run(*asked) for run in (tools.ours, tools.kafkas))
    assert ours.status == kafkas.status == 1
    assert ours.err == kafkas.err == "1 out of 1 operation(s) failed.\n"
    # The rest of the line is the broker's.
    assert ours.lines == kafkas.lines
    assert ours.lines[0].startswith("Could not upgrade metadata.version to 99. ")


def test_the_quorum_is_described_alike(tools: ToolPair) -> None:
    # The log goes on: its end and the times move between two answers.
    ours, kafkas = (
        [line for line in run("metadata-quorum", "describe", "--status").lines if line[0] != "H"]
        for run in (tools.ours, tools.kafkas)
    )
    assert ours == kafkas
    assert len(ours) == 7
    first, second = (
        [
            [cell.strip() for at, cell in enumerate(line.split("\t")) if at not in (2, 4, 5)]
            for line in run("metadata-quorum", "describe", "--replication").lines
        ]
        for run in (tools.ours, tools.kafkas)
    )
    assert first == second
    assert first[0] == ["NodeId", "DirectoryId", "Lag", "Status", ""]


@pytest.fixture
def producer(tools: ToolPair) -> confluent_kafka.Producer:
    return begin_transaction(tools.servers, "of-the-tools")


def test_transactions_are_shown_alike(tools: ToolPair, producer: confluent_kafka.Producer) -> None:
    try:
        listed = tools.compare("transactions", "list", is_ordered=False)
        assert any("of-the-tools" in line and "Ongoing" in line for line in listed)
        tools.compare("transactions", "list", "--transactional-id-pattern", "of-.*")
        tools.compare("transactions", "list", "--duration-filter", "3600000")
        where = ("--topic", "t", "--partition", "0")
        tools.compare("transactions", "describe-producers", *where, is_ordered=False)
        described = [
            [
                line.split("\t")
                for line in run(
                    "transactions", "describe", "--transactional-id", "of-the-tools"
                ).lines
            ]
            for run in (tools.ours, tools.kafkas)
        ]
        for head, row in described:
            duration, partitions = row[7], row[8]
            assert head[7].strip() == "TransactionDurationMs"
            assert int(duration) >= 0
            row[7], row[8] = "", ",".join(sorted(partitions.strip().split(",")))
        assert described[0] == described[1]
        tools.compare("transactions", "find-hanging", "--topic", "t")
        check_json(tools)
    finally:
        producer.abort_transaction(CALL_SECONDS)


def check_json(tools: ToolPair) -> None:
    name = ("--transactional-id", "of-the-tools")
    (found,) = json.loads(tools.ours("transactions", "describe", *name, "--json").out)
    assert (found["transactionalId"], found["transactionState"]) == ("of-the-tools", "Ongoing")
    partitions = sorted(found["topicPartitions"], key=lambda each: int(each["partition"]))
    assert partitions == [{"topic": "t", "partition": 0}, {"topic": "t", "partition": 1}]
    where = ("--topic", "t", "--partition", "0", "--json")
    producers = json.loads(tools.ours("transactions", "describe-producers", *where).out)
    offsets = {each["producerId"]: each["currentTransactionStartOffset"] for each in producers}
    assert offsets[found["producerId"]] >= 0
    listed = json.loads(tools.ours("transactions", "list", "--json").out)
    assert found["producerId"] in [each["producerId"] for each in listed]


def test_an_upgrade_to_nothing_is_refused_alike(tools: ToolPair) -> None:
    asked = ("features", "upgrade", "--feature", "share.version=0")
    ours, kafkas = (run(*asked) for run in (tools.ours, tools.kafkas))
    assert (ours.status, ours.out) == (kafkas.status, kafkas.out) == (1, "")
    assert ours.err.splitlines()[0] == kafkas.err.splitlines()[0]


@pytest.mark.parametrize(
    "arguments",
    [
        "describe --transactional-id nobody",
        "find-hanging",
        "find-hanging --broker-id 1 --partition 1",
        "abort --topic t --partition 0",
        "abort --topic t --partition 0 --start-offset 5",
        "abort --topic t --partition 0 --producer-id 5",
    ],
)
def test_what_is_not_there_is_said_alike(tools: ToolPair, arguments: str) -> None:
    ours, kafkas = (run("transactions", *arguments.split()) for run in (tools.ours, tools.kafkas))
    assert (ours.status, ours.out) == (kafkas.status, kafkas.out) == (1, "")
    # Behind the colon is the text of Kafka's client.
    first, second = (each.err.splitlines()[0].split("`:")[0] for each in (ours, kafkas))
    assert first == second


def test_a_hanging_transaction_is_found_alike_and_aborted(tools: ToolPair) -> None:
    """One that its coordinator does not know of, as before brokers asked coordinators."""
    # A client that asks until the topic of the coordinator is there.
    begin_transaction(tools.servers, "first").abort_transaction(CALL_SECONDS)
    with BrokerConnection(int(tools.servers.split(":")[1])) as connection:
        producer = TransactionalProducer(connection, "hangs").begin()
        where = TopicPartition("u", 0)
        assert not producer.produce(b"hangs", partition=where, version=PRODUCE_VERSION_BEFORE)
    search = ("transactions", "find-hanging", "--topic", "u", "--max-transaction-timeout", "0")
    _, row = tools.compare(*search)
    start_offset = row.split("\t")[5].strip()
    place = ("--topic", "u", "--partition", "0", "--start-offset", start_offset)
    assert tools.ours("transactions", "abort", *place) == (0, "", "")
    assert len(tools.compare(*search)) == 1


def test_a_transaction_is_ended_by_force(tools: ToolPair) -> None:
    producer = begin_transaction(tools.servers, "by-force")
    name = ("--transactionalId", "by-force")
    assert tools.ours("transactions", "forceTerminateTransaction", *name).status == 0
    with pytest.raises(confluent_kafka.KafkaException) as fenced:
        producer.commit_transaction(CALL_SECONDS)
    assert fenced.value.args[0].fatal()
