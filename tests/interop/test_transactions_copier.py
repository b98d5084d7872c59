"""Kafka's TransactionalMessageCopier with random aborts, on a broker that is killed meanwhile.

It copies from one topic to another as ducktape's transactions_test has it do: one copier for each
partition, its offsets within its transactions. What comes out is what went in, once and in order.

The broker is killed whenever so much more was copied, not every so many seconds: however busy the
machine, the copiers get on, and each kill hits them at work.
"""

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from odradek.core.ids import TopicPartition
from tests.interop.clients import Sent
from tests.interop.clients.confluent import Confluent
from tests.interop.group_members import wait_until
from tests.interop.histories.reading import read_to_end
from tests.interop.kafka_peer.jvm import until_parent_ends
from tests.interop.kafka_peer.tools import java_command
from tests.interop.node_process import NodeProcess

pytestmark = [pytest.mark.slow, pytest.mark.kafka]

COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
PARTITIONS = 2
RECORDS_EACH = 10_000
TRANSACTION_RECORDS = 50
RECORDS_BETWEEN_KILLS = 2_500
KILLS_MIN = 4
STALLED_SECONDS_MAX = 240


@contextmanager
def copier(
    libs: Path, node: NodeProcess, partition: int, log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Run one whose words are in ``log``; its errors, which would cut them short, beside it."""
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
    with log.open("wb") as output, errors_beside(log).open("wb") as errors:
        process = subprocess.Popen(
            [
                *until_parent_ends(),
                *command,
                *arguments,
                "--enable-random-aborts",
                "--use-group-metadata",
            ],
            stdout=output,
            stderr=errors,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def errors_beside(log: Path) -> Path:
    return log.with_suffix(".errors")


def fill(client: Confluent) -> dict[int, list[bytes]]:
    """Numbers in every partition."""
    client.create_topic("in", PARTITIONS)
    client.create_topic("out", PARTITIONS)
    sent = {}
    for partition in range(PARTITIONS):
        sent[partition] = [b"%d-%d" % (partition, number) for number in range(RECORDS_EACH)]
        client.produce("in", [Sent(None, value) for value in sent[partition]], partition=partition)
    return sent


def kill_while_they_copy(
    node: NodeProcess, copiers: list[subprocess.Popen[bytes]], logs: list[Path]
) -> int:
    """Give how often it was killed before the last copier was done."""

    def are_done() -> bool:
        return all(each.poll() is not None for each in copiers)

    def copied() -> int:
        return sum(map(committed_count, logs))

    def wait_for(number: int) -> None:
        wait_until(
            lambda: copied() >= number or are_done(),
            lambda: f"the copiers do not come to an end: {copied()}",
            STALLED_SECONDS_MAX,
        )

    kills = 0
    wait_for(RECORDS_BETWEEN_KILLS)
    while not are_done():
        node.kill()
        node.start()
        kills += 1
        wait_for(copied() + RECORDS_BETWEEN_KILLS)
    return kills


def committed_count(log: Path) -> int:
    """What the copier itself says it has copied."""
    lines = log.read_text().splitlines(keepends=True)
    status = [line for line in lines if line.startswith("{") and line.endswith("\n")]
    return int(json.loads(status[-1])["totalProcessed"]) if status else 0


def read_committed(node: NodeProcess, partition: int) -> list[bytes | None]:
    config = {"bootstrap.servers": node.bootstrap_servers}
    batches = read_to_end(config, [TopicPartition("out", partition)])
    return [each.value() for messages in batches for each in messages if each.error() is None]


@pytest.mark.seed_row("0.3")
def test_the_copier_copies_each_record_once(tmp_path: Path, kafka_libs: Path) -> None:
    logs = [tmp_path / f"copier-{partition}.log" for partition in range(PARTITIONS)]
    with NodeProcess(tmp_path / "data", ("--log-level", "error")) as node, ExitStack() as stack:
        sent = fill(Confluent(node.bootstrap_servers))
        copiers = [
            stack.enter_context(copier(kafka_libs, node, partition, log))
            for partition, log in enumerate(logs)
        ]
        kills = kill_while_they_copy(node, copiers, logs)
        for process, log in zip(copiers, logs, strict=True):
            assert process.returncode == 0, errors_beside(log).read_text()[-4000:]
            assert committed_count(log) == RECORDS_EACH
        for partition, values in sent.items():
            assert read_committed(node, partition) == values
    assert kills >= KILLS_MIN, "too fast to be disturbed: give it more to copy"
