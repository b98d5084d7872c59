"""Tools that send, read and measure print what Kafka's print, on our broker and on Kafka's.

Figures and times differ, so lines are compared by their shape where they have some.
"""

import json
import re
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.interop.cli.conftest import CALL_SECONDS, begin_transaction
from tests.interop.cli.tool_pair import Printed, ToolPair
from tests.interop.clients import Sent
from tests.interop.clients.confluent import Confluent
from tests.interop.kafka_peer import kafka_tool
from tests.interop.odradek_tool import odradek_tool

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.usefixtures("kafka_libs")]

FORMATTER = "org.apache.kafka.tools.consumer.{}MessageFormatter"
# Not those of "99.9th", which have to be the same.
NUMBER = re.compile(r"\d+(\.\d+)?(E-?\d+)?(?!th|[\d.])")
DATE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}")

_numbers = count(1)


@pytest.fixture
def names(tools: ToolPair) -> tuple[str, str]:
    """A topic for our tool and one for Kafka's."""
    number = next(_numbers)
    topics = (f"sent-by-ours-{number:03}", f"sent-by-kafk-{number:03}")
    for topic in topics:
        Confluent(tools.servers).create_topic(topic, 1)
    tools.wait_for_topics(*topics)
    return topics


def shape(printed: Printed) -> list[str]:
    """Return lines with figures and times as mere places.

    What is told of every five seconds is left out: how many there are is the machine's affair.
    """
    assert printed.status == 0, printed.err
    lines = [line for line in printed.out.splitlines() if not line.endswith(" ms max latency.")]
    return [NUMBER.sub("<n>", DATE.sub("<date>", line)) for line in lines]


PLACE = ("--topic", "t", "--partition", "1", "--offset", "earliest", "--max-messages")
SHOWN = [
    ("3",),
    ("10", "--formatter-property", "print.offset=true", "--formatter-property", "print.key=true"),
    ("2", "--property", "print.timestamp=true"),
]


@pytest.mark.parametrize("arguments", SHOWN)
def test_records_are_shown_alike(tools: ToolPair, arguments: tuple[str, ...]) -> None:
    assert tools.compare("console-consumer", *PLACE, *arguments)


def documents(text: str) -> list[Any]:
    """Return JSON documents that follow each other, with line ends between them or without."""
    decoder, found, text = json.JSONDecoder(), [], text.strip()
    while text:
        document, end = decoder.raw_decode(text)
        found.append(document)
        text = text[end:].lstrip()
    return found


@pytest.mark.seed_row("0.10", "0.15")
@pytest.mark.parametrize(
    ("topic", "name", "short", "records"),
    [
        # Those of other kinds count, but are not shown.
        ("__consumer_offsets", "Offsets", "offsets", 12),
        ("__consumer_offsets", "GroupMetadata", "group-metadata", 12),
        ("__transaction_state", "TransactionLog", "transaction-log", 4),
    ],
)
def test_internal_topics_are_shown_alike(
    tools: ToolPair, topic: str, name: str, short: str, records: int
) -> None:
    begin_transaction(tools.servers, "formatted").commit_transaction(CALL_SECONDS)
    # The first records stay what they are, whoever writes more meanwhile.
    place = ["--topic", topic, "--partition", "0", "--offset", "earliest"]
    place += ["--max-messages", str(records)]
    kafkas = tools.kafkas("console-consumer", *place, "--formatter", FORMATTER.format(name))
    assert documents(kafkas.out)
    for formatter in (FORMATTER.format(name), short):
        ours = tools.ours("console-consumer", *place, "--formatter", formatter)
        assert ours.status == kafkas.status == 0
        assert documents(ours.out) == documents(kafkas.out)


def test_lines_become_the_same_records(tools: ToolPair, names: tuple[str, str]) -> None:
    asked = ("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true")
    text = "a:1,b:2\tkey\tvalue\nc:\t\t\nh:x\tschlüssel\twert\n"
    ours = tools.ours("console-producer", "--topic", names[0], *asked, stdin=text)
    kafkas = tools.kafkas("console-producer", "--topic", names[1], *asked, stdin=text, hooks=True)
    assert (ours.status, ours.out) == (kafkas.status, kafkas.out) == (0, "")
    sent = [Confluent(tools.servers).consume(name, 3) for name in names]
    first, second = (
        [(each.record.key, each.record.value, each.record.headers) for each in seen]
        for seen in sent
    )
    assert first == second
    assert first[2][:2] == ("schlüssel".encode(), b"wert")


