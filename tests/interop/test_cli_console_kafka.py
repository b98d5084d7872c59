"""Our console tools beside Kafka's own, on the same broker: the same output and records."""

import json
import re
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from odradek.testing.broker import Broker
from tests.interop.clients import Seen, Sent
from tests.interop.clients.confluent import Confluent
from tests.interop.kafka_peer import kafka_tool
from tests.interop.kafka_peer.tools import MAIN_CLASSES
from tests.interop.odradek_tool import odradek_tool
from tests.interop.programs.program import Program

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.usefixtures("kafka_libs")]

HERE = Path(__file__).parent
FIRST_MS = 1_700_000_000_000
JAVA = "org.apache.kafka.common.serialization.{}Deserializer"
FORMATTER = "org.apache.kafka.tools.consumer.{}MessageFormatter"
RECORDS = [
    Sent(b"k0", b"v0", (), FIRST_MS),
    Sent(None, "schön".encode(), (("a", b"1"),), FIRST_MS + 1),
    Sent(b"k2", None, (("a", b"1"), ("b", None), ("a", b"2")), FIRST_MS + 2),
    Sent(b"", b"", (), FIRST_MS + 3),
    Sent(b"tab\there", b"line\nend", (), FIRST_MS + 4),
]
NUMBERS = [
    Sent(struct.pack(">q", key), struct.pack(">d", value), (), FIRST_MS)
    for key, value in ((1, 0.5), (-(2**40), 1e7), (0, 1e-5), (7, float("nan")))
]
FLOATS = [
    Sent(struct.pack(">i", key), struct.pack(">f", value), (), FIRST_MS)
    for key, value in ((1, 0.1), (-5, 3.4e38), (0, 16777216.0), (9, 2.5e-30))
]
SMALL = [Sent(struct.pack(">h", key), b"\1" if key else b"\0", (), FIRST_MS) for key in (0, -3)]
ODD = [
    Sent(b"69359037-9599-48e7-b8f2-48393c019135", b"\\a\xff\x00~ b", (), FIRST_MS),
]
SECONDS_MAX = 90
_numbers = count(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    # Records in here are from 2023, and nobody's to delete.
    with Broker(config={"log.retention.ms": "-1"}) as started:
        started.create_topic("appended", message_timestamp_type="LogAppendTime")
        client = Confluent(started.bootstrap_servers)
        topics = {
            "texts": RECORDS,
            "numbers": NUMBERS,
            "floats": FLOATS,
            "small": SMALL,
            "odd": ODD,
            "appended": RECORDS[:2],
        }
        for topic, records in topics.items():
            if topic != "appended":
                client.create_topic(topic, 1)
            client.produce(topic, records, partition=0)
        yield started


class Both:
    """The same tool, Kafka's and ours, on the same broker."""

    def __init__(self, program: Program, servers: str) -> None:
        self._program = program
        self.servers = servers

    def kafkas(self, tool: str, *arguments: str) -> Any:
        asked = ["--bootstrap-server", self.servers, *arguments]
        return self._program.ask("run", main=MAIN_CLASSES[tool], arguments=asked)

    def ours(self, tool: str, *arguments: str, check: bool = True) -> Any:
        return odradek_tool(tool, "--bootstrap-server", self.servers, *arguments, check=check)

    def compare(self, tool: str, *arguments: str) -> str:
        """Return what both print."""
        with ThreadPoolExecutor(1) as beside:  # some wait until nothing comes any more
            asked = beside.submit(self.kafkas, tool, *arguments)
            ours = self.ours(tool, *arguments)
            kafkas = asked.result()
        assert ours.stdout == kafkas["out"], arguments
        assert kafkas["status"] == 0
        assert _processed(ours.stderr) == _processed(kafkas["err"])
        out: str = ours.stdout
        return out


def _processed(said: str) -> list[str]:
    return re.findall("Processed a total of .*", said)


@pytest.fixture
def both(tool_program: Program, broker: Broker) -> Both:
    return Both(tool_program, broker.bootstrap_servers)


def properties(*texts: str) -> list[str]:
    return [each for text in texts for each in ("--formatter-property", text)]


def deserializers(key: str, value: str) -> list[str]:
    named = properties("print.key=true", f"value.deserializer={JAVA.format(value)}")
    return ["--key-deserializer", JAVA.format(key), *named]


ALL = ["timestamp", "partition", "offset", "delivery", "epoch", "headers", "key", "value"]
SHOWN = [
    ("texts", []),
    ("texts", properties(*(f"print.{each}=true" for each in ALL))),
    ("texts", properties("print.key=true", "key.separator= | ", "line.separator=#\n")),
    ("texts", properties("print.value=false", "print.key=TRUE")),
    ("texts", properties("print.value=false", "print.offset=true", "print.partition=true")),
    ("texts", properties("print.value=false")),
    ("texts", properties("print.headers=true", "headers.separator=;", "null.literal=NIL")),
    ("texts", ["--formatter", FORMATTER.format("NoOp")]),
    ("texts", ["--formatter", FORMATTER.format("Default"), *properties("print.key=true")]),
    ("texts", ["--property", "print.key=true"]),
    ("texts", ["--consumer-property", "client.id=x"]),
    ("texts", ["--value-deserializer", JAVA.format("String")]),
    ("texts", properties("print.headers=true", f"headers.deserializer={JAVA.format('String')}")),
    ("odd", ["--value-deserializer", JAVA.format("Bytes")]),
    (
        "odd",
        [
            *properties(
                "print.key=true", "print.value=false", f"key.deserializer={JAVA.format('UUID')}"
            )
        ],
    ),
    (
        "numbers",
        deserializers("Long", "Double"),
    ),
    (
        "floats",
        deserializers("Integer", "Float"),
    ),
    (
        "small",
        deserializers("Short", "Boolean"),
    ),
    ("appended", properties("print.timestamp=true")),
]


@pytest.mark.parametrize(("topic", "arguments"), SHOWN)
def test_records_are_shown_as_kafka_shows_them(
    both: Both, topic: str, arguments: list[str]
) -> None:
    sizes = {"texts": 5, "numbers": 4, "floats": 4, "small": 2, "odd": 1, "appended": 2}
    place = ["--topic", topic, "--partition", "0", "--offset", "earliest"]
    both.compare("console-consumer", *place, "--max-messages", str(sizes[topic]), *arguments)


PLACES = [
    ["--partition", "0", "--offset", "3", "--max-messages", "2"],
    ["--partition", "0", "--from-beginning", "--max-messages", "3"],
    ["--partition", "0", "--offset", "EARLIEST", "--timeout-ms", "10000"],
    ["--partition", "0", "--offset", "latest", "--timeout-ms", "500"],
    ["--partition", "0", "--timeout-ms", "500"],
    ["--from-beginning", "--max-messages", "5"],
    ["--from-beginning", "--timeout-ms", "10000", "--isolation-level", "read_committed"],
    ["--from-beginning", "--max-messages", "0"],
    ["--max-messages", "4", "--command-property", "auto.offset.reset=earliest"],
    ["--timeout-ms", "1500"],
]


@pytest.mark.seed_row("2.3")
@pytest.mark.parametrize("arguments", PLACES)
def test_reading_begins_and_ends_where_kafka_does(both: Both, arguments: list[str]) -> None:
    both.compare("console-consumer", "--topic", "texts", *arguments)


def test_topics_are_found_by_pattern(both: Both) -> None:
    asked = ("--include", "(tex|nothing).*", "--from-beginning", "--max-messages", "5")
    assert both.compare("console-consumer", *asked).startswith("v0\n")


def test_a_group_goes_on_where_it_stopped_whoever_reads(both: Both) -> None:
    asked = ("--topic", "texts", "--from-beginning", "--max-messages", "2", "--group", "shared")
    assert both.ours("console-consumer", *asked).stdout == "v0\nschön\n"
    assert both.kafkas("console-consumer", *asked)["out"] == "null\n\n"
    assert both.ours(
        "console-consumer", *asked[:-4], *asked[-2:], "--max-messages", "1"
    ).stdout == ("line\nend\n")


def documents(text: str) -> list[Any]:
    """Return JSON documents that follow each other, with line ends between them or without."""
    decoder, position, found = json.JSONDecoder(), 0, []
    while position < len(text.rstrip()):
        document, position = decoder.raw_decode(text, position)
        found.append(document)
        position += len(text[position:]) - len(text[position:].lstrip())
    return found


def fill_internal_topics(servers: str) -> None:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "noted", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["texts"])
    assert len(consumer.consume(5, SECONDS_MAX)) == 5
    consumer.commit(offsets=[TopicPartition("texts", 0, 4, metadata="note")], asynchronous=False)
    consumer.close()
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "transactional.id": "tx"})
    producer.init_transactions(SECONDS_MAX)
    for _ in range(2):
        producer.begin_transaction()
        producer.produce("texts-in-transactions", b"x")
        producer.commit_transaction(SECONDS_MAX)


