"""Kafka's own command-line tools, unmodified, against odradek."""

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Protocol

import pytest

from odradek.testing.broker import Broker
from tests.interop.clients import Seen, Sent
from tests.interop.clients.confluent import Confluent
from tests.interop.kafka_peer import kafka_tool
from tests.interop.tool_program import ToolProgram

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.usefixtures("kafka_libs")]

FIRST_MS = 1_700_000_000_000
RECORDS = [Sent(b"k%d" % i, b"v%d" % i, (), FIRST_MS + i * 1000) for i in range(10)]
_numbers = count(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    # Records in here are from 2023, and nobody's to delete.
    with Broker(config={"log.retention.ms": "-1"}) as started:
        yield started


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"topic-{next(_numbers)}"


@pytest.fixture
def client(broker: Broker) -> Confluent:
    return Confluent(broker.bootstrap_servers)


@pytest.fixture
def filled(client: Confluent, topic: str) -> str:
    """A topic with ten records in partition 1 and none in partition 0."""
    client.create_topic(topic, 2)
    client.produce(topic, RECORDS, partition=1)
    return topic


class Run(Protocol):
    def __call__(self, tool: str, *arguments: str | Path, stdin: str | None = None) -> str: ...


@pytest.fixture
def run(tool_program: ToolProgram, broker: Broker) -> Run:
    """Runs a tool against the broker, and returns what it prints."""

    def run_tool(tool: str, *arguments: str | Path, stdin: str | None = None) -> str:
        server = ("--bootstrap-server", broker.bootstrap_servers)
        return tool_program.tool(tool, *server, *arguments, stdin=stdin).stdout

    return run_tool


def test_topics_are_created_listed_described_grown_and_deleted(
    run: Run, broker: Broker, topic: str
) -> None:
    created = run("topics", "--create", "--topic", topic, "--partitions", "2")
    assert created == f"Created topic {topic}.\n"
    assert topic in run("topics", "--list").splitlines()

    run("topics", "--alter", "--topic", topic, "--partitions", "3")
    topic_id = broker.node.broker.image.topics[topic].topic_id
    head, *lines = run("topics", "--describe", "--topic", topic).splitlines()
    fields = dict(field.split(": ") for field in head.split("\t")[:4])
    assert fields == {
        "Topic": topic,
        "TopicId": str(topic_id),
        "PartitionCount": "3",
        "ReplicationFactor": "1",
    }
    for number, line in enumerate(lines):
        start = f"\tTopic: {topic}\tPartition: {number}\tLeader: 1\tReplicas: 1\tIsr: 1"
        assert line.startswith(start)
    assert len(lines) == 3

    run("topics", "--delete", "--topic", topic)
    assert topic not in run("topics", "--list").splitlines()


def test_a_topic_that_exists_is_not_created_again(
    tool_program: ToolProgram, run: Run, broker: Broker, filled: str
) -> None:
    server = ("--bootstrap-server", broker.bootstrap_servers)
    refused = tool_program.tool("topics", *server, "--create", "--topic", filled, check=False)
    assert refused.returncode == 1
    assert "Error while executing topic command : " in refused.stdout
    assert f"'{filled}'" in refused.stdout
    assert "TopicExistsException" in refused.stderr
    run("topics", "--create", "--topic", filled, "--if-not-exists")


def test_describe_names_the_configs_a_topic_was_created_with(run: Run, topic: str) -> None:
    wanted = ("--config", "retention.ms=1000", "--config", "cleanup.policy=compact")
    run("topics", "--create", "--topic", topic, *wanted)
    head, *_ = run("topics", "--describe", "--topic", topic).splitlines()
    configs = head.partition("Configs: ")[2].split(",")
    assert {"retention.ms=1000", "cleanup.policy=compact"} <= set(configs)


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ("-1", {0: "0", 1: "10"}),
        ("-2", {0: "0", 1: "0"}),
        ("-3", {1: "9"}),  # the tool leaves out partitions without an answer
        ("-4", {0: "0", 1: "0"}),
        (str(FIRST_MS + 3500), {1: "4"}),
    ],
)
def test_get_offsets(run: Run, filled: str, when: str, expected: dict[int, str]) -> None:
    lines = run("get-offsets", "--topic", filled, "--time", when).splitlines()
    found = {int(p): offset for _, p, offset in (line.split(":") for line in lines)}
    assert {p: offset for p, offset in found.items() if offset} == expected


