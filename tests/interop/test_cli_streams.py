"""Our tools that produce and consume, as processes, when something goes wrong or has to end."""

import json
import re
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from odradek.testing.broker import Broker
from tests.interop.clients import Sent
from tests.interop.clients.confluent import Confluent
from tests.interop.odradek_tool import COMMAND, odradek_tool

SECONDS_MAX = 120
CONFIGS = {"group.min.session.timeout.ms": "500", "log.retention.ms": "-1"}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(config=CONFIGS) as started:
        yield started


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> str:
    name = re.sub(r"\W", "-", request.node.name)[:200]
    broker.create_topic(name)
    return name


@pytest.fixture
def server(broker: Broker) -> list[str]:
    return ["--bootstrap-server", broker.bootstrap_servers]


@contextmanager
def running(name: str, *arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        [COMMAND, name, *arguments], stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0
    )
    try:
        with process:
            yield process
    finally:
        process.kill()


def pipe_of(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream


def wait_for(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def produce(broker: Broker, topic: str, values: Sequence[bytes]) -> None:
    records = [Sent(None, value) for value in values]
    Confluent(broker.bootstrap_servers).produce(topic, records, partition=0)


def end_offset(broker: Broker, topic: str) -> int:
    return Confluent(broker.bootstrap_servers).watermarks(topic)[1]


def committed(broker: Broker, group: str, topic: str) -> int:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": group}
    consumer = confluent_kafka.Consumer(settings)
    (found,) = consumer.committed([TopicPartition(topic, 0)], SECONDS_MAX)
    consumer.close()
    offset: int = found.offset
    return offset


def test_records_that_are_refused_are_told_and_the_others_go_on(
    broker: Broker, server: list[str], topic: str
) -> None:
    asked = ("--topic", topic, "--batch-size", "0", "--timeout", "0")
    with broker.fail("Produce", "INVALID_RECORD", topic=topic):
        said = odradek_tool("console-producer", *server, *asked, stdin="a\nb\nc\n", check=False)
    assert said.returncode == 1
    first, last = said.stderr.splitlines()
    assert first.startswith(
        f"Error when sending message to topic {topic} with key: null, value: 1 bytes with error: "
    )
    assert last == "1 records were not delivered"
    assert end_offset(broker, topic) == 2


def test_a_line_too_long_for_the_client_is_told_and_the_others_go_on(
    broker: Broker, server: list[str], topic: str
) -> None:
    text = "a\n" + 2 * 1024 * 1024 * "x" + "\nb\n"
    asked = ("--topic", topic, "--timeout", "0")
    said = odradek_tool("console-producer", *server, *asked, stdin=text, check=False)
    assert said.returncode == 1
    assert "value: 2097152 bytes with error: " in said.stderr
    assert end_offset(broker, topic) == 2


def test_one_at_a_time_ends_with_the_first_that_is_refused(
    broker: Broker, server: list[str], topic: str
) -> None:
    asked = ("--topic", topic, "--sync", "--timeout", "0")
    with broker.fail("Produce", "INVALID_RECORD", topic=topic):
        said = odradek_tool("console-producer", *server, *asked, stdin="a\nb\n", check=False)
    assert (said.returncode, said.stderr.count("\n")) == (1, 1)
    assert end_offset(broker, topic) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_producer_that_waits_for_lines_ends_at_a_signal(
    broker: Broker, server: list[str], topic: str, number: signal.Signals
) -> None:
    with running("console-producer", *server, "--topic", topic, "--timeout", "0") as process:
        pipe_of(process.stdin).write(b"a\nhalf a line")
        wait_for(lambda: end_offset(broker, topic) == 1)
        process.send_signal(number)
        assert process.wait(SECONDS_MAX) == 128 + number
        assert pipe_of(process.stderr).read() == b""


def test_a_consumer_that_waits_for_records_ends_at_a_signal(
    broker: Broker, server: list[str], topic: str
) -> None:
    produce(broker, topic, [b"one"])
    asked = ["--topic", topic, "--from-beginning", "--group", topic]
    with running("console-consumer", *server, *asked) as process:
        assert pipe_of(process.stdout).readline() == b"one\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS_MAX) == 130
        assert pipe_of(process.stderr).read() == b"Processed a total of 1 messages\n"
    assert committed(broker, topic, topic) == 1


def test_what_nobody_reads_is_not_committed(broker: Broker, server: list[str], topic: str) -> None:
    produce(broker, topic, [b"x" * 1000] * 5000)
    asked = ("--topic", topic, "--from-beginning", "--group", topic)
    with running("console-consumer", *server, *asked) as process:
        pipe_of(process.stdout).read(1)
        pipe_of(process.stdout).close()
        assert process.wait(SECONDS_MAX) == 0
        first, last = pipe_of(process.stderr).read().splitlines()
    assert first == b"Unable to write to standard out, closing consumer."
    printed = int(re.findall(rb"total of (\d+) messages", last)[0])
    assert printed < 1000
    assert committed(broker, topic, topic) == printed


def test_what_is_stuck_in_a_full_pipe_is_not_committed(
    broker: Broker, server: list[str], topic: str
) -> None:
    produce(broker, topic, [b"x" * 1000] * 1000)
    asked = ("--topic", topic, "--from-beginning", "--group", topic)
    with running("console-consumer", *server, *asked) as process:
        pipe_of(process.stdout).read(1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS_MAX) == 128 + signal.SIGTERM
        assert pipe_of(process.stderr).read() == b"Processed a total of 0 messages\n"
    assert committed(broker, topic, topic) == 0


@pytest.mark.slow
def test_a_full_pipe_does_not_cost_the_place_in_the_group(
    broker: Broker, server: list[str], topic: str
) -> None:
    """Checks that heartbeats go on while a write blocks."""
    produce(broker, topic, [b"x" * 1000] * 1000)
    asked = ["--topic", topic, "--from-beginning", "--group", topic]
    # A session that no machine sleeps through: that heartbeats go on is what is counted.
    for setting in ("session.timeout.ms=300000", "heartbeat.interval.ms=200"):
        asked += ["--command-property", setting]
    with (
        broker.delay("Heartbeat", 0, times=None) as heartbeats,
        running("console-consumer", *server, *asked) as process,
    ):
        pipe_of(process.stdout).read(1)
        wait_for(lambda: heartbeats.fired >= 10)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        described = admin.describe_consumer_groups([topic])[topic].result(SECONDS_MAX)
        assert len(described.members) == 1
        process.kill()


BROKEN = [struct.pack(">q", 5), b"broken", struct.pack(">q", 6)]


def test_a_record_that_cannot_be_shown_ends_it_and_is_not_committed(
    broker: Broker, server: list[str], topic: str
) -> None:
    produce(broker, topic, BROKEN)
    asked = ["--topic", topic, "--from-beginning", "--group", topic]
    asked += ["--value-deserializer", "long", "--max-messages", "3"]
    said = odradek_tool("console-consumer", *server, *asked, check=False)
    assert (said.returncode, said.stdout) == (1, "5\n")
    assert said.stderr.splitlines() == [
        "Processed a total of 1 messages",
        "Size of data received by LongDeserializer is not 8",
    ]
    assert committed(broker, topic, topic) == 1


def test_a_record_that_cannot_be_shown_can_be_skipped(
    broker: Broker, server: list[str], topic: str
) -> None:
    produce(broker, topic, BROKEN)
    asked = ["--topic", topic, "--partition", "0", "--from-beginning", "--max-messages", "3"]
    asked += ["--value-deserializer", "long", "--skip-message-on-error"]
    said = odradek_tool("console-consumer", *server, *asked, "--enable-systest-events")
    assert said.stdout == "5\n6\nshutdown_complete\n"
    assert "skipping this message" in said.stderr


def test_settings_come_from_a_file_too(
    broker: Broker, server: list[str], topic: str, tmp_path: Any
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("auto.offset.reset=earliest\ngroup.id=from-file\n")
    produce(broker, topic, [b"a"])
    asked = ("--topic", topic, "--command-config", file, "--max-messages", "1")
    assert odradek_tool("console-consumer", *server, *asked).stdout == "a\n"
    assert committed(broker, "from-file", topic) == 1


def test_who_set_a_timestamp_is_told(broker: Broker, server: list[str]) -> None:
    broker.create_topic("stamped", message_timestamp_type="LogAppendTime")
    produce(broker, "stamped", [b"a"])
    asked = ("--topic", "stamped", "--partition", "0", "--from-beginning", "--max-messages", "1")
    said = odradek_tool(
        "console-consumer", *server, *asked, "--formatter-property", "print.timestamp=true"
    )
    assert re.fullmatch(r"LogAppendTime:\d{13}\ta\n", said.stdout)


def events(said: bytes | str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in said.splitlines()]


def test_a_verifiable_consumer_ends_in_order_at_a_signal(
    broker: Broker, server: list[str], topic: str
) -> None:
    produce(broker, topic, [b"a", b"b"])
    asked = ("--topic", topic, "--group-id", topic)
    with running("verifiable-consumer", *server, *asked) as process:
        output = pipe_of(process.stdout)
        names = []
        while "offsets_committed" not in names:
            names += [json.loads(output.readline())["name"]]
        process.send_signal(signal.SIGTERM)
        names += [each["name"] for each in events(output.read())]
        assert process.wait(SECONDS_MAX) == 128 + signal.SIGTERM
    assert names == [
        "startup_complete",
        "partitions_assigned",
        "records_consumed",
        "offsets_committed",
        "shutdown_requested",
        "partitions_revoked",
        "shutdown_complete",
    ]


def test_a_verifiable_producer_tells_what_was_lost(
    broker: Broker, server: list[str], topic: str
) -> None:
    asked = ("--topic", topic, "--max-messages", "3", "--command-property", "linger.ms=0")
    with broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", topic=topic):
        said = odradek_tool(
            *("verifiable-producer", *server, *asked), "--command-property", "batch.size=0"
        )
    found = events(said.stdout)
    assert sorted(each["name"] for each in found).count("producer_send_error") == 1
    (lost,) = (each for each in found if each["name"] == "producer_send_error")
    assert lost["value"] == "0"
    assert {"exception", "message", "topic", "key"} <= lost.keys()
    assert {"sent": 3, "acked": 2}.items() <= found[-1].items()


def test_a_verifiable_producer_ends_in_order_at_a_signal(
    broker: Broker, server: list[str], topic: str
) -> None:
    asked = ("--topic", topic, "--throughput", "100")
    with running("verifiable-producer", *server, *asked) as process:
        output = pipe_of(process.stdout)
        while json.loads(output.readline())["name"] != "producer_send_success":
            pass
        process.send_signal(signal.SIGTERM)
        found = events(output.read())
        assert process.wait(SECONDS_MAX) == 128 + signal.SIGTERM
    assert [each["name"] for each in found[-2:]] == ["shutdown_complete", "tool_data"]
    assert found[-1]["sent"] == found[-1]["acked"] == end_offset(broker, topic)


def test_figures_tell_of_records_that_were_lost(
    broker: Broker, server: list[str], topic: str
) -> None:
    asked = ("--topic", topic, "--num-records", "10", "--record-size", "5", "--throughput", "-1")
    settings = ("--command-property", "batch.size=0", "linger.ms=0")
    with broker.fail("Produce", "INVALID_RECORD", topic=topic):
        said = odradek_tool("producer-perf-test", *server, *asked, *settings, check=False)
    assert said.returncode == 1
    assert said.stdout.startswith("9 records sent, ")
    assert said.stderr.endswith("1 records were not delivered\n")


def test_a_producer_keeps_to_the_rate_asked_for(
    broker: Broker, server: list[str], topic: str
) -> None:
    asked = ("--topic", topic, "--num-records", "1000", "--record-size", "5", "--throughput", "500")
    said = odradek_tool("producer-perf-test", *server, *asked, "--reporting-interval", "100")
    *windows, total = said.stdout.splitlines()
    # Twenty, if nothing holds it up: it may catch up on what it is late with.
    assert len(windows) >= 2
    rate = re.findall(r"1000 records sent, ([\d.]+) records/sec", total)[0]
    assert float(rate) <= 510


def test_keys_are_spread_as_asked(broker: Broker, server: list[str], topic: str) -> None:
    asked = ("--topic", topic, "--num-records", "5", "--payload-monotonic", "--throughput", "-1")
    keys = ("--record-key-range", "3", "--key-distribution", "range")
    odradek_tool("producer-perf-test", *server, *asked, *keys)
    seen = Confluent(broker.bootstrap_servers).consume(topic, 5)
    assert [(each.record.key, each.record.value) for each in seen] == [
        (b"%d" % (number % 3), b"%d" % number) for number in range(5)
    ]


@pytest.mark.seed_row("1.9")
def test_throughput_by_partitions_is_measured_and_leaves_nothing(
    broker: Broker, server: list[str]
) -> None:
    asked = ["--partitions", "1,3", "--num-records", "200", "--record-size", "100"]
    asked += ["--topic-prefix", "sweep"]
    said = odradek_tool("perf partitions", *server, *asked, "--json")
    found = json.loads(said.stdout)
    assert [each["partitions"] for each in found] == [1, 3]
    assert all(value > 0 for each in found for value in each.values())
    assert said.stderr.splitlines()[1].startswith("3 partitions: producer ")
    plotted = odradek_tool("perf partitions", *server, *asked, "--keep-topics").stdout
    assert "producer, MB/sec by partitions" in plotted
    assert re.search(r"^3 │", plotted, re.MULTILINE)
    assert "│█" in plotted, "the bar of the fastest; that of another may be too short to be seen"
    topics = broker.node.broker.image.topics
    assert sorted(name for name in topics if "sweep" in name) == ["sweep-1", "sweep-3"]
    assert len(topics["sweep-3"].partitions) == 3
