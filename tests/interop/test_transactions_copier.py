"""Kafka's TransactionalMessageCopier with random aborts, on a broker that is killed meanwhile.

It copies from one topic to another as ducktape's transactions_test has it do: one copier for each
partition, its offsets within its transactions. What comes out is what went in, once and in order.
"""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from odradek.core.ids import TopicPartition
from tests.interop.clients import Sent
from tests.interop.clients.confluent import Confluent
from tests.interop.histories.reading import read_to_end
from tests.interop.kafka_peer.jvm import until_parent_ends
from tests.interop.kafka_peer.tools import java_command
from tests.interop.node_process import NodeProcess

pytestmark = [pytest.mark.slow, pytest.mark.kafka]

COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
PARTITIONS = 2
RECORDS_EACH = 10_000
TRANSACTION_RECORDS = 50
UP_SECONDS = 3.0
KILLS_MIN = 2
COPY_SECONDS_MAX = 120


@contextmanager
def copier(
    libs: Path, node: NodeProcess, partition: int, log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    command = java_command(COPIER, heap_mib=128, log_level="WARN", libs=libs)
    options = {
        "--broker-list": node.bootstrap_servers,
        "--input-topic": "in",
        "--input-partition": partition,
        "--output-topic": "out",
        "--consumer-group": f"copiers-{partition}",
        "--transactional-id": f"copier-{partition}",
        "--transaction-size": TRANSACTION_RECORDS,
    }
    arguments = [str(each) for pair in options.items() for each in pair]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                *until_parent_ends(),
                *command,
                *arguments,
                "--enable-random-aborts",
                "--use-group-metadata",
            ],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def fill(client: Confluent) -> dict[int, list[bytes]]:
    """Numbers in every partition."""
    client.create_topic("in", PARTITIONS)
    client.create_topic("out", PARTITIONS)
    sent = {}
    for partition in range(PARTITIONS):
        sent[partition] = [b"%d-%d" % (partition, number) for number in range(RECORDS_EACH)]
        client.produce("in", [Sent(None, value) for value in sent[partition]], partition=partition)
    return sent


def kill_while_they_copy(node: NodeProcess, copiers: list[subprocess.Popen[bytes]]) -> int:
    """Give how often it was killed before the last copier was done."""
    kills, deadline = 0, time.monotonic() + COPY_SECONDS_MAX
    while any(each.poll() is None for each in copiers):
        assert time.monotonic() < deadline, "the copiers do not come to an end"
        time.sleep(UP_SECONDS)  # nothing is waited for: this is how long a broker lives
        node.kill()
        node.start()
        kills += 1
    return kills


def committed_count(log: Path) -> int:
    """What the copier itself says it has copied."""
    status = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    return int(status[-1]["totalProcessed"])


def read_committed(node: NodeProcess, partition: int) -> list[bytes | None]:
    config = {"bootstrap.servers": node.bootstrap_servers}
    batches = read_to_end(config, [TopicPartition("out", partition)])
    return [each.value() for messages in batches for each in messages if each.error() is None]


def test_the_copier_copies_each_record_once(tmp_path: Path, kafka_libs: Path) -> None:
    logs = [tmp_path / f"copier-{partition}.log" for partition in range(PARTITIONS)]
    with NodeProcess(tmp_path / "data", ("--log-level", "error")) as node, ExitStack() as stack:
        sent = fill(Confluent(node.bootstrap_servers))
        copiers = [
            stack.enter_context(copier(kafka_libs, node, partition, log))
            for partition, log in enumerate(logs)
        ]
        kills = kill_while_they_copy(node, copiers)
        for process, log in zip(copiers, logs, strict=True):
            assert process.returncode == 0, log.read_text()[-4000:]
            assert committed_count(log) == RECORDS_EACH
        for partition, values in sent.items():
            assert read_committed(node, partition) == values
    assert kills >= KILLS_MIN, "too fast to be disturbed: give it more to copy"