@pytest.fixture(scope="module")
def internal_topics(broker: Broker) -> Broker:
    broker.create_topic("texts-in-transactions")
    fill_internal_topics(broker.bootstrap_servers)
    return broker


@pytest.mark.seed_row("0.15")
@pytest.mark.parametrize(
    ("topic", "name", "short", "records"),
    [
        ("__consumer_offsets", "Offsets", "offsets", 1),
        ("__consumer_offsets", "GroupMetadata", "group-metadata", 2),
        ("__transaction_state", "TransactionLog", "transaction-log", 5),
    ],
)
def test_internal_topics_are_json_as_kafkas(
    both: Both, internal_topics: Broker, topic: str, name: str, short: str, records: int
) -> None:
    # As many as there are now; those of other kinds count, but are not shown.
    _, end = Confluent(both.servers).watermarks(topic)
    place = ["--topic", topic, "--partition", "0", "--offset", "earliest"]
    place += ["--max-messages", str(end)]
    kafkas = both.kafkas("console-consumer", *place, "--formatter", FORMATTER.format(name))
    ours = both.ours("console-consumer", *place, "--formatter", FORMATTER.format(name)).stdout
    assert documents(ours) == documents(kafkas["out"])
    assert len(ours.splitlines()) == len(documents(ours)) >= records
    assert both.ours("console-consumer", *place, "--formatter", short).stdout == ours