def test_delete_records(run: Run, client: Confluent, filled: str, tmp_path: Path) -> None:
    asked = {"topic": filled, "partition": 1, "offset": 6}
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [asked]}))
    printed = run("delete-records", "--offset-json-file", plan)
    assert f"partition: {filled}-1\tlow_watermark: 6" in printed
    assert client.watermarks(filled, 1) == (6, 10)


def test_producer_perf_test_sends_all_its_records(run: Run, client: Confluent, topic: str) -> None:
    client.create_topic(topic)
    printed = run(
        *("producer-perf-test", "--topic", topic, "--num-records", "20000"),
        *("--record-size", "100", "--throughput", "-1"),
    )
    assert printed.splitlines()[-1].startswith("20000 records sent, ")
    assert client.watermarks(topic) == (0, 20_000)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_console_producer_writes_and_console_consumer_reads(
    run: Run, client: Confluent, topic: str, codec: str
) -> None:
    client.create_topic(topic, 1)
    lines = [f"key{i}\tvalue {i} ü" for i in range(50)]
    run(
        *("console-producer", "--topic", topic, "--compression-codec", codec),
        *("--reader-property", "parse.key=true"),
        stdin="".join(f"{line}\n" for line in lines),
    )
    printed = run(
        *("console-consumer", "--topic", topic, "--partition", "0", "--offset", "10"),
        *("--max-messages", "40", "--formatter-property", "print.key=true"),
    )
    assert printed.splitlines() == lines[10:]


def test_java_reads_what_librdkafka_wrote_and_the_other_way(
    run: Run, client: Confluent, filled: str
) -> None:
    printed = run(
        *("console-consumer", "--topic", filled, "--partition", "1"),
        *("--offset", "earliest", "--max-messages", "10"),
    )
    assert printed.splitlines() == [f"v{i}" for i in range(10)]
    run("console-producer", "--topic", filled, stdin="from Java\n")
    ends = {p: client.watermarks(filled, p)[1] for p in (0, 1)}
    home, offset = (0, 0) if ends[0] else (1, 10)
    ((found_at, record),) = client.consume(filled, 1, partition=home, start=offset)
    assert Seen(found_at, record._replace(timestamp=0)) == Seen(
        offset, Sent(None, b"from Java", (), 0)
    )


def test_broker_api_versions_shows_no_api_the_client_misreads(run: Run, broker: Broker) -> None:
    first, *lines = run("broker-api-versions").splitlines()
    assert first.startswith(f"{broker.bootstrap_servers} (id: 1 rack: null isFenced: false) -> (")
    assert "\tProduce(0): 0 to 13 [usable: 13]," in lines
    assert "\tFetch(1): 4 to 18 [usable: 18]," in lines
    assert not any("UNKNOWN" in line or "unusable" in line for line in lines)


def test_cluster_id(broker: Broker) -> None:
    # Unlike the others, this tool wants the verb before the server.
    asked = ("cluster-id", "--bootstrap-server", broker.bootstrap_servers)
    assert kafka_tool("cluster", *asked).stdout == f"Cluster ID: {broker.node.cluster_id}\n"


def test_configs_of_a_topic_are_altered_and_described(run: Run, filled: str) -> None:
    entity = ("--entity-type", "topics", "--entity-name", filled)
    done = run("configs", *entity, "--alter", "--add-config", "retention.ms=86400000")
    assert done == f"Completed updating config for topic {filled}.\n"
    described = run("configs", *entity, "--describe").splitlines()
    assert described[0] == f"Dynamic configs for topic {filled} are:"
    assert described[1].startswith("  retention.ms=86400000 sensitive=false synonyms={")
    run("configs", *entity, "--alter", "--delete-config", "retention.ms")
    assert run("configs", *entity, "--describe").splitlines() == described[:1]


def test_all_configs_of_a_broker_are_described(run: Run) -> None:
    entity = ("--entity-type", "brokers", "--entity-name", "1")
    lines = run("configs", *entity, "--describe", "--all").splitlines()
    assert any(line.startswith("  log.retention.hours=168 ") for line in lines)


def test_log_dirs_are_described(run: Run, broker: Broker, client: Confluent, filled: str) -> None:
    printed = run("log-dirs", "--describe", "--topic-list", filled)
    document = json.loads(printed.splitlines()[-1])
    (described,) = document["brokers"]
    assert described["broker"] == 1
    (directory,) = described["logDirs"]
    assert directory["error"] is None
    sizes = {each["partition"]: each["size"] for each in directory["partitions"]}
    assert sizes.keys() == {f"{filled}-0", f"{filled}-1"}
    assert sizes[f"{filled}-0"] == 0 < sizes[f"{filled}-1"]
