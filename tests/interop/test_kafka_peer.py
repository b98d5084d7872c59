"""The real Kafka that judges ours works on this machine: node, tools, DumpLogSegments."""

import subprocess
from pathlib import Path

import confluent_kafka
import pytest

from tests.interop.kafka_peer import KafkaNode, dump_log, kafka_tool
from tests.interop.kafka_peer.classes import command, shared_classes

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

RECORDS = [(b"key %d" % i, b"value %d" % i) for i in range(10)]
DEADLINE_SECONDS = 90


def produce(servers: str, topic: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "linger.ms": 100})
    for key, value in RECORDS:
        producer.produce(topic, value=value, key=key, timestamp=1_700_000_000_000)
    assert producer.flush(DEADLINE_SECONDS) == 0


def consume(servers: str, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "g", "enable.auto.commit": False}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    try:
        messages = consumer.consume(len(RECORDS), timeout=DEADLINE_SECONDS)
        return [(message.key(), message.value()) for message in messages]
    finally:
        consumer.close()


@pytest.mark.usefixtures("kafka_libs")
def test_a_real_node_takes_records_and_its_dump_log_reads_them(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    # The records are of 2023: retention would take them 30 s after the node has started.
    with KafkaNode(data_dir, {"log.retention.ms": "-1"}) as node:
        created = kafka_tool(
            *("topics", "--bootstrap-server", node.bootstrap_servers),
            *("--create", "--topic", "orders", "--partitions", "1"),
        )
        assert created.stdout == "Created topic orders.\n"
        produce(node.bootstrap_servers, "orders")
        assert consume(node.bootstrap_servers, "orders") == RECORDS
    assert (data_dir / ".kafka_cleanshutdown").exists()

    segment = Path("orders-0/00000000000000000000.log")
    lines = dump_log(segment, "--print-data-log", cwd=data_dir).splitlines()
    assert lines[:2] == [f"Dumping {segment}", "Log starting offset: 0"]
    payloads = [line.partition(" key: ")[2] for line in lines if line.startswith("| ")]
    assert payloads == [f"key {i} payload: value {i}" for i in range(10)]


def test_a_tool_takes_its_classes_from_the_archive(kafka_libs: Path, tmp_path: Path) -> None:
    log = tmp_path / "classes.log"
    options = shared_classes(kafka_libs)
    tool = command(
        "kafka.tools.StorageTool",
        heap_mib=64,
        log_level="WARN",
        libs=kafka_libs,
        options=[*options, f"-Xlog:class+load:file={log}"],
    )
    run = subprocess.run([*tool, "random-uuid"], capture_output=True, text=True, check=True)
    assert (len(run.stdout.strip()), run.stderr) == (22, "")
    sources = [line.partition(" source: ")[2] for line in log.read_text().splitlines()]
    # A Java without an archive of its own classes makes none of Kafka's either.
    assert ("shared objects file (top)" in sources) == bool(options)