def test_transactions_that_were_aborted_are_left_out_on_request(both: Both, broker: Broker) -> None:
    broker.create_topic("aborted")
    settings = {"bootstrap.servers": both.servers, "transactional.id": "aborts"}
    producer = confluent_kafka.Producer(settings)
    producer.init_transactions(SECONDS_MAX)
    for value, ends in (
        (b"gone", producer.abort_transaction),
        (b"there", producer.commit_transaction),
    ):
        producer.begin_transaction()
        producer.produce("aborted", value)
        assert producer.flush(SECONDS_MAX) == 0
        ends(SECONDS_MAX)
    place = ("--topic", "aborted", "--partition", "0", "--offset", "earliest")
    for level, seen in (("read_uncommitted", "gone\nthere\n"), ("read_committed", "there\n")):
        asked = (*place, "--isolation-level", level, "--max-messages", str(seen.count("\n")))
        assert both.compare("console-consumer", *asked) == seen


REFUSED = [
    ["--from-beginning"],
    ["--topic", "t", "--include", "t"],
    ["--topic", "t", "--offset", "3"],
    ["--include", "t", "--partition", "0"],
    ["--topic", "t", "--partition", "0", "--offset", "3", "--from-beginning"],
    ["--topic", "t", "--partition", "0", "--offset", "soon"],
    ["--topic", "t", "--partition", "0", "--group", "g"],
    ["--topic", "t", "--group", "g", "--command-property", "group.id=h"],
    ["--topic", "t", "--from-beginning", "--command-property", "auto.offset.reset=latest"],
    ["--topic", "t", "--property", "a=b", "--formatter-property", "c=d"],
    ["--topic", "t", "--consumer-property", "a=b", "--command-property", "c=d"],
]


@pytest.mark.parametrize("arguments", REFUSED)
def test_wrong_use_is_refused_in_the_same_words(both: Both, arguments: list[str]) -> None:
    kafkas = both.kafkas("console-consumer", *arguments)
    ours = both.ours("console-consumer", *arguments, check=False)
    assert ours.returncode == kafkas["status"] == 1
    assert ours.stderr.splitlines()[0] == kafkas["err"].splitlines()[0]


READERS = [
    ([], "one\ntwo\r\nthree\r\n\nlast"),
    (
        ["--reader-property", "parse.key=true", "--reader-property", "parse.headers=true"],
        "h1:v1,h2:v2\tk\tv\twith\ttabs\na:b:c\t\t\nx:y,,\tk\tv",
    ),
    (
        [
            *("--property", "parse.key=true", "--property", "parse.headers=true"),
            *("--property", "key.separator=::", "--property", "headers.delimiter=|"),
            *("--property", "headers.separator=[;&]", "--property", "headers.key.separator=>"),
            *("--property", "null.marker=N", "--sync"),
        ],
        "a>1;b>N&c>3|k::v\nN|N::N\na>|schlüssel::wert::mehr\n",
    ),
    (
        [
            *("--reader-property", "parse.key=true", "--reader-property", "ignore.error=true"),
            *("--reader-property", "parse.headers=true"),
        ],
        "a:b\tk\tv\nonly a value\n,x:y,,z,\tk\tv\n",
    ),
    (["--compression-codec", "--request-required-acks", "1", "--timeout", "10"], "a\nb\n"),
]


def stored(client: Confluent, topic: str, number: int) -> list[Any]:
    seen: list[Seen] = client.consume(topic, number)
    return [(each.record.key, each.record.value, tuple(each.record.headers)) for each in seen]


@pytest.mark.seed_row("2.3")
@pytest.mark.parametrize(("arguments", "text"), READERS)
def test_lines_become_the_records_that_kafka_makes_of_them(
    broker: Broker, arguments: list[str], text: str
) -> None:
    client = Confluent(broker.bootstrap_servers)
    server = ("--bootstrap-server", broker.bootstrap_servers)
    found = []
    for run in (kafka_tool, odradek_tool):
        topic = f"lines-{next(_numbers)}"
        client.create_topic(topic, 1)
        said = run("console-producer", *server, "--topic", topic, *arguments, stdin=text)
        number = len(text.splitlines())
        found.append((said.stdout, stored(client, topic, number)))
    assert found[0] == found[1]


def test_a_line_without_a_separator_ends_both(broker: Broker) -> None:
    broker.create_topic("half")
    asked = ["--bootstrap-server", broker.bootstrap_servers, "--topic", "half"]
    asked += ["--reader-property", "parse.key=true"]
    for run in (kafka_tool, odradek_tool):
        said = run("console-producer", *asked, stdin="k\tv\nnothing\nk\tw\n", check=False)
        assert said.returncode == 1
        assert "No key separator found on line number 2: 'nothing'" in said.stderr
    # What came before is there, of both.
    read = odradek_tool("console-consumer", *asked[:4], *PLACES[1][:3], "--max-messages", "2")
    assert read.stdout == "v\nv\n"
