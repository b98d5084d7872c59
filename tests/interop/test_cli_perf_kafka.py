"""Our performance and verifiable tools beside Kafka's own: the same lines, up to the figures."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.testing.broker import Broker
from tests.interop.clients import Sent
from tests.interop.clients.confluent import Confluent
from tests.interop.kafka_peer import kafka_tool
from tests.interop.odradek_tool import odradek_tool

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.usefixtures("kafka_libs")]

# Not those of "99.9th", which have to be the same.
NUMBER = re.compile(r"\d+(\.\d+)?(E-?\d+)?(?!th|[\d.])")
DATE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(config={"log.retention.ms": "-1"}, topics=["sent", "read", "verified"]) as started:
        records = [Sent(b"k", b"v%d" % i) for i in range(1000)]
        Confluent(started.bootstrap_servers).produce("read", records, partition=0)
        yield started


def shape(said: str) -> list[str]:
    """Return lines with figures and times as mere places.

    What is told of every five seconds is left out: how many there are is the machine's affair.
    """
    lines = [line for line in said.splitlines() if not line.endswith(" ms max latency.")]
    return [NUMBER.sub("<n>", DATE.sub("<date>", line)) for line in lines]


def compare(broker: Broker, tool: str, *arguments: str | Path) -> list[str]:
    """Return the shape of what both tools print."""
    server = ("--bootstrap-server", broker.bootstrap_servers)
    kafkas, ours = (run(tool, *server, *arguments) for run in (kafka_tool, odradek_tool))
    assert shape(ours.stdout) == shape(kafkas.stdout)
    return ours.stdout.splitlines()


SENT = [
    ["--record-size", "10"],
    ["--payload-monotonic", "--warmup-records", "100"],
    ["--record-size", "10", "--producer-props", "acks=1", "linger.ms=1"],
    ["--record-size", "10", "--transaction-duration-ms", "50", "--throughput", "2000"],
]


@pytest.mark.seed_row("1.9")
@pytest.mark.parametrize("arguments", SENT)
def test_figures_of_a_producer_come_in_the_same_lines(broker: Broker, arguments: list[str]) -> None:
    asked = ["--topic", "sent", "--num-records", "500", *arguments]
    if "--throughput" not in arguments:
        asked += ["--throughput", "-1"]
    said = compare(broker, "producer-perf-test", *asked)
    totals = [line for line in said if line.startswith("500 records sent, ")]
    assert len(totals) == 1


def test_payloads_come_from_a_file(broker: Broker, tmp_path: Path) -> None:
    file = tmp_path / "payloads"
    file.write_text("one|two|three")
    asked = ("--topic", "sent", "--num-records", "5", "--throughput", "-1")
    said = compare(
        broker, "producer-perf-test", *asked, "--payload-file", file, "--payload-delimiter", "|"
    )
    assert said[:2] == [f"Reading payloads from: {file}", "Number of records read: 3"]


PATIENT = ["--timeout", "90000"]
READ = [
    ["--num-records", "1000", *PATIENT],
    ["--messages", "10", "--hide-header", *PATIENT],
    # A line for every so many ms: how many there are is the machine's affair.
    ["--num-records", "10", "--show-detailed-stats", "--reporting-interval", "600000", *PATIENT],
    ["--num-records", "2000", "--timeout", "5000", "--date-format", "HH:mm 'on' dd MMM"],
]


@pytest.mark.seed_row("1.9")
@pytest.mark.parametrize("arguments", READ)
def test_figures_of_a_consumer_come_in_the_same_lines(broker: Broker, arguments: list[str]) -> None:
    said = compare(broker, "consumer-perf-test", "--topic", "read", *arguments)
    if "1000" in arguments:
        found = dict(zip(said[0].split(", "), said[1].split(", "), strict=True))
        assert found["data.consumed.in.nMsg"] == "1000"
        # Keys and values, and no more than that.
        assert float(found["data.consumed.in.MB"]) == pytest.approx(0.0047, abs=1e-4)


def test_latency_from_end_to_end_is_told_in_the_same_lines(broker: Broker) -> None:
    asked = ["--num-records", "3", "--producer-acks", "all", "--record-size", "5"]
    asked += ["--num-headers", "2", "--record-header-key-size", "3", "--record-header-size", "-1"]
    server = ("--bootstrap-server", broker.bootstrap_servers)
    said = []
    for run in (kafka_tool, odradek_tool):
        topic = f"latency-of-{run.__name__}"
        said.append(run("e2e-latency", *server, "--topic", topic, *asked).stdout)
        said[-1] = said[-1].replace(topic, "TOPIC")
    assert shape(said[0]) == shape(said[1])
    assert said[1].startswith('Topic "TOPIC" does not exist. Will create topic with 1 partition')


def test_latency_takes_arguments_without_names(broker: Broker) -> None:
    asked = (broker.bootstrap_servers, "sent", "2", "1", "10")
    kafkas, ours = (run("e2e-latency", *asked) for run in (kafka_tool, odradek_tool))
    assert shape(ours.stdout) == shape(kafkas.stdout)


def events(said: str) -> list[dict[str, Any]]:
    """Return the events, without what differs from one run to the next."""
    found = []
    for line in said.splitlines():
        event = json.loads(line)
        assert list(event)[:2] == ["timestamp", "name"]
        assert event.pop("timestamp") > 1.7e12
        event.pop("avg_throughput", None)
        found.append(event)
    return found


def test_a_verifiable_producer_tells_the_same_events(broker: Broker) -> None:
    said = []
    for topic, run in (("of-kafka", kafka_tool), ("of-odradek", odradek_tool)):
        broker.create_topic(topic)
        asked = ["--bootstrap-server", broker.bootstrap_servers, "--topic", topic]
        asked += ["--max-messages", "5", "--repeating-keys", "2", "--value-prefix", "7"]
        asked += ["--message-create-time", "1700000000000", "--acks", "1"]
        said.append(events(run("verifiable-producer", *asked).stdout.replace(topic, "TOPIC")))
    assert said[0] == said[1]
    assert sum(each["name"] == "producer_send_success" for each in said[1]) == 5


@pytest.mark.parametrize("protocol", ["classic", "CONSUMER"])
def test_a_verifiable_consumer_tells_the_same_events(broker: Broker, protocol: str) -> None:
    said = []
    for group, run in (("kafkas", kafka_tool), ("ours", odradek_tool)):
        asked = ["--bootstrap-server", broker.bootstrap_servers, "--topic", "read", "--verbose"]
        asked += ["--group-id", f"{protocol}-{group}", "--max-messages", "7"]
        asked += ["--group-protocol", protocol]
        asked += ["--assignment-strategy", "org.apache.kafka.clients.consumer.RoundRobinAssignor"]
        said.append(events(run("verifiable-consumer", *asked).stdout))
    # Kafka's says that an end was asked for whenever its process ends.
    assert said[0].pop() == {"name": "shutdown_requested"}
    # Kafka's counts all that it got, ours has not asked for more.
    counts = [
        each.pop("count") for run in said for each in run if "partitions" in each if "count" in each
    ]
    assert counts[-1] == 7
    assert said[0] == said[1]
    assert sum(each["name"] == "record_data" for each in said[1]) == 7