SENT = [
    ("--record-size", "10"),
    ("--payload-monotonic", "--warmup-records", "10"),
    ("--record-size", "10", "--transaction-duration-ms", "50"),
]


@pytest.mark.parametrize("arguments", SENT)
def test_a_producer_is_measured_alike(
    tools: ToolPair, names: tuple[str, str], arguments: tuple[str, ...]
) -> None:
    asked = ("--num-records", "200", "--throughput", "-1", *arguments)
    ours = tools.ours("producer-perf-test", "--topic", names[0], *asked)
    kafkas = tools.kafkas("producer-perf-test", "--topic", names[1], *asked)
    assert shape(ours) == shape(kafkas)
    assert any(line.startswith("200 records sent, ") for line in ours.lines)


def test_a_consumer_is_measured_alike(tools: ToolPair, names: tuple[str, str]) -> None:
    Confluent(tools.servers).produce(names[0], [Sent(b"k", b"%d" % i) for i in range(20)])
    asked = ("--topic", names[0], "--num-records", "20", "--timeout", "60000")
    ours, kafkas = (run("consumer-perf-test", *asked) for run in (tools.ours, tools.kafkas))
    assert shape(ours) == shape(kafkas)
    found = [
        dict(zip(*(line.split(", ") for line in each.lines), strict=True))
        for each in (ours, kafkas)
    ]
    for name in ("data.consumed.in.nMsg", "data.consumed.in.MB"):
        assert found[0][name] == found[1][name]


def test_latency_is_measured_alike(tools: ToolPair, names: tuple[str, str]) -> None:
    asked = ("--num-records", "3", "--producer-acks", "all", "--record-size", "5")
    ours = tools.ours("e2e-latency", "--topic", names[0], *asked)
    kafkas = tools.kafkas("e2e-latency", "--topic", names[1], *asked)
    assert shape(ours) == shape(kafkas)
    assert len(ours.lines) == 3


def events(said: str, topic: str) -> list[dict[str, Any]]:
    """Return the events, without what differs from one run to the next."""
    found = []
    for line in said.replace(topic, "TOPIC").splitlines():
        event = json.loads(line)
        assert event.pop("timestamp") > 1.7e12
        event.pop("avg_throughput", None)
        found.append(event)
    return found


# Verifiable clients of Kafka's talk from many threads until their process ends: each has one.


def test_verifiable_producers_tell_the_same(tools: ToolPair, names: tuple[str, str]) -> None:
    asked = ("--max-messages", "5", "--repeating-keys", "2", "--value-prefix", "7", "--acks", "-1")
    tool = ("verifiable-producer", *server(tools), *asked, "--topic")
    told = events(odradek_tool(*tool, names[0]).stdout, names[0])
    kafkas = events(kafka_tool(*tool, names[1]).stdout, names[1])
    assert told == kafkas
    assert sum(each["name"] == "producer_send_success" for each in told) == 5


def server(tools: ToolPair) -> tuple[str, str]:
    return "--bootstrap-server", tools.servers


def test_verifiable_consumers_tell_the_same(tools: ToolPair, names: tuple[str, str]) -> None:
    Confluent(tools.servers).produce(names[0], [Sent(None, b"%d" % i) for i in range(3)])
    asked = (*server(tools), "--topic", names[0], "--verbose", "--max-messages", "3", "--group-id")
    told = events(odradek_tool("verifiable-consumer", *asked, "ours").stdout, names[0])
    kafkas = events(kafka_tool("verifiable-consumer", *asked, "kafkas").stdout, names[0])
    # Kafka's says that an end was asked for whenever its process ends.
    assert kafkas.pop() == {"name": "shutdown_requested"}
    assert told == kafkas
    assert sum(each["name"] == "record_data" for each in told) == 3


@pytest.mark.seed_row("3.4", "4.5")
def test_files_of_a_broker_are_dumped_alike(tools: ToolPair) -> None:
    described = json.loads(tools.ours("log-dirs", "--describe", "--json").out)
    folder = Path(described["brokers"][0]["logDirs"][0]["logDir"]) / "t-1"
    files = sorted(each for each in folder.iterdir() if each.suffix in (".log", ".timeindex"))
    assert len(files) >= 2
    dumped = tools.compare(
        "dump-log", "--files", ",".join(map(str, files)), "--print-data-log", "--deep-iteration"
    )
    assert sum(" payload: " in line for line in dumped) >= 10
